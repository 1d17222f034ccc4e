r"""The messages between processes: one JSON object per line, in UTF-8, its `type` first.

On a control socket, each process with runs serves the others:

    → {"type":"hello","v":1}
    ← {"type":"welcome","v":1,"pid":4711}
    → {"type":"watch","deltas":true}
    ← {"type":"live","runs":["…"]}              the runs that have not ended; their past is in the store
    ← {"type":"event","event":{…}}              each event record; a slow subscriber misses deltas
    ← {"type":"lagged"}                         too far behind: the last line
    → {"type":"cancel","run":"…"}
    ← {"type":"cancelled","run":"…","found":true,"failure":{…}}     once the run has ended
    → {"type":"steer","run":"…","text":"…"}
    ← {"type":"steered","run":"…"}              once the engine has accepted it; else with "failure"
    → {"type":"extend","run":"…","seconds":600}
    ← {"type":"extended","run":"…","timeout":1500}     the new timeout in seconds; else "failure"
    ← {"type":"declined","message":"…"}         to an unknown or impossible command

A connection sends hello, then one command after the other; `watch` is its last. Changes are additive: readers ignore
fields and replies they do not know, and an unknown command is declined.

A run that may delegate identifies itself by its token and has other commands. Lines that it sends while a call is in
progress are ignored; closing the connection cancels the call.

    → {"type":"hello","v":1,"token":"…"}
    ← {"type":"welcome","v":1,"pid":4711}
    → {"type":"tools"}
    ← {"type":"tools","tools":[{"name":"spawn_subagent","description":"…","inputSchema":{…}}, …]}
    → {"type":"agents"}                         for engines that announce agents themselves
    ← {"type":"agents","agents":[{"name":"explorer","description":"…","body":"…","tools":["read", …]}, …]}
    → {"type":"call","tool":"spawn_subagent","call":"toolu_1","arguments":{…},"partial":true}
    ← {"type":"partial","result":{"content":[…],"details":{…}}}      during the call, if requested
    ← {"type":"result","result":{"content":[…],"details":{…},"isError":true}}

On the stdio of `retinue bridge`, an extension of a host makes many calls at once, each with an `id`. The tables in
docs/hosts.md describe these messages. Every `tools` and every `call` is answered once. If the extension closes stdin
without a `shutdown`, its conversation ended unexpectedly: all runs are stopped as `interrupted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord, from_line, to_line
from retinue.model.runs import AgentDescription, ToolDescription
from retinue.output.json_text import encode_json
from retinue.output.untrusted_text import complete_escapes

VERSION = 1
BRIDGE_VERSION = 1
MAX_HELLO_BYTES = 64 * 2**10
"""Length of the first line; a client that sends more is disconnected."""
MAX_COMMAND_BYTES = 16 * 2**20
"""Length of a command: the tasks of a call and steering texts may be long."""
MAX_REPLY_BYTES = 256 * 2**20
"""Length of a reply: an event may contain the whole text of a run."""


# -- commands on a control socket ------------------------------------------------------------------


class HelloCommand(Struct, frozen=True, tag="hello"):
    v: int = VERSION
    token: str | None = None
    """Token of a run that delegates; None for any other client."""


class WatchCommand(Struct, frozen=True, tag="watch"):
    deltas: bool = True


class CancelCommand(Struct, frozen=True, tag="cancel"):
    run: str


class SteerCommand(Struct, frozen=True, tag="steer"):
    run: str
    text: str


class ExtendCommand(Struct, frozen=True, tag="extend"):
    run: str
    seconds: float


class ListTools(Struct, frozen=True, tag="tools"):
    pass


class ListAgents(Struct, frozen=True, tag="agents"):
    pass


class CallTool(Struct, frozen=True, tag="call"):
    tool: str
    tool_call: str = msgspec.field(name="call")
    """Id of the tool call in the conversation of the run's model."""
    arguments: Any = None
    partials: bool = msgspec.field(name="partial", default=False)


class CheckCall(Struct, frozen=True, tag="check"):
    """Ask the gate of a run about a tool call that its process is about to execute."""

    tool: str
    tool_call: str = msgspec.field(name="call")
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


Command = (
    HelloCommand
    | WatchCommand
    | CancelCommand
    | SteerCommand
    | ExtendCommand
    | ListTools
    | ListAgents
    | CallTool
    | CheckCall
)


# -- requests on the stdio of a bridge -------------------------------------------------------------


class SessionData(Struct, frozen=True, kw_only=True, rename="camel"):
    """The record that a host keeps of one run; the names are those of pi's subagent extensions."""

    session_id: str
    task_name: str
    prompt: str
    status: Literal["running", "completed", "error"]
    cwd: str = ""
    profile_name: str | None = None
    exit_code: int | None = None
    """None while it runs."""
    model: str | None = None
    stop_reason: str | None = None
    error_message: str | None = None
    started_at: float = 0
    """Milliseconds since the epoch."""
    messages: tuple[Any, ...] = ()


class ListToolsRequest(Struct, frozen=True, kw_only=True, tag="tools"):
    id: str
    cwd: str | None = None


class CallToolRequest(Struct, frozen=True, kw_only=True, tag="call", rename="camel"):
    id: str
    tool: str
    arguments: Any
    cwd: str | None = None
    tool_call: str | None = None
    host_tools: tuple[str, ...] | None = None
    partials: bool = False


class CancelRequest(Struct, frozen=True, kw_only=True, tag="cancel"):
    id: str


class RestoreRequest(Struct, frozen=True, kw_only=True, tag="restore"):
    sessions: tuple[SessionData, ...]


class ShutdownRequest(Struct, frozen=True, tag="shutdown"):
    pass


BridgeRequest = ListToolsRequest | CallToolRequest | CancelRequest | RestoreRequest | ShutdownRequest


# -- messages of both ------------------------------------------------------------------------------


DrawnLine = Sequence[tuple[str, str]]
"""Pieces of text, each with the name of its style."""
StyledRows = Sequence[DrawnLine]


class BodyRange(Struct, frozen=True, kw_only=True):
    """The range of a view's lines that one run wrote."""

    start: int
    end: int
    earlier: int
    """Lines before them that only the expanded view has."""


class RenderedView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The runs of a call as a screen of any width shows them."""

    lines: StyledRows
    expanded: StyledRows
    bodies: Sequence[BodyRange]
    max_lines: int
    """Rows that the body of one run may take."""


class ToolsReply(Struct, frozen=True, kw_only=True, tag="tools"):
    id: str | UnsetType = UNSET
    tools: tuple[ToolDescription, ...]
    policy: str | UnsetType = UNSET
    """When to delegate and to whom, for the host's model; only where the user enabled it."""


class PartialReply(Struct, frozen=True, kw_only=True, tag="partial"):
    id: str | UnsetType = UNSET
    result: Mapping[str, Any]
    view: RenderedView | UnsetType = UNSET


class ToolResultReply(Struct, frozen=True, kw_only=True, tag="result"):
    id: str | UnsetType = UNSET
    result: Mapping[str, Any]
    view: RenderedView | UnsetType = UNSET


# -- replies on a control socket -------------------------------------------------------------------


class HelloReply(Struct, frozen=True, tag="welcome"):
    v: int
    pid: int


class LiveRunsMessage(Struct, frozen=True, tag="live"):
    runs: tuple[str, ...]
    """In the order in which they were queued."""


class EventMessage(Struct, frozen=True, tag="event"):
    event: Raw

    def decode_event(self) -> EventRecord:
        """Return the event record.

        Raises:
            msgspec.MsgspecError: a later version wrote it.
        """
        return from_line(bytes(self.event))


class CancelReply(Struct, frozen=True, tag="cancelled", omit_defaults=True):
    run: str
    found: bool
    """The run existed and had not ended."""
    failure: Failure | None = None
    """How it ended; None if it had answered before it could be stopped."""


class SteerReply(Struct, frozen=True, tag="steered", omit_defaults=True):
    run: str
    failure: Failure | None = None
    """Why the text was not delivered."""


class ExtendReply(Struct, frozen=True, tag="extended", omit_defaults=True):
    run: str
    timeout: float | None = None
    """The new timeout in seconds."""
    failure: Failure | None = None
    """Why the timeout was not changed."""


class SubscriberLagged(Struct, frozen=True, tag="lagged"):
    pass


class ErrorReply(Struct, frozen=True, tag="declined"):
    message: str


class DecisionReply(Struct, frozen=True, kw_only=True, tag="decision", rename="camel", omit_defaults=True):
    """What becomes of a tool call."""

    denied: str | None = None
    """Why it must not be executed, for the model."""
    arguments: dict[str, Any] | None = None
    """The arguments to execute it with instead of its own."""
    context: str = ""
    """What the model reads after its result."""


class AgentsReply(Struct, frozen=True, tag="agents"):
    agents: tuple[AgentDescription, ...]


Reply = (
    HelloReply
    | LiveRunsMessage
    | EventMessage
    | CancelReply
    | SteerReply
    | ExtendReply
    | SubscriberLagged
    | ErrorReply
    | ToolsReply
    | AgentsReply
    | DecisionReply
    | PartialReply
    | ToolResultReply
)


# -- messages of a bridge --------------------------------------------------------------------------


class BridgeHello(Struct, frozen=True, kw_only=True, tag="hello", rename="camel"):
    version: str
    surface: str
    max_line_bytes: int
    protocol: int = BRIDGE_VERSION


class SessionStartedMessage(Struct, frozen=True, kw_only=True, tag="started"):
    id: str
    session: SessionData


class SessionEndedMessage(Struct, frozen=True, kw_only=True, tag="ended"):
    id: str
    session: SessionData


class RefusalMessage(Struct, frozen=True, kw_only=True, tag="refused"):
    message: str
    id: str | UnsetType = UNSET


BridgeMessage = (
    BridgeHello
    | ToolsReply
    | PartialReply
    | SessionStartedMessage
    | SessionEndedMessage
    | ToolResultReply
    | RefusalMessage
)


# -- lines -----------------------------------------------------------------------------------------

_decode_command: Callable[[bytes], Command] = msgspec.json.Decoder(Command).decode
_decode_reply: Callable[[bytes], Reply] = msgspec.json.Decoder(Reply).decode
_decode_request: Callable[[str], BridgeRequest] = msgspec.json.Decoder(BridgeRequest).decode


def encode_line(message: Command | Reply | BridgeMessage) -> bytes:
    """Return the line of a message, newline included; raises as `encode_json`."""
    return encode_json(message) + b"\n"


def encode_event(record: EventRecord) -> bytes:
    """Return the line of an `EventMessage` without encoding the event twice."""
    return b'{"type":"event","event":%b}\n' % to_line(record)[:-1]


def decode_command(line: bytes) -> Command:
    """Return the command in a line of a control socket.

    Raises:
        msgspec.MsgspecError: the line has no known command.
    """
    try:
        return _decode_command(line)
    except msgspec.DecodeError:
        if rb"\ud" not in line.lower():
            raise
        # A child in JavaScript may have cut an emoji in two.
        return _decode_command(complete_escapes(line.decode()).encode())


def decode_reply(line: bytes) -> Reply | None:
    """Return the reply in a line of a control socket; None if only a later version knows it."""
    try:
        return _decode_reply(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def decode_request(line: str) -> BridgeRequest | RefusalMessage:
    """Return the request in a line of an extension, or the refusal to send if there is none."""
    try:
        return _decode_request(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return RefusalMessage(message=f"Invalid request: {error}. Nothing was changed.", id=_find_id(line))


class _MessageWithId(Struct):
    id: str | UnsetType = UNSET


def _find_id(line: str) -> str | UnsetType:
    """Return the id of a line that is otherwise not understood."""
    try:
        return msgspec.json.decode(line, type=_MessageWithId).id
    except (msgspec.DecodeError, RecursionError):
        return UNSET
