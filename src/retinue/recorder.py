"""Writes down what happens in one run: masked, stamped, stored, then shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import anyio
from msgspec import Struct, structs

from retinue.bus import Bus
from retinue.events import (
    LIVE,
    TRANSITIONS,
    AttemptStarted,
    Durable,
    Event,
    Finalized,
    Live,
    MessageEnded,
    ModelChanged,
    Notice,
    Origin,
    OutputCounted,
    ProcessEnded,
    RunEnded,
    RunQueued,
    RunStarted,
    Stamped,
    Steered,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.output.sanitise import Masker, MaskStream
from retinue.results import Actual, Attempt, Finalization, ProcessEnd, RunResult
from retinue.sessions.store import RunRecord
from retinue.types import Failure, RunSpec

PATIENCE = 5.0
"""Seconds a state transition waits for the disk."""

Value = TypeVar("Value", bound=Struct)

FOREIGN: Mapping[type[Struct], tuple[str, ...]] = {
    RunQueued: ("name", "agent", "task", "model"),
    Thinking: ("text",),
    Text: ("text",),
    ToolCalled: ("call", "name", "args"),
    ToolReturned: ("call", "name", "text"),
    MessageEnded: ("model", "error"),
    ModelChanged: ("before", "after", "reason"),
    Notice: ("code", "message"),
    Steered: ("text",),
    Finalized: ("finalization",),
    RunEnded: ("text", "failure", "finalized", "actual"),
    ProcessEnded: ("end",),
    ProcessEnd: ("stderr",),
    Actual: ("model", "declared_model", "tools_used", "attempts", "process", "notices"),
    Attempt: ("model", "failure"),
    Failure: ("message", "detail"),
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
        """Whether all that was noted so far is in the store."""
        return self._record.fault is None

    async def note(self, event: Event) -> Event:
        """Takes note of an event; returns it as it was written down."""
        if isinstance(event, LIVE):
            if self._bus.wants_deltas:
                self._show(event)
            return event
        masked = self.masked(event)
        await self.keep(masked)
        return masked

    async def keep(self, event: Durable) -> None:
        """Takes note of an event that is masked already."""
        stamped = self._written(event)
        try:
            if isinstance(event, TRANSITIONS):
                await self._sync()
        finally:
            self._bus.publish(stamped)
        if not isinstance(event, RunEnded):
            await self._tell_of_fault()

    async def begin(self, queued: RunQueued) -> None:
        """Keeps, masked already, that a run was accepted and starts at once: two transitions, one sync."""
        both = self._written(queued), self._written(RunStarted())
        try:
            await self._sync()
        finally:
            for stamped in both:
                self._bus.publish(stamped)
        await self._tell_of_fault()

    def _written(self, event: Durable) -> Stamped:
        self._end_streams(event)
        stamped = self._stamped(event)
        self._record.append(stamped)
        return stamped

    async def _sync(self) -> None:
        # Shielded, so that what is on the disk is also shown: a cancelled run goes on to its end.
        cancelled: BaseException | None = None
        while True:
            try:
                with anyio.move_on_after(PATIENCE, shield=True):
                    await self._record.sync()
                break
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error  # asyncio's own, of `wait_for` or `Task.cancel`, which knows no shields
        if cancelled:
            raise cancelled

    async def _tell_of_fault(self) -> None:
        if self._record.fault and not self._told:
            self._told = True
            await self.note(Notice("storage", self._record.fault.message))

    def _end_streams(self, event: Durable) -> None:
        """Forgets what is held back of deltas whose whole text has come."""
        if not self._streams:
            return
        match event:
            case Text():
                self._streams.pop(TextDelta, None)
            case Thinking():
                self._streams.pop(ThinkingDelta, None)
            case ToolReturned(call=call):
                self._streams.pop(call, None)
            case AttemptStarted() | RunEnded():
                self._streams.clear()

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
        """The value with its secrets masked; they count."""
        words = _foreign(value)
        if not words or self._masker.is_clean(words):
            return value
        names = FOREIGN[type(value)]
        return structs.replace(value, **{name: self._masked_field(getattr(value, name)) for name in names})

    def result(self, result: RunResult, queued: RunQueued) -> RunResult:
        """The result as it may leave: masked, with what really happened, without what the child alone was to see."""
        ended = self.masked(RunEnded.of(result))
        return structs.replace(
            result,
            spec=shown_spec(result.spec, queued.name, queued.agent, queued.task),
            text=ended.text,
            failure=ended.failure,
            finalized=ended.finalized,
            session_file=self._record.file,
            actual=structs.replace(ended.actual, masks=self.masks, saved=self.saved),
        )

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


def shown_spec(spec: RunSpec, name: str, agent: str, task: str) -> RunSpec:
    """The spec with what is masked, and without what the child alone was to see."""
    return structs.replace(
        spec,
        name=name,
        agent=structs.replace(spec.agent, name=agent),
        task=task,
        prompt=task,
        history=(),
        environment={},
        secrets={},
        home=None,
        lineage=structs.replace(spec.lineage, ancestors=()),
    )


def _foreign(value: Struct) -> list[Any]:
    """The words of others in a value: looked at without our own, whose names alone would look like secrets."""
    words: list[Any] = []
    for name in FOREIGN.get(type(value), ()):
        held = getattr(value, name)
        for member in held if isinstance(held, tuple) else (held,):
            if isinstance(member, Struct):
                words += _foreign(member)
            elif member:
                words.append(member)
    return words
