"""The choices of a call for each task: schema, worktree, sandbox; model and effort where the user lists models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from retinue.config.settings import Settings
from retinue.model.providers import THINKING_LEVELS
from retinue.model.results import RunResult, describe_changes
from retinue.model.sandbox import SANDBOX_MODES, SandboxMode
from retinue.model.tasks import Mode, Plan
from retinue.output.schemas import OutputSchemaError, decode_schema
from retinue.output.untrusted_text import map_strings, strip_control_characters
from retinue.runtime.model_choice import describe_unapplied_choices
from retinue.toolsets.inputs import JsonObject, invalid_input

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
