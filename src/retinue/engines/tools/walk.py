"""Every file and directory beneath a place, as far as git does not ignore it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.call_budget import CallBudget
from retinue.engines.tools.folder import RelativePath, SandboxedDirectory, format_path
from retinue.engines.tools.ignore import IgnoreStack, inherited_rules, read_rules


class WalkEntry(Struct, frozen=True):
    place: RelativePath
    is_dir: bool = False
    is_link: bool = False
    """A link itself; what it leads to is not looked at."""


class DirectoryWalk:
    """Walks depth first, in the order of names, lazily; hidden files too, `.git` never."""

    def __init__(self, folder: SandboxedDirectory, budget: CallBudget) -> None:
        self._folder = folder
        self._budget = budget
        self.unreadable: list[str] = []
        """Directories that could not be listed."""

    def iter_entries(self, start: RelativePath) -> Iterator[WalkEntry]:
        """The entries beneath a directory, until the allowance is spent."""
        root = self._folder.root
        stack = [self._list_directory(start, inherited_rules(root.joinpath(*start), root))]
        while stack:
            for entry, ignored in stack[-1]:
                if not self._budget.take_entry():
                    return
                yield entry
                if entry.is_dir:
                    stack.append(self._list_directory(entry.place, ignored.enter(entry.place[-1])))
                    break
            else:
                stack.pop()

    def _list_directory(self, place: RelativePath, ignored: IgnoreStack) -> Iterator[tuple[WalkEntry, IgnoreStack]]:
        """The entries of one directory, with the rules that hold in it."""
        try:
            found = self._folder.list_entries(place)
        except ToolError:
            self.unreadable.append(format_path(place))
            return
        if any(entry.name == ".gitignore" for entry in found):
            ignored = ignored.with_rules(read_rules(self._folder.root.joinpath(*place)))
        for entry in found:
            is_dir = _is_dir(entry)
            if entry.name != ".git" and not ignored.is_ignored(entry.name, is_dir=is_dir):
                yield WalkEntry((*place, entry.name), is_dir, entry.is_symlink()), ignored


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
