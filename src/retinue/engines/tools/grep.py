"""The `grep` tool: regular expressions over files, in a thread, within a bound of time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, islice
from math import prod
from typing import Annotated, Any

from msgspec import Meta, Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.allowance import Allowance, in_thread
from retinue.engines.tools.content import Content, content
from retinue.engines.tools.find import usable_glob
from retinue.engines.tools.folder import Folder, Parts, shown
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

    return await in_thread(work)


def _compiled(pattern: str, *, ignore_case: bool, literal: bool) -> Any:
    import regex

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
    found = list(islice(search.hits(folder.locate(path)), query.limit + 1))
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
        self._query = query
        self._allowance = allowance
        self._walk = Walk(folder, allowance)
        self._notes: list[str] = []

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

    def notices(self) -> list[str]:
        """What is to be known of the hits so far."""
        said = [self._allowance.notice] if self._allowance.notice else []
        return [*said, *self._notes, *unreadable(self._walk.unread)]

    def _is_wanted(self, place: Parts) -> bool:
        return self._query.glob is None or bool(self._query.glob.fullmatch("/".join(place)))

    def _content(self, place: Parts) -> Content:
        try:
            found = content(self._folder, place)
        except ToolError:
            self._walk.unread.append(shown(place))
            return Content()
        # Of binary files among others nobody wants to hear.
        self._notes += () if found.is_binary else (f"{shown(place)}: {note}" for note in found.notes)
        return found

    def _in(self, place: Parts, found: Content) -> Iterator[Hit]:
        # The whole text first: most files have no match, and then one search is enough.
        if self._query.linewise and not self._matches("\n".join(found.lines)):
            return
        for index, line in enumerate(found.lines):
            if self._allowance.spent:
                return
            if self._matches(line):
                yield Hit(place, found.lines, index)

    def _matches(self, text: str) -> bool:
        try:
            # `concurrent` lets other threads, the event loop's among them, go on meanwhile.
            found = self._query.pattern.search(text, timeout=max(self._allowance.seconds, 0.001), concurrent=True)
        except TimeoutError:
            self._allowance.blame_pattern()
            return False
        return found is not None


def _block(hits: list[Hit], context: int) -> list[str]:
    """The matches of one file with the lines around them, each line once."""
    path, lines = shown(hits[0].place), hits[0].lines
    matched = {hit.index for hit in hits}
    around = {index for at in matched for index in range(max(at - context, 0), min(at + context + 1, len(lines)))}
    return [_told(path, index, lines[index], is_match=index in matched) for index in sorted(around)]


def _told(path: str, index: int, line: str, *, is_match: bool) -> str:
    text = line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + _CUT
    return f"{path}:{index + 1}: {text}" if is_match else f"{path}-{index + 1}- {text}"
