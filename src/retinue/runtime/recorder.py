"""Writes down what happens in one run: masked, stamped, stored, then shown."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import anyio
from msgspec import Struct, structs

from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    EPHEMERAL_EVENTS,
    SYNCED_EVENTS,
    AttemptStarted,
    EphemeralEvent,
    Event,
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
    OutputBytesCounted,
    PersistedEvent,
    ProcessEnded,
    RunEnded,
    RunQueued,
    RunStarted,
    SteeringDelivered,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.model.results import Attempt, ExecutionReport, Finalization, ProcessEnd, RunResult
from retinue.model.runs import RunSpec
from retinue.output.redaction.redactor import Redactor, StreamRedactor
from retinue.runtime.event_bus import EventBus
from retinue.sessions.store import RunRecord

SYNC_TIMEOUT = 5.0
"""Seconds a state transition waits for the disk."""

Value = TypeVar("Value", bound=Struct)

REDACTED_FIELDS: Mapping[type[Struct], tuple[str, ...]] = {
    RunQueued: ("name", "agent", "task", "model"),
    Thinking: ("text",),
    Text: ("text",),
    ToolCalled: ("call", "name", "args"),
    ToolReturned: ("call", "name", "text"),
    MessageEnded: ("model", "error"),
    ModelChanged: ("before", "after", "reason"),
    Notice: ("code", "message"),
    SteeringDelivered: ("text",),
    Finalized: ("finalization",),
    RunEnded: ("text", "failure", "finalized", "actual"),
    ProcessEnded: ("end",),
    ProcessEnd: ("stderr",),
    ExecutionReport: ("model", "declared_model", "tools_used", "attempts", "process", "notices"),
    Attempt: ("model", "failure"),
    Failure: ("message", "detail"),
    Finalization: ("result", "error"),
}
"""The fields that hold words of callers, children and providers, where a secret may stand."""


class Recorder:
    """Durable events are in the store before any watcher sees them; state transitions are on the disk."""

    def __init__(self, spec: RunSpec, record: RunRecord, bus: EventBus, redactor: Redactor) -> None:
        self._source = EventSource.of(spec)
        self._record = record
        self._bus = bus
        self._redactor = redactor
        self._streams: dict[object, StreamRedactor] = {}
        self._seq = 0
        self._fault_reported = False
        self.redaction_count = 0

    @property
    def is_stored(self) -> bool:
        """Whether all that was noted so far is in the store."""
        return self._record.fault is None

    async def record(self, event: Event) -> Event:
        """Takes note of an event; returns it as it was written down."""
        if isinstance(event, EPHEMERAL_EVENTS):
            if self._bus.wants_deltas:
                self._publish_delta(event)
            return event
        redacted = self.redact(event)
        await self.record_redacted(redacted)
        return redacted

    async def record_redacted(self, event: PersistedEvent) -> None:
        """Takes note of an event that is masked already."""
        stamped = self._append(event)
        try:
            if isinstance(event, SYNCED_EVENTS):
                await self._sync()
        finally:
            self._bus.publish(stamped)
        if not isinstance(event, RunEnded):
            await self._report_storage_fault()

    async def record_start(self, queued: RunQueued) -> None:
        """Keeps, masked already, that a run was accepted and starts at once: two transitions, one sync."""
        records = self._append(queued), self._append(RunStarted())
        try:
            await self._sync()
        finally:
            for stamped in records:
                self._bus.publish(stamped)
        await self._report_storage_fault()

    def _append(self, event: PersistedEvent) -> EventRecord:
        self._discard_streams(event)
        stamped = self._make_record(event)
        self._record.append(stamped)
        return stamped

    async def _sync(self) -> None:
        # Shielded, so that what is on the disk is also shown: a cancelled run goes on to its end.
        cancelled: BaseException | None = None
        while True:
            try:
                with anyio.move_on_after(SYNC_TIMEOUT, shield=True):
                    await self._record.sync()
                break
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error  # asyncio's own, of `wait_for` or `Task.cancel`, which knows no shields
        if cancelled:
            raise cancelled

    async def _report_storage_fault(self) -> None:
        if self._record.fault and not self._fault_reported:
            self._fault_reported = True
            await self.record(Notice("storage", self._record.fault.message))

    def _discard_streams(self, event: PersistedEvent) -> None:
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

    def _publish_delta(self, event: EphemeralEvent) -> None:
        """Publishes a live event, masked. Nobody calls this unless someone looks: it would cost more than the run."""
        if isinstance(event, OutputBytesCounted):
            return
        key = event.call if isinstance(event, ToolDelta) else type(event)
        if key not in self._streams:
            self._streams[key] = self._redactor.open_stream()
        if text := self._streams[key].feed(event.text):
            self._bus.publish(self._make_record(structs.replace(event, text=text)))

    def _make_record(self, event: Event) -> EventRecord:
        self._seq += 1
        return EventRecord(self._source, self._seq, time.time(), event)

    def redact(self, value: Value) -> Value:
        """The value with its secrets masked; they count."""
        texts = _untrusted_texts(value)
        if not texts or self._redactor.is_clean(texts):
            return value
        names = REDACTED_FIELDS[type(value)]
        return structs.replace(value, **{name: self._redact_field(getattr(value, name)) for name in names})

    def result(self, result: RunResult, queued: RunQueued) -> RunResult:
        """The result as it may leave: masked, with what really happened, without what the child alone was to see."""
        ended = self.redact(RunEnded.of(result))
        return structs.replace(
            result,
            spec=shown_spec(result.spec, queued.name, queued.agent, queued.task),
            text=ended.text,
            failure=ended.failure,
            finalized=ended.finalized,
            session_file=self._record.file,
            actual=structs.replace(ended.actual, masks=self.redaction_count, saved=self.is_stored),
        )

    def _redact_field(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return self.redact(value)
        if isinstance(value, tuple):
            return tuple(map(self._redact_field, value))
        if not value:
            return value
        redacted, count = self._redactor.redact_value(value)
        self.redaction_count += count
        return redacted


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
        callback=None,
        lineage=structs.replace(spec.lineage, ancestors=()),
    )


def _untrusted_texts(value: Struct) -> list[Any]:
    """The words of others in a value: looked at without our own, whose names alone would look like secrets."""
    texts: list[Any] = []
    for name in REDACTED_FIELDS.get(type(value), ()):
        content = getattr(value, name)
        for part in content if isinstance(content, tuple) else (content,):
            if isinstance(part, Struct):
                texts += _untrusted_texts(part)
            elif part:
                texts.append(part)
    return texts
