"""Asking the run's own tools, and reading what they answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from retinue.types import Args

_HIT = re.compile(r"(.+?):(\d+): (.*)")
_NOTICE = re.compile(r"(?:\A|\n\n)\[([^\n]*)\]\Z")
_NOTHING = ("No matches found", "No files found matching pattern", "(empty directory)")


class Ask(Struct, frozen=True):
    """A wish to call a tool."""

    tool: str
    args: Args


class Got(Struct, frozen=True):
    """What the tool answered."""

    ask: Ask
    text: str
    is_error: bool = False

    @property
    def notice(self) -> str:
        """What the tool says of its own answer; empty if nothing."""
        found = _NOTICE.search(self.text)
        return found[1] if found else ""

    @property
    def is_cut(self) -> bool:
        return bool(self.notice)

    @property
    def lines(self) -> list[str]:
        """The answer without the notice; nothing if there was none, or an error."""
        body = _NOTICE.sub("", self.text)
        return [] if self.is_error or not body or body in _NOTHING else body.split("\n")


class Hit(Struct, frozen=True):
    """A line of a file in which something was found."""

    path: str
    line: int
    text: str


class Source(Struct, frozen=True):
    """A file, or a part of it, as it was read."""

    path: str
    lines: tuple[str, ...]
    first: int = 1
    """Number of the first line."""

    def numbered(self) -> Iterator[tuple[int, str]]:
        return enumerate(self.lines, self.first)


def grep(
    pattern: str, *, path: str = ".", glob: str | None = None, limit: int = 100, ignore_case: bool = True
) -> Ask:
    wanted = {"pattern": pattern, "path": path, "ignoreCase": ignore_case, "limit": limit}
    return Ask("grep", {**wanted, "glob": glob} if glob else wanted)


def find(pattern: str, *, path: str = ".", limit: int = 60) -> Ask:
    return Ask("find", {"pattern": pattern, "path": path, "limit": limit})


def read(path: str, *, offset: int = 1) -> Ask:
    return Ask("read", {"path": path, "offset": offset} if offset > 1 else {"path": path})


def ls(path: str = ".") -> Ask:
    return Ask("ls", {"path": path})


def hits(got: Got) -> list[Hit]:
    """The lines a `grep` found."""
    return [Hit(found[1], int(found[2]), found[3]) for line in got.lines if (found := _HIT.fullmatch(line))]


def source(got: Got) -> Source | None:
    """What a `read` showed; None if it could not."""
    if got.is_error:
        return None
    return Source(got.ask.args["path"], tuple(got.lines), got.ask.args.get("offset", 1))


def answered(got: Sequence[Got], tool: str) -> list[Got]:
    """The answers of one tool."""
    return [each for each in got if each.ask.tool == tool]
