"""Decode the arguments of a tool by its JSON schema."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from retinue.model.errors import ErrorCode, RefusedError, refuse
from retinue.output.untrusted_text import to_one_line

JsonObject = Mapping[str, Any]

MAX_IGNORED_CHARS = 200
"""Characters of the notice that names ignored input fields."""

_TYPES: Mapping[str, Any] = {
    "string": str,
    "number": int | float,
    "integer": int | float,
    "array": list,
    "object": dict,
}
_TYPE_NOUNS = {
    "string": "a string",
    "number": "a number",
    "integer": "a number",
    "array": "an array",
    "object": "an object",
}


def invalid_input(message: str) -> RefusedError:
    return refuse(ErrorCode.INVALID_INPUT, message)


def require_object(arguments: Any, tool: str, fields: str = "") -> dict[str, Any]:
    """Return the arguments if they are a JSON object; `fields` names the fields it should have.

    Raises:
        RefusedError: `invalid_input`.
    """
    if not isinstance(arguments, dict):
        raise invalid_input(f"The input of {tool} must be an object{fields}")
    return arguments


def require_text(arguments: JsonObject, name: str) -> str:
    """Return a string field that must be given.

    Raises:
        RefusedError: `invalid_input`, naming the field.
    """
    return str(decode_fields({name: {"type": "string"}}, arguments, required=(name,))[name])


def decode_fields(
    properties: JsonObject,
    arguments: JsonObject,
    *,
    required: Sequence[str] = (),
    where: str = "",
    nouns: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the fields of a JSON schema that the arguments give, checked by type.

    Null counts as absent, and so does an empty string where a string is expected: models fill in fields they mean to
    leave out. `where` precedes the names in messages, `nouns` replaces what they say a field must be.

    Raises:
        RefusedError: `invalid_input`, naming the field.
    """
    fields: dict[str, Any] = {}
    for name, schema in properties.items():
        value, kind = arguments.get(name), schema["type"]
        if value is None or (value == "" and kind == "string"):
            if name in required:
                raise invalid_input(f"Missing required parameter: {where}{name}")
        elif isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
            noun = (nouns or {}).get(name, _TYPE_NOUNS[kind])
            raise invalid_input(f"Parameter {where}{name} must be {noun}")
        elif kind == "integer" and (value != value // 1 or value < 1):
            raise invalid_input(f"Parameter {where}{name} must be a whole number, at least 1")
        else:
            fields[name] = int(value) if kind == "integer" else value
    return fields


def unknown_fields(known: Collection[str], arguments: JsonObject, where: str = "") -> Iterator[str]:
    """Yield the names of input fields that are not among the known ones."""
    return (f"{where}{name}" for name in arguments if name not in known)


def ignored_notice(names: Iterable[str], supported: str = "") -> tuple[str, ...]:
    """Return the sentence that names ignored input fields, as a tuple; an empty one if there are none."""
    named = to_one_line(", ".join(dict.fromkeys(names)), MAX_IGNORED_CHARS)
    more = f". Supported parameters: {supported}" if supported else ""
    return (f"Ignored parameters: {named}{more}",) if named else ()
