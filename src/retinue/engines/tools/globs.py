"""Globs and ignore files as regular expressions that match in linear time, however hostile the pattern.

The first place where a fixed part between two stars fits is as good as any later one, so every such part is an
atomic group and nothing backtracks; the same holds for folders between two `**`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from retinue.engines.toolbox import ToolError

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
            raise ValueError(f"its braces stand for more than {_MAX_ALTERNATIVES} patterns")
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
