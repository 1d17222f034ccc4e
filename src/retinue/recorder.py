"""Writes down what happens in one run: masked, stamped, stored, then shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct, structs

from retinue.bus import Bus
from retinue.events import (
    LIVE,
    TRANSITIONS,
    Durable,
    Event,
    Finalized,
    Live,
    MessageEnded,
    ModelChanged,
    Notice,
    Origin,
    OutputCounted,
    RunEnded,
    RunQueued,
    RunStarted,
    Stamped,
    Text,
    Thinking,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.output.sanitise import Masker, MaskStream
from retinue.results import Actual, Attempt, Finalization
from retinue.sessions.store import RunRecord
from retinue.types import Failure, RunSpec

Value = TypeVar("Value", bound=Struct)

FOREIGN: Mapping[type[Struct], tuple[str, ...]] = {
    RunQueued: ("name", "task"),
    Thinking: ("text",),
    Text: ("text",),
    ToolCalled: ("args",),
    ToolReturned: ("text",),
    MessageEnded: ("error",),
    ModelChanged: ("reason",),
    Notice: ("message",),
    Finalized: ("finalization",),
    RunEnded: ("text", "failure", "finalized", "actual"),
    Actual: ("attempts", "notices"),
    Attempt: ("failure",),
    Failure: ("message",),
    Finalization: ("result", "error"),
}
"""The fields that hold words of callers, children and providers, where a secret may stand."""


class Recorder:
    """Durable events are in the store before any watcher sees them; state transitions are on the disk."""

    def __init__(self, spec: RunSpec, record: RunRecord, bus: Bus, masker: Masker) -> None:
        self._origin = Origin.of(spec)
        self._record = record
        self._bus = bus
        self._masker = masker
        self._streams: dict[object, MaskStream] = {}
        self._seq = 0
        self._told = False
        self.masks = 0

    @property
    def saved(self) -> bool:
        return self._record.fault is None and not self._told

    async def note(self, event: Event) -> Event:
        """Takes note of an event; returns it as it was written down."""
        if isinstance(event, LIVE):
            if self._bus.wants_deltas:
                self._show(event)
            return event
        stamped = self._written(event)
        if isinstance(event, TRANSITIONS):
            await self._record.sync()
        await self._told_of(stamped)
        return stamped.event

    async def begin(self, queued: RunQueued) -> None:
        """Takes note of a run that starts as soon as it is accepted: two transitions, one sync."""
        both = self._written(queued), self._written(RunStarted())
        await self._record.sync()
        for stamped in both:
            await self._told_of(stamped)

    def _written(self, event: Durable) -> Stamped:
        if self._streams:
            self._streams.clear()
        stamped = self._stamped(self.masked(event))
        self._record.append(stamped)
        return stamped

    async def _told_of(self, stamped: Stamped) -> None:
        self._bus.publish(stamped)
        if self._record.fault and not self._told:
            self._told = True
            await self.note(Notice("storage", self._record.fault.message))

    def _show(self, event: Live) -> None:
        """Publishes a live event, masked. Nobody calls this unless someone looks: it would cost more than the run."""
        if isinstance(event, OutputCounted):
            return
        key = event.call if isinstance(event, ToolDelta) else type(event)
        if key not in self._streams:
            self._streams[key] = self._masker.stream()
        if text := self._streams[key].feed(event.text):
            self._bus.publish(self._stamped(structs.replace(event, text=text)))

    def _stamped(self, event: Event) -> Stamped:
        self._seq += 1
        return Stamped(self._origin, self._seq, time.time(), event)

    def masked(self, value: Value) -> Value:
        changes: dict[str, Any] = {}
        for name in FOREIGN.get(type(value), ()):
            before = getattr(value, name)
            after = self._masked_field(before)
            if after is not before:
                changes[name] = after
        return structs.replace(value, **changes) if changes else value

    def _masked_field(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return self.masked(value)
        if isinstance(value, tuple):
            return tuple(map(self._masked_field, value))
        if not value:
            return value
        masked, count = self._masker.mask_value(value)
        self.masks += count
        return masked
