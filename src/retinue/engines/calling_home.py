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

from retinue.arriving import Arriving
from retinue.engines.toolbox import Declaration, Elsewhere, Outcome
from retinue.output.texts import changed_texts, mended
from retinue.output.truncate import read_on, truncated
from retinue.types import Args, Home, ToolUse

ANSWER_BYTES = 256 * 2**20
ID_DIGITS = 8
"""Of a session's id, as users see it: they name the session."""
OVER = "There was no answer: the run is over."


class KnownAgent(Struct, frozen=True):
    """An agent that a run may delegate to, as far as another may know it."""

    name: str
    description: str
    body: str
    tools: tuple[str, ...] | None = None
    """In pi's names; None: those of its caller."""


async def tools_at_home(home: Home) -> tuple[Elsewhere, ...]:
    """The tools to delegate with; none where home cannot be reached."""
    told = await _told(home, {"type": "tools"})
    return tuple(
        Elsewhere(
            Declaration(tool["name"], tool["description"], tool["inputSchema"]),
            partial(call_home, home),
        )
        for tool in told.get("tools", ())
    )


async def agents_at_home(home: Home) -> tuple[KnownAgent, ...]:
    """Whom a run may delegate to, for engines that announce them; nobody where home cannot be reached."""
    told = await _told(home, {"type": "agents"})
    return msgspec.convert(told.get("agents", ()), tuple[KnownAgent, ...])


async def call_home(home: Home, use: ToolUse) -> Outcome:
    """What came of a tool call. Whatever goes wrong is an outcome; cancelling it ends what it asked for."""
    order = {"type": "call", "tool": use.name, "call": use.id, "arguments": use.args}
    match await _told(home, order):
        case {"type": "result", "result": {"content": list(parts), "details": dict(details), **more}}:
            text, is_error = "\n".join(part["text"] for part in parts), bool(more.get("isError"))
            return Outcome(_truncated(text, details, is_error=is_error), is_error=is_error)
        case told:
            return Outcome(str(told.get("message", OVER)), is_error=True)


def _truncated(text: str, details: Mapping[str, Any], *, is_error: bool) -> str:
    """Return the answer as UTF-8 can carry it; one that is too long is cut and names where the rest is."""
    runs = [(run["agent"], run["subagentId"][:ID_DIGITS]) for run in details.get("results", ())]

    def rest(line: int) -> str:
        if details.get("mode") != "parallel" and not is_error:  # the text is the answer of the last run
            return f"[Read the rest with: {read_on(runs[-1][1], line)}]"
        sessions = ", ".join(f"{number} {agent} {run}" for number, (agent, run) in enumerate(runs, 1))
        return f"[Read each answer whole with: {read_on('ID')}; the IDs: {sessions}]"

    whole = text.encode("utf-8", "replace").decode()
    return truncated(whole, max_lines=sys.maxsize, rest=rest if runs else None).text


async def _told(home: Home, order: Mapping[str, Any]) -> Args:
    hello = {"type": "hello", "v": 1, "token": home.token.reveal()}
    try:
        async with await anyio.connect_unix(home.address) as stream:
            await stream.send(b"".join(map(_line, (hello, order))))
            return await _answer(stream)
    except (OSError, anyio.BrokenResourceError, anyio.IncompleteRead):
        return {"message": OVER}


def _line(said: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(said) + b"\n"
    except (UnicodeEncodeError, RecursionError):  # half a character, or arguments without a bottom
        return msgspec.json.encode(changed_texts(said, mended)) + b"\n"


async def _answer(stream: SocketStream) -> Args:
    answers = BufferedByteReceiveStream(Arriving(stream))
    while True:
        answer: Args = msgspec.json.decode(await answers.receive_until(b"\n", ANSWER_BYTES))
        if answer["type"] != "welcome":
            return answer
