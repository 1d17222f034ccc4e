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
from retinue.engines.tools.call_budget import CallBudget, run_in_thread
from retinue.engines.tools.content import FileContent, read_content
from retinue.engines.tools.find import compile_glob_or_fail
from retinue.engines.tools.folder import FileReader, RelativePath, SandboxedDirectory, format_path
from retinue.engines.tools.results import append_notices, format_listing, unreadable_notices
from retinue.engines.tools.walk import DirectoryWalk

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
_SLOW_SEARCH_SECONDS = 0.02
"""Seconds a search may hold everyone else up. Letting them go on costs each search more than it takes, so that is
done only for a pattern that has proved slow."""
_TRUNCATION_MARKER = "... [truncated]"


class GrepQuery(Struct, frozen=True, kw_only=True):
    pattern: Any
    """A compiled `regex` pattern."""
    linewise: bool
    """Whether the pattern matches a text iff it matches a line of it."""
    glob: re.Pattern[str] | None
    context: int
    limit: int


class GrepMatch(Struct, frozen=True):
    """A line that matches."""

    place: RelativePath
    lines: tuple[str, ...]
    """All of its file."""
    index: int


async def grep(
    folder: SandboxedDirectory,
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

    def work(allowance: CallBudget) -> str:
        query = GrepQuery(
            pattern=_compile_pattern(pattern, ignore_case=ignore_case, literal=literal),
            linewise=literal or bool(_LINEWISE.fullmatch(pattern)),
            glob=compile_glob_or_fail(glob) if glob else None,
            context=max(context, 0),
            limit=max(limit, 1),
        )
        return _grep(folder, query, path, allowance)

    return await run_in_thread(work, readers)


def _compile_pattern(pattern: str, *, ignore_case: bool, literal: bool) -> Any:
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


def _grep(folder: SandboxedDirectory, query: GrepQuery, path: str, budget: CallBudget) -> str:
    search = _GrepSearch(folder, query, budget)
    try:
        found = list(islice(search.iter_matches(folder.resolve(path)), query.limit + 1))
    finally:
        search.close()
    notices = search.notices()
    if len(found) > query.limit:
        found.pop()
        limit = query.limit
        notices.insert(0, f"{limit} matches limit reached. Use limit={limit * 2} for more, or refine pattern")
    if not found:
        return append_notices("No matches found", notices)
    files = groupby(found, key=lambda hit: hit.place)
    lines = [line for _, hits in files for line in _format_matches(list(hits), query.context)]
    if any(line.endswith(_TRUNCATION_MARKER) for line in lines):
        notices.append(f"Some lines truncated to {_MAX_LINE} chars. Use read tool to see full lines")
    return format_listing(lines, notices)


class _GrepSearch:
    """One query over the files beneath a place."""

    def __init__(self, folder: SandboxedDirectory, query: GrepQuery, budget: CallBudget) -> None:
        self._folder = folder
        self._reader = FileReader(folder)
        self._query = query
        self._budget = budget
        self._walk = DirectoryWalk(folder, budget)
        self._notes: list[str] = []
        self._is_slow = False

    def iter_matches(self, start: RelativePath) -> Iterator[GrepMatch]:
        """Lazily, in the order of paths and lines, until the allowance is spent."""
        if not self._folder.is_dir(start):
            found = read_content(self._folder, start)
            self._notes += found.notes
            yield from self._match_file(start, found)
            return
        for entry in self._walk.iter_entries(start):
            if not (entry.is_dir or entry.is_link) and self._matches_glob(entry.place[len(start) :]):
                yield from self._match_file(entry.place, self._read_content(entry.place))

    def close(self) -> None:
        self._reader.close()

    def notices(self) -> list[str]:
        """What is to be known of the hits so far."""
        notices = [self._budget.notice] if self._budget.notice else []
        return [*notices, *self._notes, *unreadable_notices(self._walk.unreadable)]

    def _matches_glob(self, place: RelativePath) -> bool:
        return self._query.glob is None or bool(self._query.glob.fullmatch("/".join(place)))

    def _read_content(self, place: RelativePath) -> FileContent:
        try:
            found = read_content(self._reader, place)
        except ToolError:
            self._walk.unreadable.append(format_path(place))
            return FileContent()
        # Of binary files among others nobody wants to hear.
        self._notes += () if found.is_binary else (f"{format_path(place)}: {note}" for note in found.notes)
        return found

    def _match_file(self, place: RelativePath, found: FileContent) -> Iterator[GrepMatch]:
        return self._match_text(place, found) if self._query.linewise else self._match_lines(place, found)

    def _match_text(self, place: RelativePath, content: FileContent) -> Iterator[GrepMatch]:
        """The lines that match, found in the whole text: one search each, and one for a file without any."""
        text = content.text
        found = self._find_match(text, 0)
        if found is None:
            return
        lines = content.lines()
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        while found is not None:
            index = bisect_right(starts, found.start()) - 1
            if index >= len(lines):
                return
            yield GrepMatch(place, lines, index)
            if index + 1 == len(lines):
                # An expression that matches nothing at all would match at the end for ever.
                return
            found = self._find_match(text, starts[index + 1])

    def _match_lines(self, place: RelativePath, content: FileContent) -> Iterator[GrepMatch]:
        lines = content.lines()
        for index, line in enumerate(lines):
            if self._budget.exhausted:
                return
            if self._find_match(line, 0) is not None:
                yield GrepMatch(place, lines, index)

    def _find_match(self, text: str, start: int) -> Any:
        """The first match from a place on; None also once the pattern has taken too long."""
        if not self._is_slow:
            try:
                return self._query.pattern.search(text, start, timeout=_SLOW_SEARCH_SECONDS)
            except TimeoutError:
                self._is_slow = True
        try:
            # `concurrent` lets other threads, the event loop's among them, go on meanwhile.
            return self._query.pattern.search(
                text, start, timeout=max(self._budget.remaining_seconds, 0.001), concurrent=True
            )
        except TimeoutError:
            self._budget.mark_slow_pattern()
            return None


def _format_matches(hits: list[GrepMatch], context: int) -> list[str]:
    """The matches of one file with the lines around them, each line once."""
    path, lines = format_path(hits[0].place), hits[0].lines
    matched = {hit.index for hit in hits}
    around = {index for at in matched for index in range(max(at - context, 0), min(at + context + 1, len(lines)))}
    return [_format_line(path, index, lines[index], is_match=index in matched) for index in sorted(around)]


def _format_line(path: str, index: int, line: str, *, is_match: bool) -> str:
    text = line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + _TRUNCATION_MARKER
    return f"{path}:{index + 1}: {text}" if is_match else f"{path}-{index + 1}- {text}"
