"""Glob patterns as regular expressions that match in linear time, however hostile the pattern.

The first place where a fixed part between two stars fits is as good as any later one, so every such part is an
atomic group and nothing backtracks; the same holds for folders between two `**`.
"""

from __future__ import annotations

import re
from itertools import product

_ANY = "[^/]"
_SEGMENT_END = r"(?=/|\Z)"
_MAX_PATTERN_LENGTH = 512
"""Characters of a pattern with braces: nested ones are read by recursion."""
_NOT_EMPTY = f"(?={_ANY})"


class InvalidGlobError(ValueError):
    """A pattern that matches nothing; the message says what is wrong with it."""


def translate_glob(pattern: str) -> str:
    """The expression a relative path fully matches iff the glob does: `*`, `?`, `[a-z]`, `**` and escapes.

    Raises:
        BadGlob: a bracket is not closed.
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


def expand_braces(pattern: str, max_patterns: int = 64) -> list[str]:
    """The patterns that a pattern with `{a,b}` stands for.

    Raises:
        BadGlob: they are more than `most`, or the pattern is too long to tell.
    """
    if len(pattern) > _MAX_PATTERN_LENGTH:
        raise InvalidGlobError(f"it is longer than {_MAX_PATTERN_LENGTH} characters")
    found = _expand(pattern, max_patterns)
    if len(found) > max_patterns:
        raise InvalidGlobError(f"its braces stand for more than {max_patterns} patterns")
    return found


def compile_glob(pattern: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """For whole relative paths; a pattern without a slash is one for names at any depth.

    Raises:
        BadGlob: see `translate` and `alternatives`.
    """
    every = (translate_glob(f"**/{each.removeprefix('./')}") for each in expand_braces(pattern))
    return re.compile("|".join(f"(?:{each})" for each in every), re.IGNORECASE if ignore_case else 0)


def _translate_segment(segment: str) -> str:
    """One name between slashes."""
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
    return f"(?>{_NOT_EMPTY}{first}{inner}{_ANY}*{others[-1]}{_SEGMENT_END})"


def _next_token(rest: str) -> tuple[str | None, str]:
    """The expression of the first thing in a pattern (None: a star), and the remaining pattern."""
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
    """The expression of a bracket such as `[!a-z]`, and what follows it."""
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
        raise InvalidGlobError("a bracket is not closed")
    negated = "^" if start == 2 else ""  # noqa: PLR2004 - the place after "[!"
    # A class of nothing but reversed ranges matches nothing; negated, anything.
    inside = f"[{negated}{''.join(members)}]" if members else (_ANY if negated else r"(?!)")
    return f"(?!/){inside}", rest[at + 1 :]


def _expand(pattern: str, max_patterns: int) -> list[str]:
    """Stops expanding, with too many, once there are more than `most`."""
    opened = _split_braces(pattern)
    if opened is None:
        return [pattern]
    before, options, after = opened
    tails = _expand(after, max_patterns)
    heads = [each for option in options for each in _expand(option, max_patterns)]
    if len(heads) * len(tails) > max_patterns:
        return [pattern] * (max_patterns + 1)
    return [before + middle + tail for middle, tail in product(heads, tails)]


def _split_braces(pattern: str) -> tuple[str, list[str], str] | None:
    """What is before, in and after the first closed pair of braces with a comma in it."""
    depth, start, cuts = 0, -1, list[int]()
    at = 0
    while at < len(pattern):
        match pattern[at]:
            case "\\":
                at += 1
            case "{":
                depth += 1
                if depth == 1:
                    start, cuts = at, [at]
            case "," if depth == 1:
                cuts.append(at)
            case "}" if depth:
                depth -= 1
                if depth == 0 and len(cuts) > 1:
                    ends = [*cuts[1:], at]
                    options = [pattern[low + 1 : high] for low, high in zip(cuts, ends, strict=True)]
                    return pattern[:start], options, pattern[at + 1 :]
        at += 1
    return None
