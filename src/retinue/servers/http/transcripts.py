"""The transcript of a run as a file to download, rendered while it is sent."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Literal

from retinue.client import Retinue
from retinue.model.event_codec import EventRecord, to_line
from retinue.output.untrusted_text import strip_control_characters
from retinue.servers.http.queries import RunQueries
from retinue.servers.http.responses import FileDownload
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.transcripts.items import TranscriptRenderer
from retinue.transcripts.markdown import MarkdownTranscript
from retinue.transcripts.text import TextTranscript

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
    """Return the transcript of a run as a download in the given format.

    Raises:
        RefusedError: `session_not_found`.
    """
    summary, run = await queries.find_run(name)
    events = retinue.history(summary.session, run=run)
    file = f"{re.sub(r'[^A-Za-z0-9._-]', '-', summary.agent)[:40]}-{run[:SHORT_ID_LENGTH]}.{form}"
    return FileDownload(file, CONTENT_TYPES[form], _iter_chunks(events, form))


async def _iter_chunks(events: AsyncIterator[EventRecord], form: str) -> AsyncGenerator[bytes, None]:
    encode = {
        "jsonl": lambda record: [to_line(record)],
        "txt": _encode_with(TextTranscript()),
        "md": _encode_with(MarkdownTranscript()),
    }[form]
    lines: list[bytes] = []
    size = 0
    async for record in events:
        for line in encode(record):
            lines.append(line)
            size += len(line)
        if size > CHUNK_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _encode_with(transcript: TranscriptRenderer) -> Callable[[EventRecord], Iterator[bytes]]:
    """Return a function that renders an event and encodes its entries, one line each."""
    return lambda record: (
        f"{strip_control_characters(entry)}\n".encode("utf-8", "backslashreplace")
        for entry in transcript.render(record)
    )
