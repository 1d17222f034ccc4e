"""A run told as a file: for a reader, or line by line for a program. Made while it is sent, never whole in memory."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Literal

import msgspec

from retinue.app import Retinue
from retinue.events import (
    DeadlineExtended,
    Event,
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    Stamped,
    Steered,
    Text,
    Thinking,
    ToolCalled,
    ToolReturned,
    to_line,
)
from retinue.frontends.http.answers import Download
from retinue.frontends.http.reading import Reader
from retinue.frontends.wording import SHORT, moment
from retinue.output.frame import plain
from retinue.sessions.transcript import Transcript

PIECE = 64 * 2**10
"""Bytes sent together, about."""

KINDS = {
    "md": "text/markdown; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "jsonl": "application/jsonl; charset=utf-8",
}


async def transcript(retinue: Retinue, reader: Reader, name: str, form: Literal["md", "txt", "jsonl"]) -> Download:
    """The transcript of a run.

    Raises:
        Refused: `session_not_found`.
    """
    summary, run = await reader.find(name)
    events = retinue.history(summary.session, run=run)
    file = f"{re.sub(r'[^A-Za-z0-9._-]', '-', summary.agent)[:40]}-{run[:SHORT]}.{form}"
    return Download(file, KINDS[form], _pieces(events, form))


async def _pieces(events: AsyncIterator[Stamped], form: str) -> AsyncGenerator[bytes, None]:
    teller = {"jsonl": _json, "txt": _plain(Transcript().lines), "md": _plain(Markdown().lines)}[form]
    lines: list[bytes] = []
    size = 0
    async for stamped in events:
        for line in teller(stamped):
            lines.append(line)
            size += len(line)
        if size > PIECE:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _json(stamped: Stamped) -> Iterator[bytes]:
    yield to_line(stamped)


def _plain(tell: Callable[[Stamped], Iterator[str]]) -> Callable[[Stamped], Iterator[bytes]]:
    return lambda stamped: map(_line, tell(stamped))


def _line(text: str) -> bytes:
    return f"{plain(text)}\n".encode("utf-8", "backslashreplace")


class Markdown:
    """Tells a run for a reader, event by event."""

    def __init__(self) -> None:
        self._said = ""

    def lines(self, stamped: Stamped) -> Iterator[str]:
        """What a reader sees of one event; nothing of some."""
        event = stamped.event
        match event:
            case RunQueued():
                yield f"# {event.name}\n"
                yield f"- agent: {event.agent}\n- engine: {event.engine}\n- directory: {event.cwd}"
                yield f"- begun: {moment(stamped.time)}\n- run: {stamped.origin.run}\n"
                yield f"## Task\n\n{fenced(event.task)}\n"
            case Text(text=text) if text.strip():
                self._said = text
                yield f"## Said\n\n{text}\n"
            case RunEnded():
                yield from self._ended(event)
            case _:
                yield from _done(event) or _noted(event)

    def _ended(self, event: RunEnded) -> Iterator[str]:
        if event.failure:
            yield f"## Ended: {event.failure.code}\n\n{event.failure.message}\n"
        # Most answers are the last that was said.
        again = event.text in {"", self._said}
        title = "Answered" if not event.failure else "It had"
        yield f"## {title}, after {event.elapsed:.1f} s\n" + ("" if again else f"\n{event.text}\n")


def _done(event: Event) -> list[str]:
    """What the agent thought, was told and did."""
    match event:
        case Thinking(text=text) if text.strip():
            return [f"### Thought\n\n{quoted(text)}\n"]
        case Steered(text=text):
            return [f"### Was told\n\n{quoted(text)}\n"]
        case ToolCalled(name=name, args=args):
            written = msgspec.json.format(msgspec.json.encode(args), indent=2).decode()
            return [f"### Called `{name}`\n\n{fenced(written, 'json')}\n"]
        case ToolReturned(name=name, text=text, is_error=is_error):
            return [f"### {'Failed' if is_error else 'Returned'}: `{name}`\n\n{fenced(text)}\n"]
        case _:
            return []


def _noted(event: Event) -> list[str]:
    match event:
        case MessageEnded(error=str(error)):
            return [f"> **Provider:** {quoted(error)[2:]}\n"]
        case ModelChanged(after=after, reason=reason):
            return [f"> **Model:** {after} ({reason})\n"]
        case DeadlineExtended(seconds=seconds):
            return [f"> **Given {seconds:g} seconds more.**\n"]
        case Notice(message=message):
            return [f"{quoted(message)}\n"]
        case _:
            return []


def fenced(text: str, kind: str = "") -> str:
    """A block of code that no text within it can end."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))
