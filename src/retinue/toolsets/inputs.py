"""Decode the arguments of a tool by its JSON schema, and declare what a call may choose for each task."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from retinue.config.settings import Settings
from retinue.model.errors import ErrorCode, RefusedError, refuse
from retinue.model.providers import THINKING_LEVELS
from retinue.model.results import RunResult, describe_changes
from retinue.model.sandbox import SANDBOX_MODES, SandboxMode
from retinue.model.tasks import Mode, Plan
from retinue.output.schemas import OutputSchemaError, decode_schema
from retinue.output.untrusted_text import map_strings, strip_control_characters, to_one_line
from retinue.runtime.model_choice import describe_unapplied_choices

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


CHOICE_FIELDS: JsonObject = {
    "outputSchema": {"type": "object", "description": "JSON Schema of the result; the result is then JSON"},
    "model": {"type": "string"},
    "effort": {"type": "string"},
    "isolation": {
        "type": "string",
        "enum": ["worktree"],
        "description": "Work in a git worktree of its own; changes are committed on a branch",
    },
    "sandbox": {
        "type": "string",
        "enum": [mode for mode in SANDBOX_MODES if mode is not SandboxMode.OFF],
        "description": "Confine it to its directory (workspace), and also cut it off from the network (strict)",
    },
}
"""The fields of a task's choices, accepted whether or not they are offered."""
CHOICE_NOUNS = {"outputSchema": "a JSON Schema"}


def offered_choices(settings: Settings) -> JsonObject:
    """Return the schemas of the choices that a call may make under these settings."""
    schema = {name: CHOICE_FIELDS[name] for name in ("outputSchema", "isolation", "sandbox")}
    if not settings.models:
        return schema
    allowed = f"Model to use instead of the agent's own, one of {', '.join(settings.models)}"
    effort = {"type": "string", "enum": list(THINKING_LEVELS), "description": "How much the model thinks"}
    return {**schema, "model": {"type": "string", "description": allowed}, "effort": effort}


def decode_output_schema(arguments: JsonObject, where: str = "") -> JsonObject:
    """Return the input of a task with an output schema that was written as JSON text as the object it is.

    Raises:
        RefusedError: `invalid_input`: the text is not that of a JSON object, or too long.
    """
    given = arguments.get("outputSchema")
    if not isinstance(given, str) or not given.strip():
        return arguments
    try:
        return {**arguments, "outputSchema": decode_schema(given)}
    except OutputSchemaError as error:
        raise invalid_input(f"Parameter {where}outputSchema {error}") from None


def decode_choices(fields: JsonObject) -> dict[str, Any]:
    """Return the choices in the decoded fields of a task, by their names in a `Task`."""
    return {
        "output_schema": fields.get("outputSchema"),
        "model": fields.get("model"),
        "effort": fields.get("effort"),
        "isolation": fields.get("isolation"),
        "sandbox": fields.get("sandbox"),
    }


def unapplied_notices(plan: Plan, results: Sequence[RunResult]) -> Iterator[str]:
    """Yield a sentence for each task with choices that its engine did not apply."""
    for number, (task, result) in enumerate(zip(plan.tasks, results, strict=False), 1):
        if named := ", ".join(describe_unapplied_choices(task, result.actual.not_applied)):
            which = f"Task {number}: " if len(plan.tasks) > 1 else ""
            yield f"{which}The {result.actual.engine} engine did not apply {named}"


def worktree_notices(results: Sequence[RunResult]) -> Iterator[str]:
    """Yield a sentence for each task whose changes are on a branch of their own."""
    for number, result in enumerate(results, 1):
        if changes := result.actual.worktree:
            which = f"Task {number}: " if len(results) > 1 else ""
            yield f"{which}{describe_changes(changes)}"


def structured_value(result: RunResult) -> Any:
    """Return the structured result of a run as it may leave; None if it has none."""
    return map_strings(result.structured, strip_control_characters)


def structured_details(results: Iterable[RunResult], mode: Mode) -> dict[str, Any]:
    """Return the `structured` field of a call's details: the value of its last run, or a list in parallel mode.

    There is none if no run had an output schema.
    """
    results = tuple(results)
    if not any(result.spec.output_schema is not None for result in results):
        return {}
    values = [structured_value(result) for result in results]
    return {"structured": values if mode is Mode.PARALLEL else values[-1]}
