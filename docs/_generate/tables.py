"""Markdown tables, and descriptions of values from the docstrings of the code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from docs._generate.texts import FIELDS
from msgspec import Struct, structs

from retinue.model.errors import ErrorCode
from retinue.servers.http.openapi import field_docstrings, to_json_terms

_PLAIN = {str: "text", int: "integer", float: "number", bool: "`true` or `false`", NoneType: "`null`"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a markdown table with bars in cells escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def code(text: str) -> str:
    return f"`{text}`"


def fields_table(kind: type[Struct]) -> str:
    """Return the table of the fields of a struct by their names on the wire."""
    may_be_absent = kind.__struct_config__.omit_defaults
    rows = [
        (
            code(each.encode_name),
            type_text(each.type),
            "yes" if each.required or not may_be_absent else "",
            field_meaning(kind, each.name),
        )
        for each in structs.fields(kind)
    ]
    return table(["key", "value", "always present", "meaning"], rows)


def field_meaning(kind: type[Struct], name: str) -> str:
    """Return the docstring of a field or, without one, its text in `texts`.

    Raises:
        LookupError: there is neither.
    """
    key = f"{kind.__name__}.{name}"
    meaning = field_docstrings(kind).get(name) or FIELDS.get(key)
    if meaning is None:
        raise LookupError(f"{key} has no description: write a string under the field, or a line in texts.py")
    return meaning


def class_description(kind: type) -> str:
    """Return the docstring of a class; empty if it has none of its own."""
    return to_json_terms(kind.__dict__.get("__doc__") or "")


def type_text(kind: Any) -> str:
    """Return the name of a type in JSON."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin is Literal:
        return ", ".join(code(str(value)) for value in inner)
    if origin is UnionType:
        return " or ".join(type_text(part) for part in inner)
    if origin is tuple:
        return f"list of {type_text(inner[0])}"
    if kind is ErrorCode:
        return "[a code](failures.md)"
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(map(code, kind))
    return code(kind.__name__) if isinstance(kind, type) and issubclass(kind, Struct) else "object"
