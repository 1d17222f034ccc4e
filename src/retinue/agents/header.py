"""Reads a header into strings: `key: value` lines, YAML, or what can be saved of broken YAML.

Every scalar stays the text it is: `3000`, `no` and dates are strings. YAML is parsed into events only; nothing is
constructed, and aliases, tags, depth and size are refused before they can cost anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from retinue.agents.files import Broken

MAX_DEPTH = 16
MAX_NODES = 1000
"""Keys, values and lists together; real headers have some dozens."""

Value = str | tuple["Value", ...] | Mapping[str, "Value"]

_PLAIN_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,63}):(?: +(.*))?")
_PLAIN_START = re.compile(r"[^-?:,\[\]{}#&*!|>'\"%@` ]")
_QUOTED = re.compile(r"\"([^\"\\]*)\"|'([^']*)'")


class Header(Struct, frozen=True):
    """The keys of a header with their values, the line each stands in, and what was odd."""

    values: Mapping[str, Value] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[tuple[int, str], ...] = ()
    """Line and remark."""


EMPTY = Header()


def parse(source: str, *, first_line: int = 1) -> Header:
    """The header's keys and values. Of a key given twice the first counts, as a reader of the file would see it.

    Raises:
        Broken: hostile YAML, or text from which not even a name or description can be read.
    """
    pairs = _tidy(source)
    if pairs is not None:
        return _header(pairs, first_line)
    import yaml

    try:
        return _header(_from_yaml(source, first_line), first_line)
    except yaml.YAMLError as error:
        return _saved(source, error, first_line)


def _header(pairs: list[tuple[str, int, Value]], first_line: int, *notes: tuple[int, str]) -> Header:
    values: dict[str, Value] = {}
    lines: dict[str, int] = {}
    odd = list(notes)
    for key, index, value in pairs:
        if key in values:
            odd.append((first_line + index, f"{key} is given twice; the first counts (line {lines[key]})"))
        else:
            values[key], lines[key] = value, first_line + index
    return Header(values, lines, tuple(odd))


# -- plain lines -----------------------------------------------------------------------------------


def _tidy(source: str) -> list[tuple[str, int, Value]] | None:
    """The pairs of a header that any YAML reader reads alike; None where that is not certain.

    Spares most files the import of the YAML library, which costs more than all the rest of reading them.
    """
    pairs: list[tuple[str, int, Value]] = []
    for index, line in enumerate(source.split("\n")):
        if not line.isprintable():
            return None
        if not line.strip() or line.startswith("#"):
            continue
        found = _PLAIN_LINE.fullmatch(line)
        value = _tidy_value((found[2] or "").strip()) if found else None
        if found is None or value is None:
            return None
        pairs.append((found[1], index, value))
    return pairs if 2 * len(pairs) < MAX_NODES else None


def _tidy_value(text: str) -> str | None:
    if not text:
        return ""
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1] if quoted[1] is not None else quoted[2]
    plain = _PLAIN_START.match(text) and ": " not in text and " #" not in text and not text.endswith(":")
    return text if plain else None


# -- YAML ------------------------------------------------------------------------------------------


def _from_yaml(source: str, first_line: int) -> list[tuple[str, int, Value]]:
    import yaml

    # The C parser if it is there: the same events, faster.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    builder = _Builder(yaml.parse(source, Loader=loader), first_line)
    return builder.document()


class _Builder:
    """Makes strings, tuples and mappings of YAML events, and nothing else."""

    def __init__(self, events: Iterator[Any], first_line: int) -> None:
        self._events = events
        self._first_line = first_line
        self._nodes = 0

    def document(self) -> list[tuple[str, int, Value]]:
        while (event := next(self._events)).__class__.__name__ in {"StreamStartEvent", "DocumentStartEvent"}:
            pass
        match event.__class__.__name__:
            case "StreamEndEvent":
                return []
            case "MappingStartEvent":
                self._admit(event, 0)
                pairs = list(self._pairs(0))
            case _:
                raise self._refused(event, "the header is not a set of `key: value` lines")
        for event in self._events:
            if event.__class__.__name__ not in {"DocumentEndEvent", "StreamEndEvent"}:
                raise self._refused(event, "the header holds more than one YAML document")
        return pairs

    def _pairs(self, depth: int) -> Iterator[tuple[str, int, Value]]:
        while (event := next(self._events)).__class__.__name__ != "MappingEndEvent":
            line = event.start_mark.line
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                raise self._refused(event, "a key is a list or a mapping")
            yield key, line, self._value(next(self._events), depth + 1)

    def _value(self, event: Any, depth: int) -> Value:
        self._admit(event, depth)
        match event.__class__.__name__:
            case "ScalarEvent":
                return str(event.value)
            case "SequenceStartEvent":
                return tuple(self._items(depth))
            case _:
                found: dict[str, Value] = {}
                for key, _, value in self._pairs(depth):
                    found.setdefault(key, value)
                return found

    def _items(self, depth: int) -> Iterator[Value]:
        while (event := next(self._events)).__class__.__name__ != "SequenceEndEvent":
            yield self._value(event, depth + 1)

    def _admit(self, event: Any, depth: int) -> None:
        self._nodes += 1
        if event.anchor is not None:
            raise self._refused(event, "YAML anchors and aliases (& and *) are not allowed; quote the value")
        if event.tag not in {None, "tag:yaml.org,2002:str"}:
            raise self._refused(event, f"YAML tags ({event.tag.removeprefix('tag:yaml.org,2002:')}) are not allowed")
        if depth > MAX_DEPTH:
            raise self._refused(event, f"the header is nested too deeply (at most {MAX_DEPTH})")
        if self._nodes > MAX_NODES:
            raise self._refused(event, f"the header has too many entries (at most {MAX_NODES})")

    def _refused(self, event: Any, reason: str) -> Broken:
        return Broken(reason, self._first_line + int(event.start_mark.line))


# -- broken YAML -----------------------------------------------------------------------------------


def _saved(source: str, error: Any, first_line: int) -> Header:
    """What a line-by-line reading makes of a header that is not YAML, most often for a colon in a description."""
    mark = getattr(error, "problem_mark", None)
    line = first_line + (int(mark.line) if mark else 0)
    reason = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable")
    from retinue.agents.lenient import read_lines

    pairs: list[tuple[str, int, Value]] = [*read_lines(source)]
    if not {key.lower() for key, _, _ in pairs} & {"name", "description"}:
        raise Broken(f"the header is not valid YAML: {reason}", line)
    note = f"the header is not valid YAML ({reason}) and is read line by line; quote the value to be sure"
    return _header(pairs, first_line, (line, note))
