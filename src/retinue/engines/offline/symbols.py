"""Definitions in source text of most languages, found by the shape of their first line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

_DEFINITION = re.compile(
    r"""(?P<indent>[ \t]*)
    (?:@\w+\s+)?
    (?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|sealed|override
         |async|unsafe|pub(?:\([\w:\ ]+\))?)\s+)*
    (?:
        (?P<kind>class|def|function\*?|func|fn|interface|struct|enum|trait|type|record|module|namespace|protocol)
            \s+(?:\([^)]{0,80}\)\s*)?(?P<name>[A-Za-z_]\w*)
      | (?P<constant>(?:const\s+|static\s+)[A-Za-z_]\w*|[A-Z][A-Z0-9_]{2,})\s*(?::[^=]{1,80})?=(?!=)
    )""",
    re.VERBOSE,
)
_HEADING = re.compile(r"#{1,6} +(\S.{0,118}?)\s*#*$")
_OPENING_QUOTES = re.compile(r"""^[rRbBuU]?(?:\"{3}|'{3}|/\*\*?|//[/!]?|\#+|--|\*)\s*""")
_CLOSING_QUOTES = re.compile(r"""\s*(?:\"{3}|'{3}|\*/)\s*$""")
_CLOSERS = (")", "]", "}", "end")
_MOST_LINE = 300
"""Characters of a line that are looked at: more is data, and expressions must not take long over it."""
_TOP_LINES, _SHORTEST_SENTENCE = 15, 9
"""Where a file says what it is, and the characters that takes."""
_SUMMARY_WITHIN = 6
"""Lines after a definition in which its docstring begins; its signature may take several."""


class Symbol(Struct, frozen=True):
    """Something defined: a class, a function, a constant, or a heading of a document."""

    name: str
    kind: str
    """The keyword it was defined with; `constant` or `heading`."""
    line: int
    """From 1."""
    end: int
    """Its last line."""
    indent: int
    text: str
    """Its first line, without what surrounds it."""
    summary: str = ""
    """First sentence of the comment that belongs to it."""

    @property
    def is_callable(self) -> bool:
        return self.kind in ("def", "function", "function*", "func", "fn")

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_")


def symbols(lines: Sequence[str], *, first: int = 1) -> list[Symbol]:
    """The definitions in some lines of a file, of which the first has the given number."""
    return [
        _symbol(found, lines, index, first)
        for index, line in enumerate(lines)
        if (found := _DEFINITION.match(line[:_MOST_LINE]))
    ]


def name_defined(line: str) -> str | None:
    """What a line defines by itself; None if nothing."""
    found = _DEFINITION.match(line[:_MOST_LINE])
    return _name(found) if found else None


def headings(lines: Sequence[str], *, first: int = 1) -> list[Symbol]:
    """The headings in some lines of a document."""
    return [
        Symbol(found[1], "heading", index + first, index + first, 0, line.strip(), _below(lines, index))
        for index, line in enumerate(lines)
        if (found := _HEADING.match(line[:_MOST_LINE]))
    ]


def _symbol(found: re.Match[str], lines: Sequence[str], index: int, first: int) -> Symbol:
    indent = len(found["indent"].expandtabs(4))
    return Symbol(
        _name(found),
        found["kind"] or "constant",
        index + first,
        _end(lines, index, indent) + first,
        indent,
        lines[index].strip(),
        _summary(lines, index) if found["kind"] else "",
    )


def _name(found: re.Match[str]) -> str:
    return found["name"] or found["constant"].split()[-1]


def _end(lines: Sequence[str], index: int, indent: int) -> int:
    """The last line of the block that begins at a line: what follows is as far out as the block itself."""
    last = index
    for at in range(index + 1, len(lines)):
        stripped = lines[at].strip()
        if not stripped:
            continue
        depth = len(lines[at].expandtabs(4)) - len(lines[at].expandtabs(4).lstrip())
        if depth <= indent and not stripped.startswith(_CLOSERS):
            break
        last = at
        if depth <= indent and stripped != ")" and not stripped.endswith(("{", ":")):
            break
    return last


def _summary(lines: Sequence[str], index: int) -> str:
    """The first line of a docstring after the definition, or of a comment right before it."""
    for line in lines[index + 1 : index + 1 + _SUMMARY_WITHIN]:
        stripped = line.strip()
        if stripped.startswith(('"""', "'''", 'r"""')):
            return bare(stripped)
        if stripped.endswith((":", "{")) and stripped.startswith((")", "->")):
            continue
        if not stripped.endswith((",", "(", "[")) and not stripped.startswith((")", "]")):
            break
    comment = ""
    for line in reversed(lines[max(index - _SUMMARY_WITHIN, 0) : index]):
        stripped = line.strip()
        if stripped.startswith("@"):
            continue
        if not stripped.startswith(("//", "/*", "*", "--")) and not stripped.endswith("*/"):
            break
        comment = bare(stripped) or comment
    return comment


def _below(lines: Sequence[str], index: int) -> str:
    """The first line of prose under a heading."""
    for line in lines[index + 1 : index + 1 + _SUMMARY_WITHIN]:
        stripped = line.strip()
        if stripped.startswith("#"):
            break
        if stripped and stripped[0] not in "`|-=<":
            return stripped
    return ""


def opening(lines: Sequence[str]) -> str:
    """What a file says of itself at its top: the first line of prose in a docstring, comment or heading."""
    return next(_prose(lines), "")


def _prose(lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_TOP_LINES]:
        stripped = line.strip()
        text = bare(stripped)
        if len(text) >= _SHORTEST_SENTENCE and _OPENING_QUOTES.match(stripped) and not stripped.startswith("#!"):
            yield text


def bare(comment: str) -> str:
    """The words of a comment or docstring line."""
    return _CLOSING_QUOTES.sub("", _OPENING_QUOTES.sub("", comment[:_MOST_LINE])).strip()
