"""An entry in a JSON file, put in and taken out as text: whatever else stands there stays byte for byte.

Comments and trailing commas, which several hosts allow, stay as well. Where things stand is found in a text of the
same length in which they are blank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from retinue.frontends.hosts.forms import Entry, Unfit

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


class _Member(Struct, frozen=True):
    """Where a member of an object stands: `"key": value`."""

    key: str
    start: int
    value: int
    end: int


class _Object(Struct, frozen=True):
    start: int
    """Of its brace."""
    end: int
    """Of its other brace."""
    members: tuple[_Member, ...]

    def member(self, key: str) -> _Member | None:
        found = [member for member in self.members if member.key == key]
        if len(found) > 1:
            raise Unfit(f'it says "{key}" more than once')
        return found[0] if found else None


class JsonForm:
    """The entry is the member at the end of a path of keys, such as `mcpServers` → `retinue`."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def entry(self, text: str) -> Entry | None:
        found: Any = _parsed(text)
        for key in self._keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None

    def with_entry(self, text: str, entry: Entry) -> str:
        if not text.strip():
            return f"{self.by_hand(entry)}\n"
        wanted = _nested(_parsed(text), self._keys, entry)
        return _checked(_put(text, _blanked(text), _top(_blanked(text)), self._keys, entry), wanted)

    def without_entry(self, text: str) -> str:
        *outer, name = self._keys
        wanted, blanked = _parsed(text), _blanked(text)
        inside, place = wanted, _top(blanked)
        for key in outer:
            inside, place = inside[key], _object_at(blanked, place, key)
        del inside[name]
        return _checked(_cut(text, place, name), wanted)

    def by_hand(self, entry: Entry) -> str:
        return json.dumps(_nested({}, self._keys, entry), indent=2, ensure_ascii=False)


def _parsed(text: str) -> Any:
    """The whole text as a value: an object, empty if there is nothing in the text."""
    if not text.strip():
        return {}
    try:
        found = json.loads(_blanked(text).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise Unfit(f"it is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unfit("it is no JSON object")
    return found


def _blanked(text: str) -> str:
    """The text with blanks for comments and for commas after which nothing comes."""
    return _LAST_COMMA.sub(_blank, _COMMENT.sub(_blank, text))


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[1] else re.sub(r"[^\r\n]", " ", found[0])


def _nested(value: dict[str, Any], keys: Sequence[str], entry: Entry) -> dict[str, Any]:
    """The value with the entry at the end of the keys."""
    key, *rest = keys
    if not rest:
        return {**value, key: dict(entry)}
    inner = value.get(key, {})
    if not isinstance(inner, dict):
        raise Unfit(f'"{key}" in it is no object')
    return {**value, key: _nested(inner, rest, entry)}


def _checked(text: str, wanted: Any) -> str:
    """The text, if it says what was wanted: a mistake of ours must not reach anyone's file."""
    if _parsed(text) != wanted:
        raise Unfit("it could not be changed safely")
    return text


# -- where things stand ----------------------------------------------------------------------------


def _top(text: str) -> _Object:
    return _object(text, _skip(text, 1 if text.startswith("\ufeff") else 0))


def _object_at(text: str, place: _Object, key: str) -> _Object:
    member = place.member(key)
    assert member is not None
    return _object(text, member.value)


def _object(text: str, start: int) -> _Object:
    """The object at a brace in a text that is known to be JSON."""
    at, members = _skip(text, start + 1), []
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_Member(key, at, value, end))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return _Object(start, at, tuple(members))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


# -- how they are changed --------------------------------------------------------------------------


def _put(text: str, blanked: str, place: _Object, keys: Sequence[str], entry: Entry) -> str:
    key, *rest = keys
    member = place.member(key)
    if member and rest and text[member.value] == "{":
        return _put(text, blanked, _object(blanked, member.value), rest, entry)
    value = _nested({}, rest, entry) if rest else dict(entry)
    if member:
        return text[: member.value] + _spelled(text, place, value, _indent(text, member.start)) + text[member.end :]
    return _added(text, place, key, value)


def _added(text: str, place: _Object, key: str, value: Any) -> str:
    """A new member after the last one, in the manner of those that are there."""
    line = _newline(text)
    if not place.members:
        outer = _indent(text, place.start)
        inner = outer + _unit(text)
        new = f"{line}{inner}{json.dumps(key)}: {_spelled(text, place, value, inner)}{line}{outer}"
        kept = text[place.start + 1 : place.end].rstrip()  # comments, if anything
        return text[: place.start + 1] + kept + new + text[place.end :]
    last = place.members[-1]
    indent = _indent(text, last.start)
    gap = f",{line}{indent}" if _is_broken(text, place) else ", "
    written = _spelled(text, place, value, indent)
    return f"{text[: last.end]}{gap}{json.dumps(key)}: {written}{text[last.end :]}"


def _is_broken(text: str, place: _Object) -> bool:
    """Whether an object has each of its members on a line of its own, as an empty one will."""
    return not place.members or "\n" in text[place.start : place.members[0].start]


def _cut(text: str, place: _Object, key: str) -> str:
    """The text without a member and its comma, nor what is blank around it; comments stay."""
    number = [member.key for member in place.members].index(key)
    member = place.members[number]
    if len(place.members) == 1:
        start, end = place.start + 1, place.end
    elif number:
        start, end = place.members[number - 1].end, member.end
    else:
        start, end = member.start, place.members[1].start
    return text[:start] + _comments(text, start, member.start) + _comments(text, member.end, end) + text[end:]


def _comments(text: str, start: int, end: int) -> str:
    """What stands between two members without its comma; nothing if there is no comment in it."""
    code = _COMMENT.sub(_blank, text)[start:end]
    between = text[start:end]
    return "" if code == between else "".join(sign for sign, of in zip(between, code, strict=True) if of != ",")


def _spelled(text: str, place: _Object, value: Any, indent: str) -> str:
    """A value as the members of an object are written: on lines of its own, the first one indented, or on theirs."""
    if not _is_broken(text, place):
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return f"{_newline(text)}{indent}".join(lines)


def _indent(text: str, at: int) -> str:
    """The white space at the beginning of a place's line."""
    begin = text.rfind("\n", 0, at) + 1
    return text[begin : begin + len(text[begin:at]) - len(text[begin:at].lstrip(" \t"))]


def _unit(text: str) -> str:
    """By how much the text indents: as its first member, else two spaces."""
    found = re.search(r'\n([ \t]+)"', text)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
