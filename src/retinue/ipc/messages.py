r"""What is said on a control socket: one JSON object per line, `{"type": …}`; all of it stands here.

    → {"type":"hello","v":1}
    ← {"type":"welcome","v":1,"pid":4711}
    → {"type":"watch","deltas":true}
    ← {"type":"live","runs":["…"]}              what has not ended; its past is in the store
    ← {"type":"event","event":{…}}              as it happens, a stamped event as everywhere; deltas may be left out
    ← {"type":"lagged"}                         too far behind: the last line
    → {"type":"cancel","run":"…"}
    ← {"type":"cancelled","run":"…","found":true,"failure":{…}}     once the run has ended
    → {"type":"steer","run":"…","text":"…"}
    ← {"type":"steered","run":"…"}              once its engine has it; else with "failure": nothing was said
    → {"type":"extend","run":"…","seconds":600}
    ← {"type":"extended","run":"…","timeout":1500}     in seconds, as it is now; else "failure"
    ← {"type":"declined","message":"…"}         to an order that is none, or cannot be carried out

A connection says hello, then gives orders one after the other; `watch` is its last. Changes are additive: readers
pass over fields and answers they do not know, and an order nobody knows is declined.

A run that may delegate says who it is, and has other orders:

    → {"type":"hello","v":1,"token":"…"}
    ← {"type":"welcome","v":1,"pid":4711}
    → {"type":"tools"}
    ← {"type":"tools","tools":[{"name":"spawn_subagent","description":"…","inputSchema":{…}}, …]}
    → {"type":"agents"}                         for engines that announce them by themselves
    ← {"type":"agents","agents":[{"name":"explorer","description":"…","body":"…","tools":["read", …]}, …]}
    → {"type":"call","tool":"spawn_subagent","call":"toolu_1","arguments":{…},"partial":true}
    ← {"type":"partial","result":{"content":[…],"details":{…}}}      while it goes on, where that was asked for
    ← {"type":"result","result":{"content":[…],"details":{…},"isError":true}}

What it says while a call goes on is not heard; closing the connection is how it stops the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord, from_line, to_line
from retinue.output.untrusted_text import complete_escapes

VERSION = 1
MAX_HELLO_BYTES = 64 * 2**10
"""Of the first line; whoever sends more is no friend."""
MAX_COMMAND_BYTES = 16 * 2**20
"""Of an order: the tasks of a call, and what is said to an agent, may be long."""
MAX_REPLY_BYTES = 256 * 2**20
"""Of an answer: an event may carry the whole text of a run."""


class HelloCommand(Struct, frozen=True, tag="hello"):
    v: int = VERSION
    token: str | None = None
    """Of a run that calls home."""


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
    call: str
    """The id of the tool call, as the run's own model knows it."""
    arguments: Any = None
    partial: bool = False
    """Whether partial results are wanted."""


Command = (
    HelloCommand | WatchCommand | CancelCommand | SteerCommand | ExtendCommand | ListTools | ListAgents | CallTool
)


class HelloReply(Struct, frozen=True, tag="welcome"):
    v: int
    pid: int


class LiveRunsMessage(Struct, frozen=True, tag="live"):
    runs: tuple[str, ...]
    """In the order they were begun."""


class EventMessage(Struct, frozen=True, tag="event"):
    event: Raw

    def decode_event(self) -> EventRecord:
        """The event.

        Raises:
            msgspec.MsgspecError: it is none that this version knows.
        """
        return from_line(bytes(self.event))


class CancelReply(Struct, frozen=True, tag="cancelled", omit_defaults=True):
    run: str
    found: bool
    """Whether there was such a run, not ended, to be stopped."""
    failure: Failure | None = None
    """How it ended; none if it had answered before it could be stopped."""


class SteerReply(Struct, frozen=True, tag="steered", omit_defaults=True):
    run: str
    failure: Failure | None = None
    """Why nothing was said to its agent."""


class ExtendReply(Struct, frozen=True, tag="extended", omit_defaults=True):
    run: str
    timeout: float | None = None
    """As it is now."""
    failure: Failure | None = None
    """Why its time is as it was."""


class SubscriberLagged(Struct, frozen=True, tag="lagged"):
    pass


class ErrorReply(Struct, frozen=True, tag="declined"):
    message: str


class ToolDescription(Struct, frozen=True, rename="camel"):
    """One tool, as a host registers it."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class ToolsReply(Struct, frozen=True, tag="tools"):
    tools: tuple[ToolDescription, ...]


class AgentDescription(Struct, frozen=True):
    """An agent that a run may delegate to, as far as another may know it: no persona, no memory (decision D9)."""

    name: str
    description: str
    body: str
    tools: tuple[str, ...] | None
    """In pi's names; None: those of its caller."""


class AgentsReply(Struct, frozen=True, tag="agents"):
    agents: tuple[AgentDescription, ...]


class PartialReply(Struct, frozen=True, tag="partial"):
    result: Mapping[str, Any]


class ToolResultReply(Struct, frozen=True, tag="result"):
    result: Mapping[str, Any]


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
    | PartialReply
    | ToolResultReply
)

_encode = msgspec.json.Encoder().encode
_decode_command: Callable[[bytes], Command] = msgspec.json.Decoder(Command).decode
_decode_reply: Callable[[bytes], Reply] = msgspec.json.Decoder(Reply).decode


def encode_line(message: Command | Reply) -> bytes:
    """One line of the wire, newline included."""
    return _encode(message) + b"\n"


def encode_event(stamped: EventRecord) -> bytes:
    """The line of an event; what `line(Happened(…))` would be, without encoding it twice."""
    return b'{"type":"event","event":%b}\n' % to_line(stamped)[:-1]


def decode_command(received: bytes) -> Command:
    """The order of a line.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    try:
        return _decode_command(received)
    except msgspec.DecodeError:
        if rb"\ud" not in received.lower():
            raise
        # A child in JavaScript may have cut an emoji in two.
        return _decode_command(complete_escapes(received.decode()).encode())


def decode_reply(received: bytes) -> Reply | None:
    """The answer of a line; None for one that only a later version knows."""
    try:
        return _decode_reply(received)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
