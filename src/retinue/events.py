"""What happens in a run: one typed stream from every engine, in this order.

    run_queued                      accepted, durable
    └─ run_started                  has a slot
       ├─ attempt_started           first | retry | fallback | finalize
       │  ├─ thinking_delta, text_delta, tool_delta      live only, never stored
       │  ├─ thinking, text                              whole blocks
       │  ├─ tool_called → tool_returned
       │  ├─ message_ended                               usage, stop reason
       │  ├─ steered                                     what others said to the agent while it worked
       │  ├─ model_changed, notice, finalized, deadline_extended
       │  └─ process_ended                               engines with a process
       └─ run_ended                 always, once, last, over all attempts

Engines emit bare events; `Stamped` adds whose they are. On the wire a stamped event is one JSON object per
line: `{v, type, seq, time, run, session, root, parentRun, parentToolUseId, depth, …}`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec import Struct, field, structs

from retinue.results import Actual, AnswerKind, Finalization, ProcessEnd, RunResult
from retinue.types import Args, Failure, Lineage, RunSpec, Usage

VERSION = 1
"""Of the wire format. Changes are additive; readers ignore what they do not know."""

DEEPEST = 100
"""Of nested arguments; a model that nests deeper wants to break its reader."""

StopReason = Literal["stop", "tool_use", "length", "error", "aborted"]


class RunQueued(Struct, frozen=True, kw_only=True, tag="run_queued", rename="camel", omit_defaults=True):
    """A run was accepted. Holds what listing and continuing it need."""

    name: str
    agent: str
    task: str
    cwd: str
    surface: str
    engine: str = ""
    model: str | None = None
    timeout: float = 0.0
    tools: tuple[str, ...] = ()
    resumes: bool = False
    layer: str = ""
    digest: str = ""
    provider: str | None = None
    thinking: str | None = None
    vault: str | None = None
    """Where its beginning and its end are told, too."""

    @classmethod
    def of(cls, spec: RunSpec) -> RunQueued:
        return cls(
            name=spec.name,
            agent=spec.agent.name,
            task=spec.task,
            cwd=spec.cwd,
            surface=spec.surface,
            engine=spec.engine,
            model=spec.model,
            timeout=spec.limits.timeout,
            tools=spec.grant.tools,
            resumes=spec.resumes,
            layer=spec.agent.layer,
            digest=spec.agent.digest,
            provider=spec.agent.provider,
            thinking=spec.agent.thinking,
            vault=spec.vault,
        )


class RunStarted(Struct, frozen=True, tag="run_started", rename="camel"):
    """The run has a slot; its time counts from here."""


class AttemptStarted(Struct, frozen=True, tag="attempt_started", rename="camel", omit_defaults=True):
    number: int
    reason: str
    model: str | None = None


class TextDelta(Struct, frozen=True, tag="text_delta", rename="camel"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta", rename="camel"):
    text: str


class ToolDelta(Struct, frozen=True, tag="tool_delta", rename="camel"):
    """What a running tool has printed since the last one."""

    call: str
    text: str


class OutputCounted(Struct, frozen=True, tag="output_counted", rename="camel", omit_defaults=True):
    """Bytes a child wrote since the last count; seen by the output guard alone."""

    stdout: int = 0
    """Of lines worth keeping."""
    stderr: int = 0
    raw: int = 0
    dropped: int = 0
    """Of lines replaced by a stub."""


class Thinking(Struct, frozen=True, tag="thinking", rename="camel"):
    text: str


class Text(Struct, frozen=True, tag="text", rename="camel"):
    """One whole text block of an assistant message."""

    text: str


class ToolCalled(Struct, frozen=True, tag="tool_called", rename="camel"):
    call: str
    name: str
    args: Args


class ToolReturned(Struct, frozen=True, tag="tool_returned", rename="camel", omit_defaults=True):
    call: str
    name: str
    text: str = ""
    is_error: bool = False


class MessageEnded(Struct, frozen=True, kw_only=True, tag="message_ended", rename="camel", omit_defaults=True):
    """An assistant message is complete; its blocks came before."""

    role: Literal["assistant"] = "assistant"
    stop_reason: StopReason
    model: str | None = None
    usage: Usage = Usage()
    error: str | None = None
    """The provider's words, where the stop reason is `error`."""

    @property
    def turn(self) -> Usage:
        """Return its usage as that of one turn; a request that the provider failed is none."""
        return structs.replace(self.usage, turns=0 if self.stop_reason == "error" else 1)


class ModelChanged(Struct, frozen=True, tag="model_changed", rename="camel"):
    """The next model of `fallback_models` takes over."""

    before: str | None
    after: str
    reason: str


CONTINUED = "continued"
"""The code of the notice that the next message goes on where the last one was cut off: both are one answer."""


class Notice(Struct, frozen=True, tag="notice", rename="camel"):
    """Something a person should know that did not end the run."""

    code: str
    message: str


class Steered(Struct, frozen=True, tag="steered", rename="camel"):
    """The agent was given a text while it worked: its model reads it next."""

    text: str


class DeadlineExtended(Struct, frozen=True, tag="deadline_extended", rename="camel"):
    """Someone gave the run more time."""

    seconds: float
    timeout: float
    """What its timeout is now."""


class Finalized(Struct, frozen=True, tag="finalized", rename="camel"):
    """The agent called its finalize tool with valid arguments."""

    finalization: Finalization


class ProcessEnded(Struct, frozen=True, tag="process_ended", rename="camel"):
    end: ProcessEnd


class NativeSession(Struct, frozen=True, tag="native_session", rename="camel"):
    """The engine's own session, for continuing it."""

    session: str = field(name="nativeSession")
    """An id or a path, as the engine wants it back. On the wire `session` is ours."""


class RunEnded(Struct, frozen=True, kw_only=True, tag="run_ended", rename="camel", omit_defaults=True):
    """The last event of a run, over all its attempts."""

    text: str = ""
    answer: AnswerKind = AnswerKind.NONE
    failure: Failure | None = None
    exit_code: int = 0
    usage: Usage = Usage()
    elapsed: float = 0.0
    finalized: Finalization | None = None
    actual: Actual = Actual()

    @classmethod
    def of(cls, result: RunResult) -> RunEnded:
        return cls(
            text=result.text,
            answer=result.answer,
            failure=result.failure,
            exit_code=result.exit_code,
            usage=result.usage,
            elapsed=result.elapsed,
            finalized=result.finalized,
            actual=result.actual,
        )


Live = TextDelta | ThinkingDelta | ToolDelta | OutputCounted
"""Events that are shown or counted and never stored."""

Durable = (
    RunQueued
    | RunStarted
    | AttemptStarted
    | Thinking
    | Text
    | ToolCalled
    | ToolReturned
    | MessageEnded
    | ModelChanged
    | Notice
    | Steered
    | DeadlineExtended
    | Finalized
    | ProcessEnded
    | NativeSession
    | RunEnded
)
Event = Live | Durable

LIVE = (TextDelta, ThinkingDelta, ToolDelta, OutputCounted)
UNSHOWN_NOTICES = frozenset({"missing_tools"})
"""Codes of notices that belong into the report of a run and are no news on a screen."""
TRANSITIONS = (RunQueued, RunStarted, Finalized, RunEnded)
"""Synced to disk before anyone is told of them."""


class Origin(Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose event it is: the same for every event of a run."""

    run: str
    session: str
    root: str
    parent_run: str | None = None
    parent_tool_use_id: str
    depth: int = 1

    @classmethod
    def of(cls, spec: RunSpec) -> Origin:
        line: Lineage = spec.lineage
        return cls(
            run=spec.run,
            session=spec.session,
            root=line.root,
            parent_run=line.parent_run,
            parent_tool_use_id=line.parent_call,
            depth=line.depth,
        )


class Stamped(Struct, frozen=True):
    """An event with its place in its run: order is by `seq`, never by `time`."""

    origin: Origin
    seq: int
    time: float
    """Wall clock, seconds since the epoch."""
    event: Event


class _Head(Struct):
    """What stands before the event on a line."""

    v: int
    seq: int
    time: float


class _Envelope(Origin, frozen=True, kw_only=True, rename="camel"):
    v: int
    seq: int
    time: float


_encode = msgspec.json.Encoder().encode


class _Readers:
    """Decoders, made when the first line is read: most programs only write."""

    @cached_property
    def event(self) -> Callable[[bytes], Event]:
        return msgspec.json.Decoder(Event).decode

    @cached_property
    def envelope(self) -> Callable[[bytes], _Envelope]:
        return msgspec.json.Decoder(_Envelope).decode


_readers = _Readers()


def to_line(stamped: Stamped) -> bytes:
    """The event as one line of JSON, newline included. What JSON cannot say is replaced, no event is lost to it."""
    try:
        return _line(stamped)
    except (UnicodeEncodeError, TypeError, RecursionError):
        return _line(_sayable(stamped))


def _line(stamped: Stamped) -> bytes:
    # Three encoded objects joined into one: cheaper than a flat struct of every event's fields.
    head = _encode(_Head(VERSION, stamped.seq, stamped.time))
    return b"%b,%b,%b\n" % (head[:-1], _encode(stamped.origin)[1:-1], _encode(stamped.event)[1:])


def _sayable(stamped: Stamped) -> Stamped:
    event = stamped.event
    if isinstance(event, ToolCalled):
        event = structs.replace(event, args=_plain(event.args))
    origin = msgspec.convert(_plain(msgspec.to_builtins(stamped.origin)), Origin)
    return Stamped(origin, stamped.seq, stamped.time, msgspec.convert(_plain(msgspec.to_builtins(event)), Event))


def _plain(value: Any, depth: int = 0) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case None | bool() | int() | float():
            return value
        case _ if depth > DEEPEST:
            return "…"
        case dict():
            return {_plain(str(key)): _plain(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, depth + 1) for item in value]
        case _:
            return _plain(repr(value))


def from_line(line: bytes) -> Stamped:
    """The event of one line.

    Raises:
        msgspec.MsgspecError: the line is not an event of this version.
    """
    # Our own lines have the event last: each half is read once. A quote inside a string would be escaped, so the cut
    # cannot be within one. Lines in another order are read twice.
    cut = line.find(b',"type":"')
    head, event = (line[:cut] + b"}", b"{" + line[cut + 1 :]) if cut > 0 else (line, line)
    try:
        envelope = _readers.envelope(head)
    except msgspec.MsgspecError:
        head, event = line, line
        envelope = _readers.envelope(head)
    if envelope.v != VERSION:
        raise msgspec.ValidationError(f"version {envelope.v} of the event format; this is version {VERSION}")
    return Stamped(_origin(envelope), envelope.seq, envelope.time, _readers.event(event))


def _origin(envelope: _Envelope) -> Origin:
    return Origin(
        run=envelope.run,
        session=envelope.session,
        root=envelope.root,
        parent_run=envelope.parent_run,
        parent_tool_use_id=envelope.parent_tool_use_id,
        depth=envelope.depth,
    )


def schema() -> dict[str, Any]:
    """JSON schema of one line: the envelope, and one of the events beside it."""
    (envelope, event), shared = msgspec.json.schema_components([_Envelope, Event], ref_template="#/$defs/{name}")
    return {"allOf": [envelope, event], "$defs": shared}
