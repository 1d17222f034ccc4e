"""The `grep` tool: regular expressions over files, bounded in time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Annotated, Any

from anyio import CapacityLimiter
from msgspec import Meta, Struct, structs

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import (
    MAX_FILE_BYTES,
    CallBudget,
    FileContent,
    RelativePath,
    SandboxedDirectory,
    format_listing,
    format_path,
    run_in_thread,
    unreadable_notices,
)
from retinue.engines.tools.file_search import compile_glob, list_files, list_matching_files

_MAX_LINE = 500
"""Characters of a line that are shown, as in pi."""
_MAX_PATTERN = 4096
"""Characters of a pattern."""
_MAX_REPEATS = 100_000
"""Product of a pattern's counted repeats: each is unrolled when it is compiled, nested ones many times over."""
_PORTABLE = re.compile(r"(?:[^\\\[(\n]|\\[wdbS]|\\[^\w\n<>]|\[(?!\^)(?:[^\\\[\]\n&~-]|-(?!-))*\]|\((?!\?)|\(\?:)*")
"""Patterns that ripgrep understands as Python does, and of which no part can match a line's end, so that a text
matches if and only if one of its lines does."""
_RECURSION = re.compile(r"\(\?(?:R|&|P>|[0-9+-]*[0-9]\))")
"""Such a pattern can use up all memory before its time is up."""
_SLOW_SEARCH_SECONDS = 0.02
"""Seconds a search may block other threads. Releasing them costs each search more than it takes, so that is done
only for a pattern that has proved slow."""
_TRUNCATION_MARKER = "... [truncated]"


class GrepQuery(Struct, frozen=True, kw_only=True):
    """The arguments of one search."""

    pattern: str
    ignore_case: bool = False
    literal: bool = False
    glob: str | None = None
    context: int = 0
    limit: int = 100

    @property
    def is_portable(self) -> bool:
        return "\n" not in self.pattern if self.literal else bool(_PORTABLE.fullmatch(self.pattern))

    @property
    def ripgrep_options(self) -> list[str]:
        ignore_case = ["--ignore-case"] if self.ignore_case else []
        return [*ignore_case, *(["--fixed-strings"] if self.literal else []), f"--regexp={self.pattern}"]

    def compile(self) -> Any:
        """Compile the pattern.

        Raises:
            ToolError: it is invalid, too large, or calls itself.
        """
        import regex

        if not self.literal and _RECURSION.search(self.pattern):
            raise ToolError("Recursive patterns are not supported. Search for a part of the pattern.")
        repeats = 0 if self.literal else prod(int(count) for count in re.findall(r"\{(\d{1,6})", self.pattern))
        if len(self.pattern) > _MAX_PATTERN or repeats > _MAX_REPEATS or re.search(r"\{,?\d{7}", self.pattern):
            raise ToolError("The pattern is too large. Search for a part of the pattern.")
        try:
            flags = regex.MULTILINE | (regex.IGNORECASE if self.ignore_case else 0)
            return regex.compile(regex.escape(self.pattern) if self.literal else self.pattern, flags)
        except (regex.error, RecursionError, OverflowError) as error:
            raise ToolError(f"Invalid pattern: {error}. Set literal to true to search for the exact text.") from error


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

    Respects .gitignore; skips binary files, files over 16MB and links. Output is cut at 100 matches or 50KB,
    whichever comes first; long lines at 500 characters.
    """
    query = GrepQuery(
        pattern=pattern,
        ignore_case=ignore_case,
        literal=literal,
        glob=glob,
        context=max(context, 0),
        limit=max(limit, 1),
    )
    return await run_in_thread(lambda budget: search_files(folder, query, path, budget), readers)


def search_files(folder: SandboxedDirectory, query: GrepQuery, path: str, budget: CallBudget) -> str:
    """Return the lines that match a query, in the order of paths, with notices about what is missing."""
    search = _GrepSearch(folder, query, budget)
    lines: list[str] = []
    left = query.limit
    for place, content in search.iter_files(folder.resolve(path)):
        matched = search.find_lines(content, left + 1)
        if matched:
            lines += _format_matches(place, content, matched[:left], query.context)
            search.notes += (f"{format_path(place)}: {note}" for note in content.notes)
        left -= len(matched)
        if left < 0:
            search.notes.insert(
                0, f"{query.limit} matches limit reached. Use limit={query.limit * 2} for more, or refine pattern"
            )
            break
    notices = [*budget.notices, *search.notes, *unreadable_notices(search.unreadable)]
    if any(line.endswith(_TRUNCATION_MARKER) for line in lines):
        notices.append(f"Some lines truncated to {_MAX_LINE} chars. Use read tool to see full lines")
    return format_listing(lines, notices, empty="No matches found")


class _GrepSearch:
    """One query over the files beneath a path."""

    def __init__(self, folder: SandboxedDirectory, query: GrepQuery, budget: CallBudget) -> None:
        self._folder = folder
        self._query = query
        self._budget = budget
        self._pattern = query.compile()
        self._glob = compile_glob(query.glob) if query.glob else None
        self._is_slow = False
        self.notes: list[str] = []
        self.unreadable: list[str] = []

    def iter_files(self, start: RelativePath) -> Iterator[tuple[RelativePath, FileContent]]:
        """Yield the text files to search, in the order of their paths."""
        if not self._folder.is_dir(start):
            content = self._folder.read(start)
            self.notes += content.notes
            yield start, structs.replace(content, notes=())
            return
        files = None
        if self._query.is_portable:
            files = list_matching_files(self._folder, start, self._query.ripgrep_options, self._budget)
        if files is None:
            files = list_files(self._folder, start, self._budget, self.unreadable)
        for place in files:
            if self._glob and not self._glob.fullmatch("/".join(place[len(start) :])):
                continue
            try:
                content = self._folder.read(place)
            except ToolError:
                self.unreadable.append(format_path(place))
                continue
            if not content.is_binary and content.size <= MAX_FILE_BYTES:
                yield place, content

    def find_lines(self, content: FileContent, limit: int) -> list[int]:
        """Return the indices of the first lines that match."""
        if self._query.is_portable and not self._matches("\n".join(content.lines)):
            return []
        found: list[int] = []
        for index, line in enumerate(content.lines):
            if self._budget.exhausted or len(found) == limit:
                break
            if self._matches(line):
                found.append(index)
        return found

    def _matches(self, text: str) -> bool:
        """Return whether the pattern matches a text; False also once it has taken too long."""
        if not self._is_slow:
            try:
                return self._pattern.search(text, timeout=_SLOW_SEARCH_SECONDS) is not None
            except TimeoutError:
                self._is_slow = True
        try:
            # `concurrent` lets other threads, the event loop's among them, run meanwhile.
            timeout = max(self._budget.remaining_seconds, 0.001)
            return self._pattern.search(text, timeout=timeout, concurrent=True) is not None
        except TimeoutError:
            self._budget.mark_slow_pattern()
            return False


def _format_matches(place: RelativePath, content: FileContent, matched: list[int], context: int) -> list[str]:
    """Format the matches of one file with the lines around them, each line once."""
    path, lines, shown = format_path(place), content.lines, set(matched)
    around = {index for at in matched for index in range(max(at - context, 0), min(at + context + 1, len(lines)))}
    return [_format_line(path, index, lines[index], is_match=index in shown) for index in sorted(around)]


def _format_line(path: str, index: int, line: str, *, is_match: bool) -> str:
    text = line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + _TRUNCATION_MARKER
    return f"{path}:{index + 1}: {text}" if is_match else f"{path}-{index + 1}- {text}"
