"""What a file is, by its path, and what its lines are, by their shape: definitions of most languages, headings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

Kind = Literal["source", "tests", "docs", "config", "aside", "noise"]
"""What a file is for; `aside` is code that shows or measures the source rather than being it."""

_KINDS: Mapping[Kind, str] = {
    # The first that fits counts.
    "noise": r"(?:^|/)(?:node_modules|vendor|third_party|dist|build|\.venv|venv|__pycache__|\.\w+_cache)/"
    r"|\.(?:lock|min\.js|map|svg|csv|snap|ambr|log)$|(?:^|/)(?:package-lock\.json|[\w.-]*lock\.ya?ml)$",
    "tests": r"(?:^|/)(?:tests?|specs?|__tests__|testdata|fixtures)/|(?:^|/)(?:test_|conftest)[^/]*$"
    r"|[_.-](?:test|spec)\.\w+$",
    "config": r"\.(?:toml|ya?ml|json|ini|cfg|conf|env|properties)$|(?:^|/)(?:Makefile|Dockerfile)$"
    r"|(?:^|/)requirements\b.*\.txt$",
    "docs": r"(?:^|/)docs?/|\.(?:md|markdown|rst|adoc|txt)$",
    "aside": r"(?:^|/)(?:bench(?:marks?)?|examples?|demos?|samples?|scripts)/|(?:^|/)demo\.\w+$",
}
_MARKDOWN = re.compile(r"\.(?:md|markdown)$", re.IGNORECASE)
_NOT_THE_TOPIC = re.compile(r"^(?:test_|spec_)|(?:[_.-](?:test|spec))?(?:\.\w+)+$")

_DEFINITION = re.compile(
    r"""[ \t]*
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
_MOST_LINE = 300
"""Characters of a line that are looked at: more is data, and expressions must not take long over it."""
_TOP_LINES, _SHORTEST_SENTENCE = 15, 9
"""Where a file says what it is, and the characters that takes."""
_SUMMARY_WITHIN = 6
"""Lines after a definition in which its docstring begins; its signature may take several."""


class SourceLine(Struct, frozen=True):
    """A line of a file that is worth a look."""

    path: str
    line: int
    text: str
    note: str = ""
    """What is to be said of it."""


class SymbolDefinition(SourceLine, frozen=True, kw_only=True):
    """A line that defines something: a class, a function, a constant, or a heading of a document.

    Its note is the first sentence of the comment that belongs to it.
    """

    name: str
    kind: str
    """The keyword it was defined with; `constant` or `heading`."""
    end: int
    """Its last line."""

    @property
    def is_callable(self) -> bool:
        return self.kind in ("def", "function", "function*", "func", "fn")

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_")


class SourceFile(Struct, frozen=True):
    """A file, or a part of it, as it was read."""

    path: str
    lines: Sequence[str]
    first: int = 1
    """Number of the first line."""

    def hits(self) -> list[SourceLine]:
        """All its lines."""
        return [SourceLine(self.path, number, line) for number, line in enumerate(self.lines, self.first)]


def classify_path(path: str) -> Kind:
    found = (kind for kind, pattern in _KINDS.items() if re.search(pattern, path, re.IGNORECASE))
    return next(found, "source")


def is_markdown(path: str) -> bool:
    """Whether a `#` begins a heading there, not a comment."""
    return _MARKDOWN.search(path) is not None


def topic_of(path: str) -> str:
    """The name of what a file is about, whether it is the source or the test: `loop` for `test_loop.py`."""
    return _NOT_THE_TOPIC.sub("", path.rpartition("/")[2])


def find_symbols(read: SourceFile) -> list[SymbolDefinition]:
    """What a file defines; of a document, its headings."""
    symbol = _parse_heading if is_markdown(read.path) else _parse_definition
    return [found for index in range(len(read.lines)) if (found := symbol(read, index))]


def defined_name(line: str) -> str | None:
    """What a line defines by itself; None if nothing."""
    found = _DEFINITION.match(line[:_MOST_LINE])
    return _name(found) if found else None


def opening_sentence(read: SourceFile) -> str:
    """What a file says of itself at its top: its first heading, or the first line of prose in a comment."""
    if is_markdown(read.path):
        return next((heading.name for heading in find_symbols(read)), "")
    top = [line.strip() for line in read.lines[:_TOP_LINES]]
    comments = (
        strip_comment_marks(line) for line in top if _OPENING_QUOTES.match(line) and not line.startswith("#!")
    )
    return next((text for text in comments if len(text) >= _SHORTEST_SENTENCE), "")


def strip_comment_marks(comment: str) -> str:
    """The words of a comment or docstring line."""
    return _CLOSING_QUOTES.sub("", _OPENING_QUOTES.sub("", comment[:_MOST_LINE])).strip()


def indent_of(line: str) -> int:
    line = line.expandtabs(4)
    return len(line) - len(line.lstrip())


def _parse_definition(read: SourceFile, index: int) -> SymbolDefinition | None:
    line = read.lines[index]
    found = _DEFINITION.match(line[:_MOST_LINE])
    if found is None:
        return None
    kind = found["kind"] or "constant"
    note = _docstring(read.lines, index) or _comment(read.lines, index) if found["kind"] else ""
    end = _block_end(read.lines, index) + read.first
    return SymbolDefinition(read.path, index + read.first, line, note, name=_name(found), kind=kind, end=end)


def _parse_heading(read: SourceFile, index: int) -> SymbolDefinition | None:
    line, number = read.lines[index], index + read.first
    found = _HEADING.match(line[:_MOST_LINE])
    if found is None:
        return None
    return SymbolDefinition(
        read.path, number, line, _first_prose_line(read.lines, index), name=found[1], kind="heading", end=number
    )


def _name(found: re.Match[str]) -> str:
    return found["name"] or found["constant"].split()[-1]


def _block_end(lines: Sequence[str], index: int) -> int:
    """The last line of the block that begins at a line: what follows is as far out as the block itself."""
    last, indent = index, indent_of(lines[index])
    for at in range(index + 1, len(lines)):
        stripped = lines[at].strip()
        if not stripped:
            continue
        is_outside = indent_of(lines[at]) <= indent
        if is_outside and not stripped.startswith((")", "]", "}", "end")):
            break
        last = at
        if is_outside and stripped != ")" and not stripped.endswith(("{", ":")):
            break
    return last


def _docstring(lines: Sequence[str], index: int) -> str:
    """The first line of a docstring after a definition, whose signature may go on."""
    for line in lines[index + 1 : index + 1 + _SUMMARY_WITHIN]:
        stripped = line.strip()
        if stripped.startswith(('"""', "'''", 'r"""')):
            return strip_comment_marks(stripped)
        if not stripped.endswith((",", "(", "[")) and not stripped.startswith((")", "]", "->")):
            break
    return ""


def _comment(lines: Sequence[str], index: int) -> str:
    """The first line of a comment right before a definition."""
    comment = ""
    for line in reversed(lines[max(index - _SUMMARY_WITHIN, 0) : index]):
        stripped = line.strip()
        if not stripped.startswith(("@", "//", "/*", "*", "--")) and not stripped.endswith("*/"):
            break
        comment = ("" if stripped.startswith("@") else strip_comment_marks(stripped)) or comment
    return comment


def _first_prose_line(lines: Sequence[str], index: int) -> str:
    """The first line of prose under a heading."""
    for line in lines[index + 1 : index + 1 + _SUMMARY_WITHIN]:
        stripped = line.strip()
        if stripped.startswith("#"):
            break
        if stripped and stripped[0] not in "`|-=<":
            return stripped
    return ""
