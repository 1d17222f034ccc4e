"""Edit our entry in the configuration of a host: JSON with comments, TOML, or a whole file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

ConfigEntry = Mapping[str, Any]


class UnsupportedConfigError(Exception):
    """The file cannot be read or changed safely; the message has the reason."""


class ConfigEditor(Protocol):
    def find_entry(self, text: str) -> ConfigEntry | None:
        """Return our entry; None if there is none.

        Raises:
            UnsupportedConfigError: the text cannot be read or, in the other methods, changed.
        """

    def with_entry(self, text: str, entry: ConfigEntry) -> str:
        """Return the text with this entry added or replaced and everything else unchanged."""

    def without_entry(self, text: str) -> str:
        """Return the text without our entry; empty if nothing else is left."""

    def manual_instructions(self, entry: ConfigEntry) -> str:
        """Return the text a person can add by hand."""


_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)


class _JsonProperty(Struct, frozen=True):
    """The position of one `"key": value` of an object in the text."""

    key: str
    start: int
    value: int
    end: int


class _JsonObject(Struct, frozen=True):
    start: int
    """Position of the opening brace."""
    end: int
    """Position of the closing brace."""
    members: tuple[_JsonProperty, ...]

    def find_property(self, key: str) -> _JsonProperty | None:
        found = [member for member in self.members if member.key == key]
        if len(found) > 1:
            raise UnsupportedConfigError(f'the key "{key}" occurs more than once')
        return found[0] if found else None


class JsonEditor:
    """Edits the property at the end of a path of keys, such as `mcpServers` → `retinue`, in JSON with comments."""

    def __init__(self, *keys: str) -> None:
        self._keys = keys

    def find_entry(self, text: str) -> ConfigEntry | None:
        found: Any = _parse_text(text)
        for key in self._keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else None

    def with_entry(self, text: str, entry: ConfigEntry) -> str:
        if not text.strip():
            return f"{self.manual_instructions(entry)}\n"
        wanted = _set_nested(_parse_text(text), self._keys, entry)
        return _verify_text(
            _put_entry(text, _blank_comments(text), _top_object(_blank_comments(text)), self._keys, entry), wanted
        )

    def without_entry(self, text: str) -> str:
        *outer, name = self._keys
        wanted, blanked = _parse_text(text), _blank_comments(text)
        inside, place = wanted, _top_object(blanked)
        for key in outer:
            inside, place = inside[key], _object_at(blanked, place, key)
        del inside[name]
        return _verify_text(_remove_property(text, place, name), wanted)

    def manual_instructions(self, entry: ConfigEntry) -> str:
        return json.dumps(_set_nested({}, self._keys, entry), indent=2, ensure_ascii=False)


def _parse_text(text: str) -> Any:
    """Parse the text into an object; an empty text is an empty object."""
    if not text.strip():
        return {}
    try:
        found = json.loads(_blank_comments(text).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedConfigError(f"the file is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnsupportedConfigError("the file does not contain a JSON object")
    return found


def _blank_comments(text: str) -> str:
    """Return the text with comments and trailing commas replaced by spaces."""
    return _LAST_COMMA.sub(_blank_match, _COMMENT.sub(_blank_match, text))


def _blank_match(found: re.Match[str]) -> str:
    return found[0] if found[1] else re.sub(r"[^\r\n]", " ", found[0])


def _set_nested(value: dict[str, Any], keys: Sequence[str], entry: ConfigEntry) -> dict[str, Any]:
    """Return a copy of the value with the entry at the end of the path of keys."""
    key, *rest = keys
    if not rest:
        return {**value, key: dict(entry)}
    inner = value.get(key, {})
    if not isinstance(inner, dict):
        raise UnsupportedConfigError(f'"{key}" is not an object')
    return {**value, key: _set_nested(inner, rest, entry)}


def _verify_text(text: str, expected: Any) -> str:
    """Return the text if it parses to the expected value: an editing mistake must not reach the file."""
    if _parse_text(text) != expected:
        raise UnsupportedConfigError("the file could not be changed safely")
    return text


# -- positions in the text -------------------------------------------------------------------------


def _top_object(text: str) -> _JsonObject:
    return _parse_object(text, _skip_space(text, 1 if text.startswith("\ufeff") else 0))


def _object_at(text: str, place: _JsonObject, key: str) -> _JsonObject:
    member = place.find_property(key)
    assert member is not None
    return _parse_object(text, member.value)


def _parse_object(text: str, start: int) -> _JsonObject:
    """Return the positions of the object that starts at a brace of valid JSON."""
    at, members = _skip_space(text, start + 1), []
    while text[at] != "}":
        key, after = _DECODER.raw_decode(text, at)
        value = _skip_space(text, _skip_space(text, after) + 1)
        _, end = _DECODER.raw_decode(text, value)
        members.append(_JsonProperty(key, at, value, end))
        at = _skip_space(text, end)
        if text[at] == ",":
            at = _skip_space(text, at + 1)
    return _JsonObject(start, at, tuple(members))


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


# -- changes of the text ---------------------------------------------------------------------------


def _put_entry(text: str, blanked: str, place: _JsonObject, keys: Sequence[str], entry: ConfigEntry) -> str:
    key, *rest = keys
    member = place.find_property(key)
    if member and rest and text[member.value] == "{":
        return _put_entry(text, blanked, _parse_object(blanked, member.value), rest, entry)
    value = _set_nested({}, rest, entry) if rest else dict(entry)
    if member:
        return (
            text[: member.value]
            + _format_value(text, place, value, _line_indent(text, member.start))
            + text[member.end :]
        )
    return _add_property(text, place, key, value)


def _add_property(text: str, place: _JsonObject, key: str, value: Any) -> str:
    """Insert a property after the last one, formatted as the others are."""
    line = _newline(text)
    if not place.members:
        outer = _line_indent(text, place.start)
        inner = outer + _indent_unit(text)
        new = f"{line}{inner}{json.dumps(key)}: {_format_value(text, place, value, inner)}{line}{outer}"
        comments = text[place.start + 1 : place.end].rstrip()
        return text[: place.start + 1] + comments + new + text[place.end :]
    last = place.members[-1]
    indent = _line_indent(text, last.start)
    gap = f",{line}{indent}" if _is_multiline(text, place) else ", "
    written = _format_value(text, place, value, indent)
    return f"{text[: last.end]}{gap}{json.dumps(key)}: {written}{text[last.end :]}"


def _is_multiline(text: str, place: _JsonObject) -> bool:
    """Return whether each property has a line of its own, as in an empty object that gets its first one."""
    return not place.members or "\n" in text[place.start : place.members[0].start]


def _remove_property(text: str, place: _JsonObject, key: str) -> str:
    """Remove a property with its comma and the surrounding space, and keep comments."""
    number = [member.key for member in place.members].index(key)
    member = place.members[number]
    if len(place.members) == 1:
        start, end = place.start + 1, place.end
    elif number:
        start, end = place.members[number - 1].end, member.end
    else:
        start, end = member.start, place.members[1].start
    return (
        text[:start] + _keep_comments(text, start, member.start) + _keep_comments(text, member.end, end) + text[end:]
    )


def _keep_comments(text: str, start: int, end: int) -> str:
    """Return the comments between two positions without the comma; empty if there are none."""
    code = _COMMENT.sub(_blank_match, text)[start:end]
    between = text[start:end]
    return "" if code == between else "".join(sign for sign, of in zip(between, code, strict=True) if of != ",")


def _format_value(text: str, place: _JsonObject, value: Any, indent: str) -> str:
    """Format a value as the object formats its properties: on lines of its own, or inline."""
    if not _is_multiline(text, place):
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=_indent_unit(text), ensure_ascii=False).split("\n")
    return f"{_newline(text)}{indent}".join(lines)


def _line_indent(text: str, at: int) -> str:
    """Return the indentation of the line of a position."""
    begin = text.rfind("\n", 0, at) + 1
    return text[begin : begin + len(text[begin:at]) - len(text[begin:at].lstrip(" \t"))]


def _indent_unit(text: str) -> str:
    """Return the indentation of the first property, or two spaces."""
    found = re.search(r'\n([ \t]+)"', text)
    return found[1] if found else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


FILE_MARK = "// Written by `retinue install pi`; `retinue uninstall pi` removes it."

FILE_TEMPLATE = """\
{mark}
import retinue from {extension};
export default (pi) => retinue(pi, {settings});
"""


class WholeFileEditor:
    """Writes a whole file: the import of our extension and its settings."""

    def find_entry(self, text: str) -> ConfigEntry | None:
        if not text.strip():
            return None
        if not text.startswith(FILE_MARK):
            raise UnsupportedConfigError("the file was not written by Retinue")
        try:
            _, loads, gives, *_ = text.split("\n")
            extension = json.loads(loads.removeprefix("import retinue from ").removesuffix(";"))
            settings = json.loads(gives.removeprefix("export default (pi) => retinue(pi, ").removesuffix(");"))
        except (ValueError, RecursionError):
            return {}  # ours, but edited by somebody: it is written again
        return {"extension": extension, **settings}

    def with_entry(self, text: str, entry: ConfigEntry) -> str:
        self.find_entry(text)
        settings = {name: value for name, value in entry.items() if name != "extension"}
        return FILE_TEMPLATE.format(
            mark=FILE_MARK, extension=json.dumps(entry["extension"]), settings=json.dumps(settings)
        )

    def without_entry(self, text: str) -> str:
        return ""

    def manual_instructions(self, entry: ConfigEntry) -> str:
        return self.with_entry("", entry).rstrip("\n")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        UnsupportedConfigError: the text is not TOML.
    """
    import tomllib

    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedConfigError(f"the file is not valid TOML: {error}") from error


def verify_toml(text: str, expected: Any) -> str:
    """Return the text if it parses to the expected value: an editing mistake must not reach the file.

    Raises:
        UnsupportedConfigError: it does not.
    """
    try:
        found = parse_toml(text)
    except UnsupportedConfigError:
        found = None
    if found != expected:
        raise UnsupportedConfigError("the file has an unusual form and could not be changed safely")
    return text


def set_toml_values(text: str, values: Mapping[str, Any]) -> str:
    """Return the text with these keys set at its top level; comments and order stay.

    Raises:
        UnsupportedConfigError: the text is not TOML, or cannot be changed safely.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    expected = {**parse_toml(text), **values}
    try:
        document = tomlkit.parse(text)
        for key, value in values.items():
            item = tomlkit.item(value)
            if key not in document:
                item.trivia.trail = _newline(text)
            document[key] = item
        changed = tomlkit.dumps(document)
    except (TOMLKitError, ValueError) as error:
        raise UnsupportedConfigError(f"the file is not valid TOML: {error}") from error
    return verify_toml(changed, expected)


class TomlEditor:
    """Edits the table `[parent.name]`.

    Not with tomlkit, which removes the comments before the next table together with ours.
    """

    def __init__(self, parent: str, name: str) -> None:
        self._parent = parent
        self._name = name
        key = rf'\s*"?{re.escape(name)}"?\s*'
        self._header = re.compile(rf"\[\s*{re.escape(parent)}\s*\.{key}(?:\.[^\]]*)?\]\s*(?:#.*)?")

    def find_entry(self, text: str) -> ConfigEntry | None:
        parent = parse_toml(text).get(self._parent)
        found = parent.get(self._name) if isinstance(parent, dict) else None
        return found if isinstance(found, dict) else None

    def with_entry(self, text: str, entry: ConfigEntry) -> str:
        wanted = parse_toml(text)
        parent = wanted.setdefault(self._parent, {})
        if not isinstance(parent, dict):
            raise UnsupportedConfigError(f"{self._parent} is not a table")
        rest = self.without_entry(text) if self._name in parent else text
        parent[self._name] = dict(entry)
        line = "\r\n" if "\r\n" in text else "\n"
        before = f"{rest.rstrip()}{line}{line}" if rest.strip() else ""
        table = self.manual_instructions(entry).replace("\n", line)
        return verify_toml(f"{before}{table}{line}", wanted)

    def without_entry(self, text: str) -> str:
        wanted = parse_toml(text)
        del wanted[self._parent][self._name]
        left = "".join(self._other_lines(text.splitlines(keepends=True)))
        if not wanted[self._parent] and self._parent not in parse_toml(left):
            del wanted[self._parent]
        return verify_toml(left, wanted)

    def manual_instructions(self, entry: ConfigEntry) -> str:
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items())
        return "\n".join((f"[{self._parent}.{self._name}]", *lines))

    def _other_lines(self, lines: list[str]) -> Iterator[str]:
        """Yield the lines outside our table; comments after its last value are not part of it."""
        is_ours = False
        pending: list[str] = []
        for line in lines:
            if line.lstrip().startswith("["):
                is_ours = self._header.fullmatch(line.strip()) is not None
                yield from [] if is_ours else pending
                pending = []
            if not is_ours:
                yield line
            elif line.lstrip().startswith("#") or not line.strip():
                pending.append(line)
            else:
                pending = []
        yield from pending if any(map(str.strip, pending)) else []
