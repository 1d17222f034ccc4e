"""Lists of the files beneath a directory that git does not ignore: by ripgrep where it is installed, else by a walk.

Both have the same order and contents: regular files, hidden ones included, without links and `.git`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import MAX_FILE_BYTES, CallBudget, RelativePath, SandboxedDirectory, format_path
from retinue.engines.tools.globs import IgnoreRules, parse_ignore_file

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
    if folder.ripgrep is None:
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
