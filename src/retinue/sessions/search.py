"""Search the record of a session for a text: in the tasks, answers and tool calls of all its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, RunQueued, Text, ToolCalled, ToolReturned
from retinue.output.untrusted_text import MAX_DEPTH, to_one_line
from retinue.sessions.reader import find_start, read_header, read_record_backwards
from retinue.sessions.segments import RecordDecoder, SegmentCursor, SegmentedFile, SegmentHeader
from retinue.sessions.store import SearchField, SearchMatch, SessionSummary, normalize_search_text

SearchText = tuple[SearchField, str]
"""A text of a session and the field it is from."""

MIN_SEARCHED_CHARS = 3
"""Shorter texts are searched in what lists show: they are in nearly every record."""
MAX_HEAD_BYTES = 4 * 2**20
"""Bytes of a record that a search reads from its start."""
MAX_TAIL_BYTES = 2**20
"""Bytes of a longer record that a search reads from its end: the latest answer is there."""
MAX_TEXT_CHARS = 100_000
"""Characters of one text that are searched."""
MAX_SESSION_CHARS = 1_000_000
"""Characters of a session that are searched, by field: many tool outputs never displace an answer."""
SNIPPET_CHARS = 120
SNIPPET_LEAD_CHARS = 40
"""Characters of a snippet before the match."""
_SEARCHED_TYPES = tuple(
    b'"type":"%b"' % name for name in (b"run_queued", b"text", b"tool_called", b"tool_returned", b"run_ended")
)


def read_search_texts(folder: Path) -> Iterator[SearchText]:
    """Yield the texts of the record in a folder that a search covers; of a huge record those near its ends."""
    with suppress(OSError):
        yield from select_search_texts(_read_events(folder))


def select_search_texts(events: Iterable[EventRecord]) -> Iterator[SearchText]:
    """Yield the texts of events that a search covers, each once and at most `MAX_SESSION_CHARS` of a field."""
    left = dict.fromkeys(SearchField, MAX_SESSION_CHARS)
    last_answer = ""
    for record in events:
        for field, text in _list_texts(record):
            shortened = text[: min(MAX_TEXT_CHARS, left[field])]
            if not shortened or (field is SearchField.ANSWER and text == last_answer):
                continue  # the end of a run repeats its last text
            last_answer = text if field is SearchField.ANSWER else last_answer
            left[field] -= len(shortened)
            yield field, shortened


def find_match(texts: Iterable[SearchText], wanted: str) -> SearchMatch | None:
    """Return the first match of a normalized text; None if no text has it."""
    for field, text in texts:
        if wanted in normalize_search_text(text):
            return SearchMatch(field, _make_snippet(text, wanted))
    return None


def find_summary_match(summary: SessionSummary, wanted: str) -> SearchMatch | None:
    """Return the match of a normalized text in what a list shows of a session."""
    last = SearchField.FAILURE if summary.latest.failure else SearchField.ANSWER
    fields = (
        (SearchField.NAME, summary.name),
        (SearchField.AGENT, summary.agent),
        (SearchField.TASK, summary.task),
        (last, summary.preview),
    )
    return find_match(fields, wanted)


def find_event_match(summary: SessionSummary, events: Iterable[EventRecord], text: str) -> SearchMatch | None:
    """Return the match of a text in a session with these events, for stores without an index.

    Texts of fewer than `MIN_SEARCHED_CHARS` characters are searched in the summary alone.
    """
    wanted = normalize_search_text(text)
    found = find_summary_match(summary, wanted)
    if found or len(wanted) < MIN_SEARCHED_CHARS:
        return found
    return find_match(select_search_texts(events), wanted)


def _read_events(folder: Path) -> Iterator[EventRecord]:
    segments = SegmentedFile(folder)
    head = read_header(segments)
    if not isinstance(head, SegmentHeader):
        return
    decoder = RecordDecoder(head.id)
    cursor = SegmentCursor(segments, find_start(segments, head))
    size = 0
    while size < MAX_HEAD_BYTES and (lines := cursor.read()):
        for line in lines:
            size += len(line)
            if _is_searched(line):
                yield from decoder.decode_events(line)
    if size < MAX_HEAD_BYTES:
        return
    size = 0
    for position, line in read_record_backwards(segments, head):
        size += len(line)
        if position < cursor.at or size > MAX_TAIL_BYTES:
            return
        if _is_searched(line):
            yield from decoder.decode_events(line)


def _is_searched(line: bytes) -> bool:
    return any(mark in line for mark in _SEARCHED_TYPES)


def _list_texts(record: EventRecord) -> Iterator[SearchText]:
    match record.event:
        case RunQueued() as queued:
            yield SearchField.TASK, queued.task
        case Text(text):
            yield SearchField.ANSWER, text
        case ToolCalled() as call:
            yield SearchField.TOOL_CALL, "\n".join((call.name, *_list_strings(call.args)))
        case ToolReturned() as returned:
            yield SearchField.TOOL_OUTPUT, returned.text
        case RunEnded() as ended:
            yield SearchField.ANSWER, ended.text
            if ended.failure:
                yield SearchField.FAILURE, ended.failure.message
        case _:
            pass


def _list_strings(value: Any, depth: int = MAX_DEPTH) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() if depth:
            for item in value.values():
                yield from _list_strings(item, depth - 1)
        case list() | tuple() if depth:
            for item in value:
                yield from _list_strings(item, depth - 1)
        case _:
            pass


def _make_snippet(text: str, wanted: str) -> str:
    """Return one line of the text around the first place where it has the normalized text."""
    line = " ".join(text.replace("\0", " ").split())
    folded = line.casefold()
    at = folded.find(wanted)
    if len(folded) != len(line):
        at = _find_unfolded(line, at)
    start = max(0, at - SNIPPET_LEAD_CHARS)
    if start and (space := line.find(" ", start, at)) > 0:
        start = space + 1  # begins with a whole word
    lead = "…" if start else ""
    return lead + to_one_line(line[start:], SNIPPET_CHARS - len(lead))


def _find_unfolded(line: str, at: int) -> int:
    """Return the position in a line of a position in its case-folded form, which may be longer."""
    folded = 0
    for position, character in enumerate(line):
        if folded >= at:
            return position
        folded += len(character.casefold())
    return len(line)
