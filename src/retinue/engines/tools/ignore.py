"""What git ignores: `.gitignore` files and `.git/info/exclude`, nested and with negation."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.folder import SandboxedDirectory
from retinue.engines.tools.globs import InvalidGlobError, translate_glob

_MAX_BYTES = 64 * 1024
"""Of one ignore file: real ones are fifty times smaller, and a hostile one shall not keep us busy."""
_MAX_RULES, _MAX_RULE = 1000, 256
"""Lines of it, and characters of a line: the same."""


class IgnoreRules(Struct, frozen=True):
    """The rules of one ignore file, for paths relative to its folder."""

    pattern: re.Pattern[str]
    """One group per rule, the last rule first."""
    ignored: tuple[bool, ...]
    """Of each group: whether what it matches is ignored, or, negated, is not."""

    def match(self, path: str, *, is_dir: bool) -> bool | None:
        """Whether a path is ignored; None if no rule says anything of it."""
        found = self.pattern.fullmatch(path + "/" if is_dir else path)
        return self.ignored[found.lastindex - 1] if found and found.lastindex else None


class IgnoreStack(Struct, frozen=True):
    """All rules that hold in one directory: its own and those of the folders above it."""

    levels: tuple[tuple[str, IgnoreRules], ...] = ()
    """Nearest first. Each with the path from its folder to this directory, `/` at the end."""

    def enter(self, name: str) -> IgnoreStack:
        """The same rules, for a subdirectory."""
        return IgnoreStack(tuple((f"{prefix}{name}/", rules) for prefix, rules in self.levels))

    def with_rules(self, own: IgnoreRules | None) -> IgnoreStack:
        """These rules and those of the directory's own file."""
        return IgnoreStack((("", own), *self.levels)) if own else self

    def is_ignored(self, name: str, *, is_dir: bool) -> bool:
        """Whether an entry of this directory is ignored: the nearest file with something to say decides."""
        for prefix, rules in self.levels:
            verdict = rules.match(prefix + name, is_dir=is_dir)
            if verdict is not None:
                return verdict
        return False


@lru_cache(maxsize=128)
def parse_rules(text: str) -> IgnoreRules | None:
    """The rules of an ignore file's text; None if there are none."""
    found = [rule for line in text.splitlines()[:_MAX_RULES] if (rule := _parse_rule(line))]
    if not found:
        return None
    found.reverse()
    pattern = re.compile("|".join(f"({expression})" for expression, _ in found))
    return IgnoreRules(pattern, tuple(ignored for _, ignored in found))


def read_rules(folder: Path, *names: str) -> IgnoreRules | None:
    """The rules of an ignore file in a folder, by default its `.gitignore`; None without one that can be read."""
    try:
        data, _ = SandboxedDirectory(folder).read(names or (".gitignore",), _MAX_BYTES)
    except ToolError:
        return None
    return parse_rules(data.decode("utf-8-sig", "replace"))


def inherited_rules(folder: Path, top: Path) -> IgnoreStack:
    """The rules a directory has from the folders above it.

    They end at the root of its repository, whose `.git/info/exclude` counts too; without one, at `top`.
    """
    levels: list[tuple[str, IgnoreRules]] = []
    outside = 0
    for above in (folder, *folder.parents):
        prefix = "".join(f"{part}/" for part in folder.relative_to(above).parts)
        if above != folder and (rules := read_rules(above)):
            levels.append((prefix, rules))
            outside += not above.is_relative_to(top)
        if _is_repository(above):
            if exclude := read_rules(above, ".git", "info", "exclude"):
                levels.append((prefix, exclude))
            return IgnoreStack(tuple(levels))
    return IgnoreStack(tuple(levels[: len(levels) - outside]))


def _is_repository(folder: Path) -> bool:
    try:
        SandboxedDirectory(folder).is_dir((".git",))
    except ToolError:
        return False
    return True


def _parse_rule(line: str) -> tuple[str, bool] | None:
    """The expression of one line, and whether it ignores or, negated, takes that back."""
    line = _strip_trailing_spaces(line)
    if not line or line.startswith("#") or len(line) > _MAX_RULE:
        return None
    ignored = not line.startswith("!")
    pattern = line if ignored else line[1:]
    only_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    try:
        expression = translate_glob(pattern if anchored else f"**/{pattern}") if pattern else ""
    except InvalidGlobError:
        return None
    return (f"{expression}/" if only_directories else f"{expression}/?", ignored) if expression else None


def _strip_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    # A backslash keeps the one space after it.
    escaped = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
    return stripped + " " if escaped and stripped != line else stripped
