"""Every file and directory beneath a place, as far as git does not ignore it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.allowance import Allowance
from retinue.engines.tools.folder import Folder, Parts, shown
from retinue.engines.tools.ignore import Ignored, inherited, rules_of


class Entry(Struct, frozen=True):
    place: Parts
    is_dir: bool = False
    is_link: bool = False
    """A link itself; what it leads to is not looked at."""


class Walk:
    """Walks depth first, in the order of names, lazily; hidden files too, `.git` never."""

    def __init__(self, folder: Folder, allowance: Allowance) -> None:
        self._folder = folder
        self._allowance = allowance
        self.unread: list[str] = []
        """Directories that could not be listed."""

    def below(self, start: Parts) -> Iterator[Entry]:
        """The entries beneath a directory, until the allowance is spent."""
        root = self._folder.root
        stack = [self._listed(start, inherited(root.joinpath(*start), root))]
        while stack:
            for entry, ignored in stack[-1]:
                if not self._allowance.take_entry():
                    return
                yield entry
                if entry.is_dir:
                    stack.append(self._listed(entry.place, ignored.below(entry.place[-1])))
                    break
            else:
                stack.pop()

    def _listed(self, place: Parts, ignored: Ignored) -> Iterator[tuple[Entry, Ignored]]:
        """The entries of one directory, with the rules that hold in it."""
        try:
            found = self._folder.entries(place)
        except ToolError:
            self.unread.append(shown(place))
            return
        if any(entry.name == ".gitignore" for entry in found):
            ignored = ignored.plus(rules_of(self._folder.root.joinpath(*place)))
        for entry in found:
            is_dir = _is_dir(entry)
            if entry.name != ".git" and not ignored.hides(entry.name, is_dir=is_dir):
                yield Entry((*place, entry.name), is_dir, entry.is_symlink()), ignored


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
