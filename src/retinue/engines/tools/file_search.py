"""Globs and `.gitignore` rules, and lists of the files beneath a directory that git does not ignore.

Files are listed by ripgrep where it is installed, else by a walk. Both have the same order and contents: regular
files, hidden ones included, without links and `.git`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile

from msgspec import Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import MAX_FILE_BYTES, CallBudget, RelativePath, SandboxedDirectory, format_path

_ANY = "[^/]"
_SEGMENT_END = r"(?=/|\Z)"
_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
"""The innermost pair with a comma in it."""
_MAX_GLOB_LENGTH = 512
_MAX_ALTERNATIVES = 64
"""Patterns that the braces of a glob may stand for."""
_MAX_RULES, _MAX_RULE_LENGTH = 1000, 256
"""Lines of an ignore file, and characters of a line: a hostile file must not take long."""


class IgnoreRules(Struct, frozen=True):
    """The rules of one ignore file, for paths relative to its folder."""

    pattern: re.Pattern[str]
    """One group per rule, the last rule first."""
    ignored: tuple[bool, ...]
    """Per group: True if its matches are ignored, False if the rule is negated."""

    def match(self, path: str, *, is_dir: bool) -> bool | None:
        """Return whether a path is ignored; None if no rule matches it."""
        found = self.pattern.fullmatch(path + "/" if is_dir else path)
        return self.ignored[found.lastindex - 1] if found and found.lastindex else None


def compile_glob(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """Compile a glob for whole relative paths; one without a slash matches names at any depth.

    Raises:
        ToolError: a bracket is not closed, or the braces stand for too many patterns.
    """
    try:
        every = (translate_glob(f"**/{each.removeprefix('./')}") for each in expand_braces(pattern))
        return re.compile("|".join(f"(?:{each})" for each in every), re.IGNORECASE if ignore_case else 0)
    except ValueError as error:
        raise ToolError(f"Invalid glob {pattern!r}: {error}.") from error


@lru_cache(maxsize=128)
def parse_ignore_file(text: str) -> IgnoreRules | None:
    """Parse the text of an ignore file; None if it has no rules."""
    found = [rule for line in text.splitlines()[:_MAX_RULES] if (rule := _parse_rule(line))]
    found.reverse()
    pattern = re.compile("|".join(f"({expression})" for expression, _ in found))
    return IgnoreRules(pattern, tuple(ignored for _, ignored in found)) if found else None


def translate_glob(pattern: str) -> str:
    """Translate `*`, `?`, `[a-z]`, `**` and escapes to an expression that fully matches the same relative paths.

    Raises:
        ValueError: a bracket is not closed.
    """
    runs: list[list[str]] = [[]]
    for segment in pattern.split("/"):
        if segment == "**":
            if runs[-1] or len(runs) == 1:
                runs.append([])
        elif segment:
            runs[-1].append(_translate_segment(segment))
    first, *others = ("/".join(run) for run in runs)
    if not others:
        return first
    *inner, last = others
    text = first + "/" if first else ""
    text += "".join(f"(?>(?:{_ANY}+/)*?{run}/)" for run in inner)
    return text + (f"(?:{_ANY}+/)*{last}" if last else ".+")


def expand_braces(pattern: str) -> list[str]:
    """Return the patterns that a pattern with `{a,b}` stands for.

    Raises:
        ValueError: they are too many, or the pattern is too long.
    """
    if len(pattern) > _MAX_GLOB_LENGTH:
        raise ValueError(f"it is longer than {_MAX_GLOB_LENGTH} characters")
    pending, expanded = [pattern], dict[str, None]()
    while pending:
        each = pending.pop(0)
        if found := _BRACES.search(each):
            pending[:0] = [each[: found.start()] + option + each[found.end() :] for option in found[1].split(",")]
        else:
            expanded[each] = None
        if len(pending) + len(expanded) > _MAX_ALTERNATIVES:
            raise ValueError(f"its braces expand to more than {_MAX_ALTERNATIVES} patterns")
    return list(expanded)


def _translate_segment(segment: str) -> str:
    """Translate the pattern of one name between slashes."""
    fixed: list[str] = [""]
    rest = segment
    while rest:
        token, rest = _next_token(rest)
        if token is None:
            fixed.append("")
        else:
            fixed[-1] += token
    first, *others = fixed
    if not others:
        return first
    inner = "".join(f"(?>{_ANY}*?{part})" for part in others[:-1] if part)
    return f"(?>(?={_ANY}){first}{inner}{_ANY}*{others[-1]}{_SEGMENT_END})"


def _next_token(rest: str) -> tuple[str | None, str]:
    """Translate the first token of a pattern (None: a star) and return it with the remaining pattern."""
    match rest[0]:
        case "*":
            return None, rest.lstrip("*")
        case "?":
            return _ANY, rest[1:]
        case "[":
            return _translate_bracket(rest)
        case "\\" if len(rest) > 1:
            return re.escape(rest[1]), rest[2:]
        case other:
            return re.escape(other), rest[1:]


def _translate_bracket(rest: str) -> tuple[str, str]:
    """Translate a bracket such as `[!a-z]` and return it with the remaining pattern."""
    start = 2 if rest[1:2] in ("!", "^") else 1
    members: list[str] = []
    at = start
    while at < len(rest) and (rest[at] != "]" or at == start):
        at += rest[at] == "\\" and at + 1 < len(rest)
        low = high = rest[at]
        if rest[at + 1 : at + 2] == "-" and rest[at + 2 : at + 3] not in ("", "]"):
            high = rest[at + 2]
            at += 2
        if low <= high:
            members.append(re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}")
        at += 1
    if at >= len(rest):
        raise ValueError("a bracket is not closed")
    negated = "^" if start == 2 else ""  # noqa: PLR2004 - the place after "[!"
    # A class of nothing but reversed ranges matches nothing; negated, anything.
    inside = f"[{negated}{''.join(members)}]" if members else (_ANY if negated else r"(?!)")
    return f"(?!/){inside}", rest[at + 1 :]


def _parse_rule(line: str) -> tuple[str, bool] | None:
    """Return the expression of one line, and whether its matches are ignored; None for a line without a rule."""
    line = _strip_trailing_spaces(line)
    if not line or line.startswith("#") or len(line) > _MAX_RULE_LENGTH:
        return None
    ignored = not line.startswith("!")
    pattern = line if ignored else line[1:]
    only_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    try:
        expression = translate_glob(pattern if anchored else f"**/{pattern}") if pattern else ""
    except ValueError:
        return None
    return (f"{expression}/" if only_directories else f"{expression}/?", ignored) if expression else None


def _strip_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    # A backslash keeps the one space after it.
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return stripped + " " if escaped and stripped != line else stripped


_RIPGREP_OPTIONS = (
    "--no-config", "--no-messages", "--null", "--color=never", "--path-separator=/", "--hidden", "--glob=!.git",
    "--no-ignore-dot", "--no-ignore-global",
)  # fmt: skip
_RIPGREP_POLL_INTERVAL = 0.05
_MAX_LISTING_BYTES = 8 * 2**20
"""Bytes of paths that ripgrep may print; a tree with more is walked, up to the limits of the call."""
_MAX_IGNORE_BYTES = 64 * 1024
"""Bytes of one ignore file: real ones are fifty times smaller, and a hostile one must not take long."""

IgnoreLevels = tuple[tuple[int, IgnoreRules], ...]
"""Ignore files that apply in a directory, nearest first, each with the number of names on the way to its folder."""


def list_files(
    folder: SandboxedDirectory, start: RelativePath, budget: CallBudget, unreadable: list[str]
) -> Iterable[RelativePath]:
    """Return the files beneath a directory, sorted by path, until the budget is spent.

    Directories that cannot be listed are added to `unreadable`.
    """
    found = _run_ripgrep(folder, start, ["--files"], budget)
    return _walk(folder, start, budget, unreadable) if found is None else _within_budget(found, budget)


def list_matching_files(
    folder: SandboxedDirectory, start: RelativePath, options: Sequence[str], budget: CallBudget
) -> Iterable[RelativePath] | None:
    """Return the files of which some line matches ripgrep's `options`; None where it cannot decide that.

    Binary files may be among them.
    """
    # A line of a large file would be kept in memory whole.
    limits = ["--files-with-matches", "--text", "--crlf", f"--max-filesize={MAX_FILE_BYTES}"]
    found = _run_ripgrep(folder, start, [*limits, *options], budget)
    return None if found is None else _within_budget(found, budget)


def _within_budget(files: Iterable[RelativePath], budget: CallBudget) -> Iterator[RelativePath]:
    return (file for file in files if budget.take_file())


def _run_ripgrep(
    folder: SandboxedDirectory, start: RelativePath, options: Sequence[str], budget: CallBudget
) -> list[RelativePath] | None:
    """Return the sorted paths that ripgrep prints; None where it is missing or had any trouble."""
    root = folder.root
    # ripgrep would list what must not be read.
    if folder.ripgrep is None or folder.hides_paths:
        return None
    if not any(os.path.lexists(above / ".git") for above in (root, *root.parents)):
        if start:
            # It cannot be told to apply the ignore files from the working directory on, but none above.
            return None
        options = ["--no-require-git", "--no-ignore-parent", *options]
    command = [folder.ripgrep, *_RIPGREP_OPTIONS, *options, "--", "/".join((".", *start))]
    with TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - options of ours, and a pattern that follows `--regexp=`
                command, cwd=root, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL
            )
        except OSError:
            return None
        with process:
            while process.poll() is None:
                try:
                    process.wait(_RIPGREP_POLL_INTERVAL)
                except subprocess.TimeoutExpired:
                    if budget.exhausted or os.fstat(output.fileno()).st_size > _MAX_LISTING_BYTES:
                        process.kill()
        # 0: found, 1: nothing found. A file or folder that cannot be read is an error, too.
        if process.returncode not in (0, 1):
            return None
        output.seek(0)
        paths = output.read(_MAX_LISTING_BYTES).split(b"\0")[:-1]
    return sorted(tuple(os.fsdecode(path).removeprefix("./").split("/")) for path in paths)


def _walk(
    folder: SandboxedDirectory, start: RelativePath, budget: CallBudget, unreadable: list[str]
) -> Iterator[RelativePath]:
    top = folder.root.joinpath(*start)
    stack = [iter(_list_directory(folder, start, _levels_above(top, folder.root), unreadable))]
    while stack:
        for place, below in stack[-1]:
            if below is not None and not budget.exhausted:
                stack.append(iter(_list_directory(folder, place, below, unreadable)))
                break
            if below is not None or not budget.take_file():
                return
            yield place
        else:
            stack.pop()


def _list_directory(
    folder: SandboxedDirectory, place: RelativePath, levels: IgnoreLevels, unreadable: list[str]
) -> Iterator[tuple[RelativePath, IgnoreLevels | None]]:
    """Yield the files of a directory, and its subdirectories with the ignore files that apply in them."""
    try:
        entries = folder.list_entries(place)
    except ToolError:
        unreadable.append(format_path(place))
        return
    parts = folder.root.joinpath(*place).parts
    if any(entry.name == ".gitignore" for entry in entries):
        levels = (*_read_level(Path(*parts), ".gitignore"), *levels)
    for entry in entries:
        is_dir = entry.kind == "directory"
        if entry.name == ".git" or not (is_dir or entry.kind == "file"):
            continue
        if not _is_ignored(levels, (*parts, entry.name), is_dir=is_dir):
            yield (*place, entry.name), levels if is_dir else None


def _is_ignored(levels: IgnoreLevels, parts: Sequence[str], *, is_dir: bool) -> bool:
    """Return what the nearest ignore file with a matching rule decides."""
    for depth, rules in levels:
        verdict = rules.match("/".join(parts[depth:]), is_dir=is_dir)
        if verdict is not None:
            return verdict
    return False


def _levels_above(folder: Path, top: Path) -> IgnoreLevels:
    """Return the ignore files above a directory: up to the root of its repository or, without one, up to `top`."""
    levels: list[tuple[int, IgnoreRules]] = []
    for above in (folder, *folder.parents):
        if above != folder:
            levels += _read_level(above, ".gitignore")
        if os.path.lexists(above / ".git"):
            return (*levels, *_read_level(above, ".git", "info", "exclude"))
    return tuple((depth, rules) for depth, rules in levels if depth >= len(top.parts))


def _read_level(folder: Path, *names: str) -> IgnoreLevels:
    try:
        data, _ = SandboxedDirectory(folder).read_bytes(names, _MAX_IGNORE_BYTES)
    except ToolError:
        return ()
    rules = parse_ignore_file(data.decode("utf-8-sig", "replace"))
    return ((len(folder.parts), rules),) if rules else ()
