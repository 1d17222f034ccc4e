"""Transcripts as files: their names and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from retinue.model.event_codec import EventRecord
from retinue.output.untrusted_text import strip_control_characters
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.transcripts.text import TranscriptRenderer

MAX_AGENT_CHARS = 40


def make_file_name(agent: str, run: str, suffix: str) -> str:
    """Return the name of a transcript file."""
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', agent)[:MAX_AGENT_CHARS]}-{run[:SHORT_ID_LENGTH]}.{suffix}"


def encode_with(transcript: TranscriptRenderer) -> Callable[[EventRecord], Iterator[bytes]]:
    """Return a function that renders an event and encodes its entries, one line each."""
    return lambda record: (
        f"{strip_control_characters(entry)}\n".encode("utf-8", "backslashreplace")
        for entry in transcript.render(record)
    )
