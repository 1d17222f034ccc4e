"""What the tools of `nested` take: their schemas, and the plan that an input means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from retinue.surfaces.base import JsonObject, ignored_notice, optional_text, required_text
from retinue.types import Code, Mode, Plan, Refused, Task, refused

SPAWN, INFO = "spawn_subagent", "agent_info"

_TASK: Mapping[str, Any] = {
    "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
    "task": {"type": "string", "minLength": 1, "description": "The focused task, with all the context it needs"},
    "cwd": {"type": "string", "description": "Absolute path of the directory it works in"},
    "timeout": {"type": "number", "minimum": 1, "description": "Seconds it may take"},
}
_ALONE = ("agent", "task")
"""The fields of a task that stand in the input itself where it is the only one."""
_INPUT = ("mode", *_ALONE, "tasks")
_MODES = (Mode.SINGLE, Mode.CHAIN, Mode.PARALLEL)

INFO_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"agent": {"type": "string", "minLength": 1, "description": "Name of the agent"}},
    "required": ["agent"],
}


def spawn_schema(max_tasks: int) -> JsonObject:
    item = {"type": "object", "properties": _TASK, "required": list(_ALONE)}
    return {
        "type": "object",
        "properties": {
            "mode": {
                "type": "string",
                "enum": list(_MODES),
                "default": Mode.SINGLE,
                "description": "single takes agent and task; chain and parallel take tasks",
            },
            **{name: _TASK[name] for name in _ALONE},
            "tasks": {"type": "array", "minItems": 1, "maxItems": max_tasks, "items": item},
        },
    }


def meant_mode(arguments: Any) -> Mode:
    """The mode an input asks for; `single` where that cannot be known."""
    given = arguments.get("mode") if isinstance(arguments, dict) else None
    return next((mode for mode in _MODES if mode == given), Mode.SINGLE)


def decoded(arguments: Any) -> Plan:
    """The plan of the input, checked field by field so that the sentence names the field.

    Raises:
        Refused: `invalid_input`.
    """
    if not isinstance(arguments, dict):
        raise refused(
            Code.INVALID_INPUT, f"The input of {SPAWN} must be an object with agent and task, or with tasks"
        )
    given, mode = optional_text(arguments, "mode"), meant_mode(arguments)
    if given is not None and given != mode:
        raise refused(Code.INVALID_INPUT, f"Unknown mode: {given}. Modes: {', '.join(_MODES)}")
    tasks = arguments.get("tasks")
    for name in _ALONE:
        if tasks is not None and optional_text(arguments, name) is not None:
            raise refused(Code.INVALID_INPUT, f"Give agent and task, or tasks: not both {name} and tasks")
    if mode is Mode.SINGLE:
        if tasks is not None:
            raise refused(Code.INVALID_INPUT, "Mode single takes agent and task; tasks needs mode chain or parallel")
        return Plan(tasks=(_task(arguments, _ALONE),), mode=mode)
    if tasks is None:
        raise refused(Code.INVALID_INPUT, f"Missing required parameter: tasks. Mode {mode} takes a list of them")
    if not isinstance(tasks, list):
        raise refused(Code.INVALID_INPUT, "Parameter tasks must be a list of objects with agent and task")
    return Plan(tasks=tuple(_numbered(number, task) for number, task in enumerate(tasks, 1)), mode=mode)


def _numbered(number: int, arguments: Any) -> Task:
    try:
        if not isinstance(arguments, dict):
            raise refused(Code.INVALID_INPUT, "It must be an object with agent and task")
        return _task(arguments, tuple(_TASK))
    except Refused as refusal:
        failure = refusal.failure
        raise Refused(structs.replace(failure, message=f"Task {number}: {failure.message}")) from None


def _task(arguments: JsonObject, known: Sequence[str]) -> Task:
    agent, task = required_text(arguments, "agent"), required_text(arguments, "task")
    cwd = optional_text(arguments, "cwd") if "cwd" in known else None
    timeout = arguments.get("timeout") if "timeout" in known else None
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise refused(Code.INVALID_INPUT, "Parameter timeout must be a number of seconds")
    return Task(agent=agent, prompt=task, cwd=cwd, timeout=timeout)


def ignored(arguments: JsonObject) -> tuple[str, ...]:
    """What is to be known of input that means nothing here."""
    unknown = [str(name) for name in arguments if name not in _INPUT]
    unknown += [f"tasks.{name}" for task in arguments.get("tasks") or () for name in task if name not in _TASK]
    return ignored_notice(unknown, f"{', '.join(_INPUT)}; in tasks: {', '.join(_TASK)}")


def ignored_of_info(arguments: JsonObject) -> tuple[str, ...]:
    """Return the notice on fields that `agent_info` does not have."""
    return ignored_notice((name for name in arguments if name not in INFO_SCHEMA["properties"]), "agent")
