"""How an engine of this process calls home: by the socket any child uses, so that there is one way in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from retinue.engines.toolbox import RemoteTool, ToolOutcome, ToolSchema
from retinue.model.runs import CallbackAddress, ToolArguments, ToolUse
from retinue.output.truncate import read_on, truncate_text
from retinue.output.untrusted_text import map_strings, replace_surrogates
from retinue.support.sockets import CancelSafeReceiveStream

MAX_ANSWER_BYTES = 256 * 2**20
ID_DIGITS = 8
"""Of a session's id, as users see it: they name the session."""
RUN_ENDED = "There was no answer: the run is over."


class DelegateAgent(Struct, frozen=True):
    """An agent that a run may delegate to, as far as another may know it."""

    name: str
    description: str
    body: str
    tools: tuple[str, ...] | None = None
    """In pi's names; None: those of its caller."""


async def list_tools(callback: CallbackAddress) -> tuple[RemoteTool, ...]:
    """The tools to delegate with; none where home cannot be reached."""
    reply = await _request(callback, {"type": "tools"})
    return tuple(
        RemoteTool(
            ToolSchema(tool["name"], tool["description"], tool["inputSchema"]),
            partial(call_tool, callback),
        )
        for tool in reply.get("tools", ())
    )


async def list_agents(callback: CallbackAddress) -> tuple[DelegateAgent, ...]:
    """Whom a run may delegate to, for engines that announce them; nobody where home cannot be reached."""
    reply = await _request(callback, {"type": "agents"})
    return msgspec.convert(reply.get("agents", ()), tuple[DelegateAgent, ...])


async def call_tool(callback: CallbackAddress, use: ToolUse) -> ToolOutcome:
    """What came of a tool call. Whatever goes wrong is an outcome; cancelling it ends what it asked for."""
    request = {"type": "call", "tool": use.name, "call": use.id, "arguments": use.args}
    match await _request(callback, request):
        case {"type": "result", "result": {"content": list(parts), "details": dict(details), **more}}:
            text, is_error = "\n".join(part["text"] for part in parts), bool(more.get("isError"))
            return ToolOutcome(_truncated(text, details, is_error=is_error), is_error=is_error)
        case told:
            return ToolOutcome(str(told.get("message", RUN_ENDED)), is_error=True)


def _truncated(text: str, details: Mapping[str, Any], *, is_error: bool) -> str:
    """Return the answer as UTF-8 can carry it; one that is too long is cut and names where the rest is."""
    runs = [(run["agent"], run["subagentId"][:ID_DIGITS]) for run in details.get("results", ())]

    def rest(line: int) -> str:
        if details.get("mode") != "parallel" and not is_error:  # the text is the answer of the last run
            return f"[Read the rest with: {read_on(runs[-1][1], line)}]"
        sessions = ", ".join(f"{number} {agent} {run}" for number, (agent, run) in enumerate(runs, 1))
        return f"[Read each answer whole with: {read_on('ID')}; the IDs: {sessions}]"

    whole = text.encode("utf-8", "replace").decode()
    return truncate_text(whole, max_lines=sys.maxsize, rest=rest if runs else None).text


async def _request(callback: CallbackAddress, request: Mapping[str, Any]) -> ToolArguments:
    hello = {"type": "hello", "v": 1, "token": callback.token.reveal()}
    try:
        async with await anyio.connect_unix(callback.address) as stream:
            await stream.send(b"".join(map(_encode_line, (hello, request))))
            return await _read_answer(stream)
    except (OSError, anyio.BrokenResourceError, anyio.IncompleteRead):
        return {"message": RUN_ENDED}


def _encode_line(message: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(message) + b"\n"
    except (UnicodeEncodeError, RecursionError):  # half a character, or arguments without a bottom
        return msgspec.json.encode(map_strings(message, replace_surrogates)) + b"\n"


async def _read_answer(stream: SocketStream) -> ToolArguments:
    answers = BufferedByteReceiveStream(CancelSafeReceiveStream(stream))
    while True:
        answer: ToolArguments = msgspec.json.decode(await answers.receive_until(b"\n", MAX_ANSWER_BYTES))
        if answer["type"] != "welcome":
            return answer
