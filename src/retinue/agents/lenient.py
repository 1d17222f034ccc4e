"""Reads a header that is not valid YAML line by line, as people mean it.

A line `key: rest` at the left margin begins a value and the lines up to the next belong to it: a list if each begins
with `- `, lines kept after `|`, else one text. Colons in the rest mean nothing.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

_KEY = re.compile(r"[\"']?([A-Za-z_][A-Za-z0-9_-]{0,63})[\"']?[ \t]*:(?:[ \t]+(.*))?")
_BLOCK = re.compile(r"[|>][+-]?[0-9]?")
# With a space on both sides: `issue #12` is prose.
_COMMENT = re.compile(r"(?:^|\s)# .*$")
_EXAMPLE, _EXAMPLE_END = "<example>", "</example>"
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def read_lines(source: str) -> Iterator[tuple[str, int, str | tuple[str, ...]]]:
    """The keys with the index of their line and their values, in order."""
    key, start, first, rest = "", 0, "", list[str]()
    for index, line, is_example in _lines(source):
        found = None if is_example else _KEY.fullmatch(line)
        if found:
            if key:
                yield key, start, _value(first, rest)
            key, start, first, rest = found[1], index, (found[2] or "").strip(), []
        elif not line.startswith("#"):
            rest.append(line)
    if key:
        yield key, start, _value(first, rest)


def _lines(source: str) -> Iterator[tuple[int, str, bool]]:
    """Each line, and whether it stands inside an example: `user: …` there is speech, not a key."""
    lines = source.split("\n")
    last_end = max((index for index, line in enumerate(lines) if _EXAMPLE_END in line), default=-1)
    inside = False
    for index, line in enumerate(lines):
        # An example that is never closed is none: it must not swallow the keys after it.
        yield index, line, inside and index <= last_end
        if _EXAMPLE in line or _EXAMPLE_END in line:
            inside = line.rfind(_EXAMPLE) > line.rfind(_EXAMPLE_END)


def _value(first: str, rest: list[str]) -> str | tuple[str, ...]:
    lines = [line.strip() for line in rest if line.strip()]
    if _BLOCK.fullmatch(first):
        return _block(first, rest)
    if not first and lines and all(re.match(r"-(\s|$)", line) for line in lines):
        return tuple(_scalar(line[1:].strip()) for line in lines)
    if first.startswith("[") and (closed := " ".join([first, *lines]).rstrip(" ,")).endswith("]"):
        return tuple(_scalar(item) for item in closed[1:-1].split(",") if item.strip())
    return _scalar(" ".join([first, *lines]).strip())


def _block(first: str, rest: list[str]) -> str:
    text = textwrap.dedent("\n".join(rest)).strip("\n")
    if first.startswith("|"):
        return text
    return "\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _scalar(text: str) -> str:
    text = text.strip()
    quote = text[:1]
    closing = text.rfind(quote) if quote in {'"', "'"} else 0
    if closing > 0 and not _COMMENT.sub("", text[closing + 1 :]).strip():
        inner = text[1:closing]
        return _unescaped(inner) if quote == '"' else inner.replace("''", "'")
    return _COMMENT.sub("", text).strip()


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)
