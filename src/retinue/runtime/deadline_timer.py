"""The timer of one attempt. It is fair: time in which this process could not run does not count.

A timer that fires late was held up by a suspended process (SIGSTOP, Ctrl-Z, a paused container) or a machine that
could not run it. Ticks bound the part of such a time that is not seen, and what an agent has written by then is read
before its deadline is applied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel

from retinue.guards.guard_set import GuardSet
from retinue.model.runs import NO_DEADLINE

TICK_INTERVAL = 1.0
"""Seconds between two checks whether this process could run."""
MIN_SUSPENSION = 0.5
"""Seconds by which a timer must be late to count: less is ordinary load."""
GRACE_TIMEOUT = 2.0
"""Seconds an engine has to return once its agent is done."""
READ_PASSES = 25
"""Passes of the event loop without an event after which an engine has emitted all it had received."""
STORE_INTERVAL = 0.001
"""Seconds between two checks whether an event has been stored."""
MAX_READ_PASSES = 50_000
"""Passes after a deadline in which an engine may still emit what it has received."""
MAX_READ_TIME = 1.0
"""Seconds after a deadline in which an engine may still emit what it has received."""


class EmitCounter:
    """Counts the events an engine emits; the block around it emits one."""

    def __init__(self) -> None:
        self.started = 0
        self.ended = 0

    def __enter__(self) -> None:
        self.started += 1

    def __exit__(self, *_: object) -> None:
        self.ended += 1


class DeadlineTimer:
    """Cancels the scope of an attempt when the deadline of its guards, or of its ending engine, has passed."""

    def __init__(
        self,
        guards: GuardSet,
        scope: anyio.CancelScope,
        emitted: EmitCounter,
        on_suspension: Callable[[float], Awaitable[None]],
    ) -> None:
        self.grace_end: float | None = None
        """When the engine must have returned, once its agent is done."""
        self._guards = guards
        self._scope = scope
        self._emitted = emitted
        self._on_suspension = on_suspension
        self._tick = anyio.CancelScope()

    @property
    def deadline(self) -> float:
        return min(self._guards.deadline, NO_DEADLINE if self.grace_end is None else self.grace_end)

    def start_grace(self) -> None:
        """Give the engine a short time to return, from the first call on."""
        if self.grace_end is None:
            self.grace_end = anyio.current_time() + GRACE_TIMEOUT

    def wake_by_deadline(self) -> None:
        """Check at the deadline, which may be earlier than it was. A later one is seen at the next check."""
        if (deadline := self.deadline) < self._tick.deadline:
            self._tick.deadline = deadline

    async def run(self) -> None:
        """Cancel the scope once the deadline has passed."""
        while True:
            due = min(self.deadline, anyio.current_time() + TICK_INTERVAL)
            with anyio.CancelScope(deadline=due) as self._tick:
                await anyio.sleep_forever()
            suspended = anyio.current_time() - self._tick.deadline
            if suspended >= MIN_SUSPENSION:
                self._exclude(suspended)
                await self._on_suspension(suspended)
            if anyio.current_time() >= self.deadline:
                await self._await_received_events()
            if anyio.current_time() >= self.deadline:
                self._scope.cancel()
                return

    def _exclude(self, suspended: float) -> None:
        now = anyio.current_time()
        self._guards.exclude(suspended, now)
        if self.grace_end is not None:
            self.grace_end = min(self.grace_end + suspended, now + GRACE_TIMEOUT)

    async def _await_received_events(self) -> None:
        """Return once the engine has emitted what its agent had written when the deadline passed; bounded."""
        latest, quiet, seen = anyio.current_time() + MAX_READ_TIME, 0, self._emitted.started
        for _ in range(MAX_READ_PASSES):
            if self._emitted.started > self._emitted.ended:
                await anyio.sleep(STORE_INTERVAL)  # an event is being stored
            else:
                await anyio.lowlevel.checkpoint()
            quiet, seen = (quiet + 1 if self._emitted.ended == seen else 0), self._emitted.started
            if quiet >= READ_PASSES or anyio.current_time() >= latest:
                return
