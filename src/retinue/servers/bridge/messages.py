"""What an extension and Retinue say to each other: one JSON object per line, in UTF-8, its `type` first.

| the extension says | with | which |
|---|---|---|
| `tools` | `id`, `cwd?` | asks for the tools that may be registered there |
| `call` | `id`, `tool`, `arguments`, `cwd?`, `toolCall?`, `hostTools?`, `partials?` | calls a tool; many at once |
| `cancel` | `id` | stops the runs of a call; its result tells what they had |
| `restore` | `sessions`: the runs of one session, as `ended` sent them | restores a session that Retinue lacks |
| `shutdown` | | stops all calls, answers them and ends the bridge |

| Retinue says | with | which |
|---|---|---|
| `hello` | `protocol`, `version`, `surface`, `maxLineBytes` | comes first, once |
| `tools` | `id`, `tools`: a list of `name`, `description`, `inputSchema`; `policy?` | answers `tools` |
| `partial` | `id`, `result`: `content`, `details`; `view?` | tells of a call while it runs; slow readers miss some |
| `started` | `id`, `session`: its data so far, to be stored by the host | a run of a call has been accepted |
| `ended` | `id`, `session`: its data, to be stored by the host | a run of a call has ended |
| `result` | `id`, `result`: `content`, `details`, `isError?`; `view?` | answers `call` |
| `refused` | `id?`, `message` | answers what means nothing; nothing was done |

A `view` draws the runs of a call: `lines`, and `expanded` for whoever wants to see all; a line is a list of `[text,
style]`, plain text in the styles `name`, `muted`, `running`, `good`, `error`, `warning` or none. Lines are as long as
they were written: the host wraps or cuts them. `bodies` has, for each run, which of the `lines` are what it said and
did (`start` to before `end`) and how many `earlier` ones only `expanded` has; a host that wraps shows the last
`maxLines` rows of each.

Every `tools` and every `call` is answered once, whatever happens. `cwd` is where the call is made from, the bridge's
own directory by default; `toolCall` the host's own id of the call, under which its events are told; `hostTools` the
tools that are active in the host; `policy` what its model may be told of when to delegate. Fields that mean nothing
are ignored; fields and types may be added, never changed: ignore messages of a type you do not know. If the extension
closes its end without a `shutdown`, the conversation ended unexpectedly: all that runs is stopped as `interrupted`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from retinue.output.untrusted_text import map_strings, replace_surrogates
from retinue.servers.bridge.session_data import SessionData
from retinue.toolsets.base import JsonObject, ToolDefinition

PROTOCOL = 1


class ListToolsRequest(Struct, frozen=True, kw_only=True, tag="tools", rename="camel"):
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


class Restore(Struct, frozen=True, kw_only=True, tag="restore"):
    sessions: tuple[SessionData, ...]


class Shutdown(Struct, frozen=True, tag="shutdown"):
    pass


BridgeRequest = ListToolsRequest | CallToolRequest | CancelRequest | Restore | Shutdown


class BridgeHello(Struct, frozen=True, kw_only=True, tag="hello", rename="camel"):
    version: str
    surface: str
    max_line_bytes: int
    protocol: int = PROTOCOL


DrawnLine = Sequence[tuple[str, str]]
"""A line of text in styles."""
StyledRows = Sequence[DrawnLine]


class ToolListMessage(Struct, frozen=True, kw_only=True, tag="tools"):
    id: str
    tools: Sequence[JsonObject]
    policy: str | UnsetType = UNSET
    """When to delegate and to whom, for the host's model; only where the user wants it told."""


class Body(Struct, frozen=True, kw_only=True):
    """Where in the lines of a view one run's own lines are."""

    start: int
    end: int
    earlier: int
    """Lines before them that only the expanded view has."""


class RenderedView(Struct, frozen=True, kw_only=True, rename="camel"):
    """The runs of a call as a screen of any width shows them."""

    lines: StyledRows
    expanded: StyledRows
    bodies: Sequence[Body]
    max_lines: int
    """Rows that the body of one run may take."""


class PartialMessage(Struct, frozen=True, kw_only=True, tag="partial"):
    id: str
    result: JsonObject
    view: RenderedView | UnsetType = UNSET


class Started(Struct, frozen=True, kw_only=True, tag="started"):
    id: str
    session: SessionData


class SessionEndedMessage(Struct, frozen=True, kw_only=True, tag="ended"):
    id: str
    session: SessionData


class ResultMessage(Struct, frozen=True, kw_only=True, tag="result"):
    id: str
    result: JsonObject
    view: RenderedView | UnsetType = UNSET


class RefusalMessage(Struct, frozen=True, kw_only=True, tag="refused"):
    message: str
    id: str | UnsetType = UNSET


BridgeMessage = (
    BridgeHello | ToolListMessage | PartialMessage | Started | SessionEndedMessage | ResultMessage | RefusalMessage
)


def decode_message(line: str) -> BridgeRequest | RefusalMessage:
    """What a line asks for; if nothing, the answer to it."""
    try:
        return _REQUEST_DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        return RefusalMessage(message=f"The line cannot be understood: {error}. Nothing was done.", id=_find_id(line))


def encode_message(message: BridgeMessage) -> str:
    """The line that says it."""
    try:
        return msgspec.json.encode(message).decode() + "\n"
    except UnicodeEncodeError:  # a name or path that is no text: broken characters are better than no answer
        return msgspec.json.encode(map_strings(msgspec.to_builtins(message), replace_surrogates)).decode() + "\n"


def make_tool_list(id_: str, tools: Sequence[ToolDefinition], policy: str | None) -> ToolListMessage:
    descriptions = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema} for tool in tools
    ]
    return ToolListMessage(id=id_, tools=descriptions, policy=policy or UNSET)


_REQUEST_DECODER: msgspec.json.Decoder[BridgeRequest] = msgspec.json.Decoder(BridgeRequest)


class _MessageWithId(Struct):
    id: str | UnsetType = UNSET


def _find_id(line: str) -> str | UnsetType:
    """The id in a line of which the rest means nothing, if it has one."""
    try:
        return msgspec.json.decode(line, type=_MessageWithId).id
    except (msgspec.DecodeError, RecursionError):
        return UNSET
