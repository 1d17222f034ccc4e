"""The `grep` tool: regular expressions over files, in a thread, within a bound of time."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, groupby, islice
from math import prod
from typing import Annotated, Any

from anyio import CapacityLimiter
from msgspec import Meta, Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.allowance import Allowance, in_thread
from retinue.engines.tools.content import Content, content
from retinue.engines.tools.find import usable_glob
from retinue.engines.tools.folder import Folder, Parts, Reader, shown
from retinue.engines.tools.results import listing, noted, unreadable
from retinue.engines.tools.walk import Walk

_MAX_LINE = 500
"""Characters of a line that are shown, as pi has it."""
_MAX_PATTERN = 4096
"""Characters of a pattern."""
_MAX_REPEATS = 100_000
"""Product of a pattern's counted repeats: each is unrolled when it is compiled, nested ones many times over."""
_LINEWISE = re.compile(r"(?:[^\\\[(\n]|\\[wdbS]|\\[^\w\n]|\[(?!\^)[^\\\[\]\n]*\]|\((?!\?)|\(\?:)*")
"""Patterns of which no part can match a line's end, so that a text matches iff a line of it does."""
_RECURSION = re.compile(r"\(\?(?:R|&|P>|[0-9+-]*[0-9]\))")
"""Such a pattern can eat all memory before its time is up."""
_QUICK = 0.02
"""Seconds a search may hold everyone else up. Letting them go on costs each search more than it takes, so that is
done only for a pattern that has proved slow."""
_CUT = "... [truncated]"


class Query(Struct, frozen=True, kw_only=True):
    pattern: Any
    """A compiled `regex` pattern."""
    linewise: bool
    """Whether the pattern matches a text iff it matches a line of it."""
    glob: re.Pattern[str] | None
    context: int
    limit: int


class Hit(Struct, frozen=True):
    """A line that matches."""

    place: Parts
    lines: tuple[str, ...]
    """All of its file."""
    index: int


async def grep(
    folder: Folder,
    readers: CapacityLimiter,
    pattern: Annotated[str, Meta(description="Search pattern (regex or literal string)")],
    *,
    path: Annotated[str, Meta(description="Directory or file to search (default: current directory)")] = ".",
    glob: Annotated[
        str | None, Meta(description="Filter files by glob pattern, e.g. '*.ts' or '**/*.spec.ts'")
    ] = None,
    ignore_case: Annotated[bool, Meta(description="Case-insensitive search (default: false)")] = False,
    literal: Annotated[
        bool, Meta(description="Treat pattern as literal string instead of regex (default: false)")
    ] = False,
    context: Annotated[int, Meta(description="Number of lines to show before and after each match (default: 0)")] = 0,
    limit: Annotated[int, Meta(description="Maximum number of matches to return (default: 100)")] = 100,
) -> str:
    """Search file contents for a pattern. Returns `path:line: text`, paths from the working directory.

    Respects .gitignore. Output is cut at 100 matches or 50KB, whichever comes first; long lines at 500 characters.
    """

    def work(allowance: Allowance) -> str:
        query = Query(
            pattern=_compiled(pattern, ignore_case=ignore_case, literal=literal),
            linewise=literal or bool(_LINEWISE.fullmatch(pattern)),
            glob=usable_glob(glob) if glob else None,
            context=max(context, 0),
            limit=max(limit, 1),
        )
        return _grep(folder, query, path, allowance)

    return await in_thread(work, readers)


def _compiled(pattern: str, *, ignore_case: bool, literal: bool) -> Any:
    import regex

    if not literal and _RECURSION.search(pattern):
        raise ToolError("Patterns that call themselves are not supported. Search for a part of it.")
    repeats = prod(int(count) for count in re.findall(r"\{(\d{1,6})", pattern)) if not literal else 0
    if len(pattern) > _MAX_PATTERN or repeats > _MAX_REPEATS or re.search(r"\{,?\d{7}", pattern):
        raise ToolError("The pattern is too large. Search for a part of it.")
    try:
        flags = regex.MULTILINE | (regex.IGNORECASE if ignore_case else 0)
        return regex.compile(regex.escape(pattern) if literal else pattern, flags)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ToolError(
            f"Invalid pattern: {error}. Set literal to true to search for it as it is written."
        ) from error


def _grep(folder: Folder, query: Query, path: str, allowance: Allowance) -> str:
    search = _Search(folder, query, allowance)
    try:
        found = list(islice(search.hits(folder.locate(path)), query.limit + 1))
    finally:
        search.close()
    notices = search.notices()
    if len(found) > query.limit:
        found.pop()
        limit = query.limit
        notices.insert(0, f"{limit} matches limit reached. Use limit={limit * 2} for more, or refine pattern")
    if not found:
        return noted("No matches found", notices)
    files = groupby(found, key=lambda hit: hit.place)
    told = [line for _, hits in files for line in _block(list(hits), query.context)]
    if any(line.endswith(_CUT) for line in told):
        notices.append(f"Some lines truncated to {_MAX_LINE} chars. Use read tool to see full lines")
    return listing(told, notices)


class _Search:
    """One query over the files beneath a place."""

    def __init__(self, folder: Folder, query: Query, allowance: Allowance) -> None:
        self._folder = folder
        self._reader = Reader(folder)
        self._query = query
        self._allowance = allowance
        self._walk = Walk(folder, allowance)
        self._notes: list[str] = []
        self._is_slow = False

    def hits(self, start: Parts) -> Iterator[Hit]:
        """Lazily, in the order of paths and lines, until the allowance is spent."""
        if not self._folder.is_dir(start):
            found = content(self._folder, start)
            self._notes += found.notes
            yield from self._in(start, found)
            return
        for entry in self._walk.below(start):
            if not (entry.is_dir or entry.is_link) and self._is_wanted(entry.place[len(start) :]):
                yield from self._in(entry.place, self._content(entry.place))

    def close(self) -> None:
        self._reader.close()

    def notices(self) -> list[str]:
        """What is to be known of the hits so far."""
        said = [self._allowance.notice] if self._allowance.notice else []
        return [*said, *self._notes, *unreadable(self._walk.unread)]

    def _is_wanted(self, place: Parts) -> bool:
        return self._query.glob is None or bool(self._query.glob.fullmatch("/".join(place)))

    def _content(self, place: Parts) -> Content:
        try:
            found = content(self._reader, place)
        except ToolError:
            self._walk.unread.append(shown(place))
            return Content()
        # Of binary files among others nobody wants to hear.
        self._notes += () if found.is_binary else (f"{shown(place)}: {note}" for note in found.notes)
        return found

    def _in(self, place: Parts, found: Content) -> Iterator[Hit]:
        return self._in_text(place, found) if self._query.linewise else self._in_lines(place, found)

    def _in_text(self, place: Parts, content: Content) -> Iterator[Hit]:
        """The lines that match, found in the whole text: one search each, and one for a file without any."""
        text = content.text
        found = self._search(text, 0)
        if found is None:
            return
        lines = content.lines()
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        while found is not None:
            index = bisect_right(starts, found.start()) - 1
            if index >= len(lines):
                return
            yield Hit(place, lines, index)
            if index + 1 == len(lines):
                # An expression that matches nothing at all would match at the end for ever.
                return
            found = self._search(text, starts[index + 1])

    def _in_lines(self, place: Parts, content: Content) -> Iterator[Hit]:
        lines = content.lines()
        for index, line in enumerate(lines):
            if self._allowance.spent:
                return
            if self._search(line, 0) is not None:
                yield Hit(place, lines, index)

    def _search(self, text: str, start: int) -> Any:
        """The first match from a place on; None also once the pattern has taken too long."""
        if not self._is_slow:
            try:
                return self._query.pattern.search(text, start, timeout=_QUICK)
            except TimeoutError:
                self._is_slow = True
        try:
            # `concurrent` lets other threads, the event loop's among them, go on meanwhile.
            return self._query.pattern.search(
                text, start, timeout=max(self._allowance.seconds, 0.001), concurrent=True
            )
        except TimeoutError:
            self._allowance.blame_pattern()
            return None


def _block(hits: list[Hit], context: int) -> list[str]:
    """The matches of one file with the lines around them, each line once."""
    path, lines = shown(hits[0].place), hits[0].lines
    matched = {hit.index for hit in hits}
    around = {index for at in matched for index in range(max(at - context, 0), min(at + context + 1, len(lines)))}
    return [_told(path, index, lines[index], is_match=index in matched) for index in sorted(around)]


def _told(path: str, index: int, line: str, *, is_match: bool) -> str:
    text = line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + _CUT
    return f"{path}:{index + 1}: {text}" if is_match else f"{path}-{index + 1}- {text}"
