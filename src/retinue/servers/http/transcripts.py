"""A run told as a file: for a reader, or line by line for a program. Made while it is sent, never whole in memory."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Literal

import msgspec

from retinue.client import Retinue
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import (
    DeadlineExtended,
    Event,
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    SteeringDelivered,
    Text,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.output.untrusted_text import strip_control_characters
from retinue.servers.http.queries import RunQueries
from retinue.servers.http.responses import FileDownload
from retinue.sessions.messages import TranscriptRenderer
from retinue.support.formatting import SHORT_ID_LENGTH, format_time

CHUNK_BYTES = 64 * 2**10
"""Bytes sent together, about."""

CONTENT_TYPES = {
    "md": "text/markdown; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
    "jsonl": "application/jsonl; charset=utf-8",
}


async def open_transcript(
    retinue: Retinue, queries: RunQueries, name: str, form: Literal["md", "txt", "jsonl"]
) -> FileDownload:
    """The transcript of a run.

    Raises:
        Refused: `session_not_found`.
    """
    summary, run = await queries.find_run(name)
    events = retinue.history(summary.session, run=run)
    file = f"{re.sub(r'[^A-Za-z0-9._-]', '-', summary.agent)[:40]}-{run[:SHORT_ID_LENGTH]}.{form}"
    return FileDownload(file, CONTENT_TYPES[form], _iter_chunks(events, form))


async def _iter_chunks(events: AsyncIterator[EventRecord], form: str) -> AsyncGenerator[bytes, None]:
    render = {
        "jsonl": _render_json,
        "txt": _render_text(TranscriptRenderer().render_lines),
        "md": _render_text(MarkdownTranscript().render),
    }[form]
    lines: list[bytes] = []
    size = 0
    async for stamped in events:
        for line in render(stamped):
            lines.append(line)
            size += len(line)
        if size > CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _render_json(stamped: EventRecord) -> Iterator[bytes]:
    yield to_line(stamped)


def _render_text(render: Callable[[EventRecord], Iterator[str]]) -> Callable[[EventRecord], Iterator[bytes]]:
    return lambda stamped: map(_encode_text_line, render(stamped))


def _encode_text_line(text: str) -> bytes:
    return f"{strip_control_characters(text)}\n".encode("utf-8", "backslashreplace")


class MarkdownTranscript:
    """Tells a run for a reader, event by event."""

    def __init__(self) -> None:
        self._last_text = ""

    def render(self, stamped: EventRecord) -> Iterator[str]:
        """What a reader sees of one event; nothing of some."""
        event = stamped.event
        match event:
            case RunQueued():
                yield f"# {event.name}\n"
                yield f"- agent: {event.agent}\n- engine: {event.engine}\n- directory: {event.cwd}"
                yield f"- begun: {format_time(stamped.time)}\n- run: {stamped.origin.run}\n"
                yield f"## Task\n\n{fence_code(event.task)}\n"
            case Text(text=text) if text.strip():
                self._last_text = text
                yield f"## Said\n\n{text}\n"
            case RunEnded():
                yield from self._render_end(event)
            case _:
                yield from _render_activity(event) or _render_notice(event)

    def _render_end(self, event: RunEnded) -> Iterator[str]:
        if event.failure:
            yield f"## Ended: {event.failure.code}\n\n{event.failure.message}\n"
        # Most answers are the last that was said.
        again = event.text in {"", self._last_text}
        title = "Answered" if not event.failure else "It had"
        yield f"## {title}, after {event.elapsed:.1f} s\n" + ("" if again else f"\n{event.text}\n")


def _render_activity(event: Event) -> list[str]:
    """What the agent thought, was told and did."""
    match event:
        case Thinking(text=text) if text.strip():
            return [f"### Thought\n\n{quote_text(text)}\n"]
        case SteeringDelivered(text=text):
            return [f"### Was told\n\n{quote_text(text)}\n"]
        case ToolCalled(name=name, args=args):
            written = msgspec.json.format(msgspec.json.encode(args), indent=2).decode()
            return [f"### Called `{name}`\n\n{fence_code(written, 'json')}\n"]
        case ToolReturned(name=name, text=text, is_error=is_error):
            return [f"### {'Failed' if is_error else 'Returned'}: `{name}`\n\n{fence_code(text)}\n"]
        case _:
            return []


def _render_notice(event: Event) -> list[str]:
    match event:
        case MessageEnded(error=str(error)):
            return [f"> **Provider:** {quote_text(error)[2:]}\n"]
        case ModelChanged(after=after, reason=reason):
            return [f"> **Model:** {after} ({reason})\n"]
        case DeadlineExtended(seconds=seconds):
            return [f"> **Given {seconds:g} seconds more.**\n"]
        case Notice(message=message):
            return [f"{quote_text(message)}\n"]
        case _:
            return []


def fence_code(text: str, kind: str = "") -> str:
    """A block of code that no text within it can end."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def quote_text(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))
