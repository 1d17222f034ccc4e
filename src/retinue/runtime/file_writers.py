"""The files that parallel tasks write: two tasks with one output file overwrite each other's work."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from retinue.model.runs import RunSpec, ToolArguments

WRITING_TOOLS = frozenset({"write", "edit"})
MAX_FILES = 10_000
"""Files that are remembered; beyond them, overlaps are not found."""


class _Writer:
    """A run that wrote files, and when it ended."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.started = anyio.current_time()
        self.ended: float | None = None

    def overlaps(self, other: _Writer) -> bool:
        """Return whether both are tasks of one caller, and were active at the same time."""
        is_sibling = self.spec.lineage.root == other.spec.lineage.root and (
            self.spec.lineage.parent_run == other.spec.lineage.parent_run
        )
        return is_sibling and (other.ended is None or other.ended > self.started)


class FileWriters:
    """Finds the files that overlapping tasks of one caller write, by the calls of their file tools."""

    def __init__(self) -> None:
        self._active: dict[str, _Writer] = {}
        self._files: dict[str, list[_Writer]] = {}

    def start(self, spec: RunSpec) -> None:
        self._active[spec.run] = _Writer(spec)

    def end(self, run: str) -> None:
        if writer := self._active.pop(run, None):
            writer.ended = anyio.current_time()
        if not self._active:
            self._files.clear()

    def add(self, run: str, tool: str, args: ToolArguments) -> str | None:
        """Note a call of a run; return a notice if another task has written the same file meanwhile."""
        path, writer = args.get("path") or args.get("file_path"), self._active.get(run)
        if tool not in WRITING_TOOLS or not isinstance(path, str) or writer is None:
            return None
        file = os.path.normpath(Path(writer.spec.cwd, path))
        if file not in self._files and len(self._files) >= MAX_FILES:
            return None
        writers = self._files.setdefault(file, [])
        if writer in writers:
            return None
        other = next((each for each in writers if writer.overlaps(each)), None)
        writers.append(writer)
        if other is None:
            return None
        return (
            f'The task "{other.spec.name}" (run {other.spec.run[:8]}) also wrote {file} while this run was active: '
            "one may have overwritten the other. Give each task a file of its own, or run the tasks as a chain."
        )
