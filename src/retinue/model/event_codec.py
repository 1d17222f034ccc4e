"""Encode events as JSON lines, also as those of the `nested` toolset's log; decode them; write their schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct, structs

from retinue.model.events import Event, RunEnded, RunQueued, ToolCalled
from retinue.model.json_text import escape_json
from retinue.model.runs import RunSpec
from retinue.model.tasks import Lineage

VERSION = 1
"""Version of the wire format. Changes are additive; readers ignore unknown fields."""

MAX_NESTING = 100
"""Deepest nesting of arguments: deeper nesting would only break readers."""


class EventSource(Struct, frozen=True, kw_only=True, rename="camel"):
    """The run of an event: the same for every event of a run."""

    run: str
    session: str
    root: str
    parent_run: str | None = None
    parent_tool_use_id: str
    depth: int = 1

    @classmethod
    def of(cls, spec: RunSpec) -> EventSource:
        lineage: Lineage = spec.lineage
        return cls(
            run=spec.run,
            session=spec.session,
            root=lineage.root,
            parent_run=lineage.parent_run,
            parent_tool_use_id=lineage.parent_call,
            depth=lineage.depth,
        )


class EventRecord(Struct, frozen=True):
    """An event with its run and its number in the run: order is by `seq`, never by `time`."""

    origin: EventSource
    seq: int
    time: float
    """Wall clock, seconds since the epoch."""
    event: Event


class _EventHeader(Struct):
    """The fields before the event on a line."""

    v: int
    seq: int
    time: float


class _Envelope(EventSource, frozen=True, kw_only=True, rename="camel"):
    v: int
    seq: int
    time: float


_encode = msgspec.json.Encoder().encode


class _LineDecoders:
    """Decoders, made when the first line is read: most programs only write."""

    @cached_property
    def event(self) -> Callable[[bytes], Event]:
        return msgspec.json.Decoder(Event).decode

    @cached_property
    def envelope(self) -> Callable[[bytes], _Envelope]:
        return msgspec.json.Decoder(_Envelope).decode


_decoders = _LineDecoders()


def to_line(stamped: EventRecord) -> bytes:
    """Return the event as one line of JSON, newline included. Values that JSON lacks are replaced."""
    try:
        return _encode_line(stamped)
    except (UnicodeEncodeError, TypeError, RecursionError):
        return _encode_line(_json_safe(stamped))


def _encode_line(stamped: EventRecord) -> bytes:
    # Three encoded objects joined into one: cheaper than a flat struct of every event's fields.
    head = _encode(_EventHeader(VERSION, stamped.seq, stamped.time))
    return escape_json(b"%b,%b,%b\n" % (head[:-1], _encode(stamped.origin)[1:-1], _encode(stamped.event)[1:]))


def _json_safe(stamped: EventRecord) -> EventRecord:
    event = stamped.event
    if isinstance(event, ToolCalled):
        event = structs.replace(event, args=_to_json_value(event.args))
    origin = msgspec.convert(_to_json_value(msgspec.to_builtins(stamped.origin)), EventSource)
    return EventRecord(
        origin, stamped.seq, stamped.time, msgspec.convert(_to_json_value(msgspec.to_builtins(event)), Event)
    )


def _to_json_value(value: Any, depth: int = 0) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case None | bool() | int() | float():
            return value
        case _ if depth > MAX_NESTING:
            return "…"
        case dict():
            return {_to_json_value(str(key)): _to_json_value(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_to_json_value(item, depth + 1) for item in value]
        case _:
            return _to_json_value(repr(value))


def from_line(line: bytes) -> EventRecord:
    """Return the event of one line.

    Raises:
        msgspec.MsgspecError: the line is not an event of this version.
    """
    # Our own lines have the event last: each half is read once. A quote inside a string would be escaped, so the cut
    # cannot be within one. Lines in another order are read twice.
    cut = line.find(b',"type":"')
    head, event = (line[:cut] + b"}", b"{" + line[cut + 1 :]) if cut > 0 else (line, line)
    try:
        envelope = _decoders.envelope(head)
    except msgspec.MsgspecError:
        head, event = line, line
        envelope = _decoders.envelope(head)
    if envelope.v != VERSION:
        raise msgspec.ValidationError(f"version {envelope.v} of the event format; this is version {VERSION}")
    return EventRecord(_event_source(envelope), envelope.seq, envelope.time, _decoders.event(event))


def _event_source(envelope: _Envelope) -> EventSource:
    return EventSource(
        run=envelope.run,
        session=envelope.session,
        root=envelope.root,
        parent_run=envelope.parent_run,
        parent_tool_use_id=envelope.parent_tool_use_id,
        depth=envelope.depth,
    )


def event_schema() -> dict[str, Any]:
    """Return the JSON schema of one line: the envelope with one of the events."""
    (envelope, event), shared = msgspec.json.schema_components([_Envelope, Event], ref_template="#/$defs/{name}")
    return {"allOf": [envelope, event], "$defs": shared}


class SubagentStart(Struct, frozen=True, kw_only=True, tag_field="type", tag="subagentStart", rename="camel"):
    """A run was accepted."""

    subagent_id: str
    parent_tool_use_id: str
    """Id of the tool call that started the run, at every depth."""
    agent: str
    prompt: str
    """The task as the caller gave it."""
    root_conversation_id: str
    """Id of the root conversation, not of the parent run."""


class SubagentComplete(Struct, frozen=True, kw_only=True, tag_field="type", tag="subagentComplete", rename="camel"):
    """The run ended, after all its attempts."""

    subagent_id: str
    parent_tool_use_id: str
    result: str
    """The answer; of a failed run the failure message and, below it, the partial answer."""
    is_error: bool


SubagentEvent = SubagentStart | SubagentComplete


def to_subagent_event(record: EventRecord) -> SubagentEvent | None:
    """Return the event of the conversation log; None for events that the log does not have."""
    match record.event:
        case RunQueued() as queued:
            return _make_start(record.origin, queued)
        case RunEnded() as ended:
            return _make_complete(record.origin, ended)
        case _:
            return None


def to_subagent_line(record: EventRecord) -> bytes | None:
    """Return the event of the conversation log as one JSON line, newline included."""
    event = to_subagent_event(record)
    return None if event is None else escape_json(_encode(event)) + b"\n"


def _make_start(origin: EventSource, queued: RunQueued) -> SubagentStart:
    return SubagentStart(
        subagent_id=origin.run,
        parent_tool_use_id=origin.parent_tool_use_id,
        agent=queued.agent,
        prompt=queued.task,
        root_conversation_id=origin.root,
    )


def _make_complete(origin: EventSource, ended: RunEnded) -> SubagentComplete:
    failure = ended.failure
    result = ended.text
    if failure:
        has_answer = ended.answer.is_text
        result = f"{failure.message}\n\n{ended.text}" if has_answer and ended.text else failure.message
    return SubagentComplete(
        subagent_id=origin.run,
        parent_tool_use_id=origin.parent_tool_use_id,
        result=result,
        is_error=failure is not None,
    )
