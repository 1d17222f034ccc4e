"""Python types as output schemas: msgspec structs, dataclasses, pydantic models and everything msgspec can decode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from retinue.guards.output import schema_failure
from retinue.model.results import OutputType, RunResult, StructuredResult

MAX_MESSAGE_CHARS = 2000
"""Characters of a message of a type that rejects a value."""

RULE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors of a type's own rules. Those of msgspec and pydantic are a `ValueError`."""


def make_schema(output: Any) -> Mapping[str, Any]:
    """Return the JSON schema of a type, or the schema itself.

    Raises:
        TypeError: the type has no JSON schema.
    """
    if isinstance(output, Mapping):
        return output
    if hasattr(output, "model_json_schema"):  # a pydantic model
        schema: Mapping[str, Any] = output.model_json_schema()
        return schema
    return msgspec.json.schema(output)


def convert_result(result: RunResult, output: type[OutputType]) -> StructuredResult[OutputType]:
    """Return the result with its structured value as a value of the type; a failure if the type rejects it."""
    fields = {name: getattr(result, name) for name in RunResult.__struct_fields__}
    value = result.structured
    if value is None or result.failure:
        return StructuredResult(**fields)
    try:
        return StructuredResult(**fields, structured=_convert(value, output))
    except RULE_ERRORS as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        failure = schema_failure(f"{getattr(output, '__name__', output)}: {kind}{error}"[:MAX_MESSAGE_CHARS], value)
        return StructuredResult(**{**fields, "failure": failure, "exit_code": 1})


def _convert(value: Any, output: Any) -> Any:
    text = msgspec.json.encode(value)
    return (
        output.model_validate_json(text)
        if hasattr(output, "model_validate_json")
        else msgspec.json.decode(text, type=output)
    )
