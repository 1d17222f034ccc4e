"""What git ignores: `.gitignore` files and `.git/info/exclude`, nested and with negation."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.folder import Folder
from retinue.engines.tools.globs import BadGlob, translate

_MAX_BYTES = 64 * 1024
"""Of one ignore file: real ones are fifty times smaller, and a hostile one shall not keep us busy."""
_MAX_RULES, _MAX_RULE = 1000, 256
"""Lines of it, and characters of a line: the same."""


class Rules(Struct, frozen=True):
    """The rules of one ignore file, for paths relative to its folder."""

    pattern: re.Pattern[str]
    """One group per rule, the last rule first."""
    ignored: tuple[bool, ...]
    """Of each group: whether what it matches is ignored, or, negated, is not."""

    def judge(self, path: str, *, is_dir: bool) -> bool | None:
        """Whether a path is ignored; None if no rule says anything of it."""
        found = self.pattern.fullmatch(path + "/" if is_dir else path)
        return self.ignored[found.lastindex - 1] if found and found.lastindex else None


class Ignored(Struct, frozen=True):
    """All rules that hold in one directory: its own and those of the folders above it."""

    levels: tuple[tuple[str, Rules], ...] = ()
    """Nearest first. Each with the path from its folder to this directory, `/` at the end."""

    def below(self, name: str) -> Ignored:
        """The same rules, for a subdirectory."""
        return Ignored(tuple((f"{prefix}{name}/", rules) for prefix, rules in self.levels))

    def plus(self, own: Rules | None) -> Ignored:
        """These rules and those of the directory's own file."""
        return Ignored((("", own), *self.levels)) if own else self

    def hides(self, name: str, *, is_dir: bool) -> bool:
        """Whether an entry of this directory is ignored: the nearest file with something to say decides."""
        for prefix, rules in self.levels:
            verdict = rules.judge(prefix + name, is_dir=is_dir)
            if verdict is not None:
                return verdict
        return False


@lru_cache(maxsize=128)
def parse(text: str) -> Rules | None:
    """The rules of an ignore file's text; None if there are none."""
    found = [rule for line in text.splitlines()[:_MAX_RULES] if (rule := _rule(line))]
    if not found:
        return None
    found.reverse()
    pattern = re.compile("|".join(f"({expression})" for expression, _ in found))
    return Rules(pattern, tuple(ignored for _, ignored in found))


def rules_of(folder: Path, *names: str) -> Rules | None:
    """The rules of an ignore file in a folder, by default its `.gitignore`; None without one that can be read."""
    try:
        data, _ = Folder(folder).read(names or (".gitignore",), _MAX_BYTES)
    except ToolError:
        return None
    return parse(data.decode("utf-8-sig", "replace"))


def inherited(folder: Path, top: Path) -> Ignored:
    """The rules a directory has from the folders above it.

    They end at the root of its repository, whose `.git/info/exclude` counts too; without one, at `top`.
    """
    levels: list[tuple[str, Rules]] = []
    outside = 0
    for above in (folder, *folder.parents):
        prefix = "".join(f"{part}/" for part in folder.relative_to(above).parts)
        if above != folder and (rules := rules_of(above)):
            levels.append((prefix, rules))
            outside += not above.is_relative_to(top)
        if _is_repository(above):
            if exclude := rules_of(above, ".git", "info", "exclude"):
                levels.append((prefix, exclude))
            return Ignored(tuple(levels))
    return Ignored(tuple(levels[: len(levels) - outside]))


def _is_repository(folder: Path) -> bool:
    try:
        Folder(folder).is_dir((".git",))
    except ToolError:
        return False
    return True


def _rule(line: str) -> tuple[str, bool] | None:
    """The expression of one line, and whether it ignores or, negated, takes that back."""
    line = _without_trailing_spaces(line)
    if not line or line.startswith("#") or len(line) > _MAX_RULE:
        return None
    ignored = not line.startswith("!")
    pattern = line if ignored else line[1:]
    only_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    try:
        expression = translate(pattern if anchored else f"**/{pattern}") if pattern else ""
    except BadGlob:
        return None
    return (f"{expression}/" if only_directories else f"{expression}/?", ignored) if expression else None


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    # A backslash keeps the one space after it.
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return stripped + " " if escaped and stripped != line else stripped
