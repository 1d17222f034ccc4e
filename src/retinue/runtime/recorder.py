"""Record the events of one run: redact, number, store, then publish each. Restore runs that only a host still has."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import anyio
from msgspec import Struct, structs

from retinue.model.agents import AgentProfile
from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    COUNTED_EVENTS,
    EPHEMERAL_EVENTS,
    SYNCED_EVENTS,
    AttemptStarted,
    EphemeralEvent,
    Event,
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
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
from retinue.model.runs import Compaction, RunSpec
from retinue.model.tasks import CallContext
from retinue.output.redaction.redactor import Redactor, StreamRedactor
from retinue.runtime.event_bus import EventBus
from retinue.sessions.paths import SHORT_ID_LENGTH, parse_id_digits
from retinue.sessions.store import RunRecord, SessionStore

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
    Notice: ("code", "message", "compaction"),
    Compaction: ("summary",),
    SteeringDelivered: ("text",),
    Finalized: ("finalization",),
    RunEnded: ("text", "failure", "finalized", "actual"),
    ProcessEnded: ("end",),
    ProcessEnd: ("stderr",),
    ExecutionReport: ("model", "declared_model", "tools_used", "attempts", "process", "notices"),
    Attempt: ("model", "failure"),
    Failure: ("message", "detail"),
    Finalization: ("result", "error", "structured"),
}
"""The fields with text of callers, child processes and providers, which may contain a secret."""


class EventRedactor:
    """Redacts events and results, and counts what it redacted."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.count = 0

    def redact(self, value: Value) -> Value:
        """Return the value with the secrets in its `REDACTED_FIELDS` replaced."""
        texts = _untrusted_texts(value)
        if not texts or self._redactor.is_clean(texts):
            return value
        changes: dict[str, Any] = {}
        for name in REDACTED_FIELDS[type(value)]:
            content = getattr(value, name)
            if isinstance(content, tuple):
                changes[name] = tuple(map(self._redact_part, content))
            elif isinstance(content, Struct):
                changes[name] = self.redact(content)
            elif isinstance(content, str):
                changes[name], count = self._redactor.redact(content)
                self.count += count
            elif content:
                changes[name], count = self._redactor.redact_value(content)
                self.count += count
        return structs.replace(value, **changes)

    def _redact_part(self, part: Any) -> Any:
        if isinstance(part, Struct):
            return self.redact(part)
        redacted, count = self._redactor.redact_value(part)
        self.count += count
        return redacted

    def open_stream(self) -> StreamRedactor:
        """Return a redactor for text that arrives in pieces; what it redacts is not counted."""
        return self._redactor.open_stream()


class Recorder:
    """Records one run. Durable events are stored before any subscriber sees them; state transitions are synced."""

    def __init__(self, spec: RunSpec, record: RunRecord, bus: EventBus, redactor: EventRedactor) -> None:
        self._source = EventSource.of(spec)
        self._record = record
        self._bus = bus
        self._redactor = redactor
        self._streams: dict[object, StreamRedactor] = {}
        self._seq = 0
        self._fault_reported = False

    def redact(self, value: Value) -> Value:
        """Return the value as it may be stored and shown; its secrets count for the result."""
        return self._redactor.redact(value)

    async def record(self, event: Event) -> Event:
        """Store and publish an event; return it as it was stored."""
        if isinstance(event, EPHEMERAL_EVENTS):
            if self._bus.wants_deltas:
                self._publish_delta(event)
            return event
        redacted = self._redactor.redact(event)
        await self.record_redacted(redacted)
        return redacted

    async def record_redacted(self, event: PersistedEvent) -> None:
        """Store and publish an event that is redacted already."""
        record = self._append(event)
        try:
            if isinstance(event, SYNCED_EVENTS):
                await self._sync()
        finally:
            self._bus.publish(record)
        if not isinstance(event, RunEnded):
            await self._report_storage_fault()

    async def record_start(self, queued: RunQueued) -> None:
        """Record that a run was accepted and starts at once: two state transitions, one sync."""
        records = self._append(queued), self._append(RunStarted())
        try:
            await self._sync()
        finally:
            for record in records:
                self._bus.publish(record)
        await self._report_storage_fault()

    async def release(self) -> None:
        """End the record and release the session. Bounded, never raises."""
        await self._record.release()

    def redact_result(self, result: RunResult, queued: RunQueued) -> RunResult:
        """Return the result as callers may see it: redacted, and without what only the child process may see."""
        ended = self._redactor.redact(RunEnded.of(result))
        actual = structs.replace(ended.actual, masks=self._redactor.count, saved=self._record.fault is None)
        return structs.replace(
            result,
            spec=shown_spec(result.spec, queued.name, queued.agent, queued.task),
            text=ended.text,
            failure=ended.failure,
            finalized=ended.finalized,
            session_file=self._record.file,
            actual=actual,
        )

    def with_storage_status(self, result: RunResult) -> RunResult:
        """Return the result with whether all of it is stored, and if not, why."""
        fault, actual = self._record.fault, result.actual
        if fault and fault.message not in actual.notices:
            actual = structs.replace(actual, notices=(*actual.notices, fault.message))
        return structs.replace(result, actual=structs.replace(actual, saved=fault is None))

    def _append(self, event: PersistedEvent) -> EventRecord:
        self._discard_streams(event)
        record = self._make_record(event)
        self._record.append(record)
        return record

    async def _sync(self) -> None:
        # Shielded, so that a stored event is also published: a cancelled run continues to its end.
        cancelled: BaseException | None = None
        while True:
            try:
                with anyio.move_on_after(SYNC_TIMEOUT, shield=True):
                    await self._record.sync()
                break
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error  # by asyncio itself, `wait_for` or `Task.cancel`, which ignores shields
        if cancelled:
            raise cancelled

    async def _report_storage_fault(self) -> None:
        if self._record.fault and not self._fault_reported:
            self._fault_reported = True
            await self.record(Notice("storage", self._record.fault.message))

    def _discard_streams(self, event: PersistedEvent) -> None:
        """Drop the held-back deltas whose whole text has arrived."""
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
        """Publish a live event, redacted. Only for subscribers: redacting deltas would cost more than the run."""
        if isinstance(event, COUNTED_EVENTS):
            return
        key = event.call if isinstance(event, ToolDelta) else type(event)
        if key not in self._streams:
            self._streams[key] = self._redactor.open_stream()
        if text := self._streams[key].feed(event.text):
            self._bus.publish(self._make_record(structs.replace(event, text=text)))

    def _make_record(self, event: Event) -> EventRecord:
        self._seq += 1
        return EventRecord(self._source, self._seq, time.time(), event)


def shown_spec(spec: RunSpec, name: str, agent: str, task: str) -> RunSpec:
    """Return the spec with these redacted texts, and without what only the child process may see."""
    return structs.replace(
        spec,
        name=name,
        agent=structs.replace(spec.agent, name=agent),
        task=task,
        prompt=task,
        history=(),
        functions=(),
        environment={},
        secrets={},
        callback=None,
        delegation=None,
        tool_servers=None,
        lineage=structs.replace(spec.lineage, ancestors=()),
    )


def _untrusted_texts(value: Struct) -> list[Any]:
    """Return the texts of others in a value, without our own field names, which could look like secrets."""
    texts: list[Any] = []
    for name in REDACTED_FIELDS.get(type(value), ()):
        content = getattr(value, name)
        for part in content if isinstance(content, tuple) else (content,):
            if isinstance(part, Struct):
                texts += _untrusted_texts(part)
            elif part:
                texts.append(part)
    return texts


SHOWN_DIGITS, ID_DIGITS = 16, 32
NO_AGENT = "default"


class PastRun(Struct, frozen=True, kw_only=True):
    """An ended run, as far as the host knows it."""

    name: str
    agent: str | None
    task: str
    cwd: str
    started: float
    """Seconds since the epoch."""
    events: Sequence[PersistedEvent]
    """The events after its start; the last is its end."""


async def restore_session(
    store: SessionStore, redactor: Redactor, call: CallContext, session: str, runs: Sequence[PastRun]
) -> bool:
    """Write the runs of a session to the store, oldest first, and return whether that was necessary.

    Nothing is written if the store has the session, or another one with the same first digits.
    """
    id_ = _full_id(session)
    if id_ is None or await store.find(id_[:SHORT_ID_LENGTH]):
        return False
    for number, run in enumerate(runs):
        spec = RunSpec(
            run=store.claim(id_) if number else id_,
            session=id_,
            name=run.name,
            toolset=call.toolset,
            agent=AgentProfile(name=run.agent or NO_AGENT),
            task=run.task,
            prompt=run.task,
            cwd=run.cwd,
            engine="",
            lineage=structs.replace(call.lineage, depth=call.lineage.depth + 1),
            resumes=number > 0,
        )
        await _write(store, redactor, spec, run)
    return bool(runs)


async def _write(store: SessionStore, redactor: Redactor, spec: RunSpec, run: PastRun) -> None:
    record = await store.open_record(spec)
    try:
        events = map(EventRedactor(redactor).redact, (RunQueued.of(spec), RunStarted(), *run.events))
        for seq, event in enumerate(events, 1):
            record.append(EventRecord(EventSource.of(spec), seq, run.started, event))
        await record.sync()
    finally:
        await record.release()


def _full_id(shown: str) -> str | None:
    """Return the id of 32 digits that a shown id stands for; the digits it lacks are derived from it."""
    found = parse_id_digits(shown) or ""
    if len(found) == SHOWN_DIGITS:
        found += f"8{sha256(found.encode()).hexdigest()}"  # the first of them is the variant of a UUID
    return found[:ID_DIGITS] if len(found) >= ID_DIGITS else None
