"""Publish events to live subscribers. A slow subscriber never blocks a run: it loses deltas, not durable events."""

from __future__ import annotations

from collections import deque
from types import TracebackType
from typing import Self

import anyio

from retinue.model.event_codec import EventRecord
from retinue.model.events import EPHEMERAL_EVENTS

MAX_QUEUED_DELTAS = 1_000
"""Queued events of a subscriber at which its deltas are dropped."""
MAX_QUEUED_EVENTS = 100_000
"""Queued events at which a subscriber is cut off, so that a stalled one cannot exhaust the memory."""

_LAGGED_MESSAGE = f"more than {MAX_QUEUED_EVENTS} events behind; read the remaining events from the store"


class SubscriberLaggedError(Exception):
    """The subscriber fell too far behind and was cut off; all durable events are in the store."""


class EventBus:
    """Publishes the events of all runs of a process."""

    def __init__(self) -> None:
        self._subscriptions: set[EventSubscription] = set()
        self.wants_deltas = False
        """Whether a subscriber wants deltas; else they are neither redacted nor numbered."""

    def publish(self, record: EventRecord) -> None:
        for subscription in self._subscriptions:
            subscription.put(record)

    def subscribe(self, *, deltas: bool = True) -> EventSubscription:
        """Return a subscription to everything published during its block."""
        return EventSubscription(self, deltas=deltas)

    def add(self, subscription: EventSubscription) -> None:
        self._subscriptions.add(subscription)
        self.wants_deltas = self.wants_deltas or subscription.deltas

    def remove(self, subscription: EventSubscription) -> None:
        self._subscriptions.discard(subscription)
        self.wants_deltas = any(other.deltas for other in self._subscriptions)


class EventSubscription:
    """One subscriber of the bus: iterate inside `async with`."""

    def __init__(self, bus: EventBus, *, deltas: bool) -> None:
        self._bus = bus
        self._queue: deque[EventRecord] = deque()
        self._arrived: anyio.Event | None = None
        self._cut_off = False
        self.deltas = deltas
        self.dropped = 0
        """Number of deltas dropped because the subscriber was slow."""

    def put(self, record: EventRecord) -> None:
        if isinstance(record.event, EPHEMERAL_EVENTS):
            if not self.deltas:
                return
            if len(self._queue) >= MAX_QUEUED_DELTAS:
                self.dropped += 1
                return
        elif len(self._queue) >= MAX_QUEUED_EVENTS:
            self._queue.clear()
            self._cut_off = True
        if not self._cut_off:
            self._queue.append(record)
        if self._arrived is not None:
            self._arrived.set()

    def drain(self) -> tuple[EventRecord, ...]:
        """Return everything that has arrived, without waiting.

        Raises:
            SubscriberLaggedError: the subscription was cut off.
        """
        if self._cut_off:
            raise SubscriberLaggedError(_LAGGED_MESSAGE)
        batch = tuple(self._queue)
        self._queue.clear()
        return batch

    async def __aenter__(self) -> Self:
        self._bus.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bus.remove(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventRecord:
        while not self._queue:
            if self._cut_off:
                raise SubscriberLaggedError(_LAGGED_MESSAGE)
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._queue.popleft()
