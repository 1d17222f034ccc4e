"""What the tools of `fanout` take, as tasks. Checked field by field, so that a sentence names the field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from retinue.surfaces.base import ignored_notice
from retinue.types import Code, FileSlice, Refused, Task, refused

PATH = {"type": "string", "description": "Relative to the task's cwd, or absolute"}
LINES = {"type": "integer", "minimum": 1}


def _part(**lines: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "properties": {"path": PATH, **lines}, "required": ["path"]}


FILES: Mapping[str, Any] = {
    "type": "array",
    "description": "Files to read and put before the prompt: a path, a range of lines (1-indexed, inclusive), "
    "the first or the last lines. 1 MB per file at most.",
    "items": {
        "anyOf": [
            {"type": "string"},
            _part(start=LINES, end=LINES),
            {**_part(head=LINES), "required": ["path", "head"]},
            {**_part(tail=LINES), "required": ["path", "tail"]},
        ]
    },
}

TASK: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "Display name of this sub-agent"},
        "prompt": {"type": "string", "minLength": 1, "description": "The task, with all the context it needs"},
        "cwd": {"type": "string", "description": "Working directory: an absolute path without '..' segments"},
        "profile": {"type": "string", "description": "Profile for this task; overrides the top-level one"},
        "timeout": {"type": "number", "minimum": 1, "description": "Seconds (default: 600)"},
        "resume": {"type": "string", "description": "ID of an earlier session to continue"},
        "files": FILES,
    },
    "required": ["name", "prompt"],
}

OF_A_FILE = ("path", "start", "end", "head", "tail")


def delegate_schema(max_tasks: int) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "items": TASK,
                "minItems": 1,
                "maxItems": max_tasks,
                "description": "Tasks to execute in parallel",
            },
            "profile": {"type": "string", "description": "Default profile of all tasks"},
        },
        "required": ["tasks"],
    }


SESSION: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "sessionId": {"type": "string", "description": "The session ID returned by delegate_to_subagents"}
    },
    "required": ["sessionId"],
}
OUTPUT: Mapping[str, Any] = {
    **SESSION,
    "properties": {
        **SESSION["properties"],
        "start": {**LINES, "description": "First line to return, counted from 1 (default: 1)"},
        "lines": {**LINES, "description": "How many lines to return at most (default: all)"},
    },
}
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}


def decoded(arguments: Any) -> tuple[Task, ...]:
    """The tasks of a call.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    given = object_of(arguments, "delegate_to_subagents")
    profile = _optional_text(given, "profile", "")
    tasks = given.get("tasks")
    if tasks is None:
        raise _missing("tasks")
    if not isinstance(tasks, list):
        raise _wrong("tasks", "an array of tasks")
    return tuple(_task(task, f"tasks[{number}]", profile) for number, task in enumerate(tasks))


def session_id(arguments: Any, tool: str) -> str:
    """The id of the session that is asked for.

    Raises:
        Refused: the same.
    """
    return _text(object_of(arguments, tool), "sessionId", "")


def line_range(arguments: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the first line and the number of lines that are asked for; None where one is not given.

    Raises:
        Refused: the same.
    """
    return _line(arguments.get("start"), "start"), _line(arguments.get("lines"), "lines")


def object_of(arguments: Any, tool: str) -> Mapping[str, Any]:
    if not isinstance(arguments, dict):
        raise refused(Code.INVALID_INPUT, f"The input of {tool} must be an object")
    return arguments


def ignored(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What is to be known of input that means nothing here."""
    return ignored_notice(_unknown(arguments))


def ignored_beside(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notice on fields that this schema does not have."""
    return ignored_notice(name for name in arguments if name not in schema["properties"])


def _unknown(arguments: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(name) for name in arguments if name not in {"tasks", "profile"})
    for number, task in enumerate(arguments["tasks"]):
        yield from (f"tasks[{number}].{name}" for name in task if name not in TASK["properties"])
        for place, file in enumerate(task.get("files") or ()):
            if isinstance(file, dict):
                yield from (f"tasks[{number}].files[{place}].{name}" for name in file if name not in OF_A_FILE)


# -- fields ------------------------------------------------------------------------------------------


def _task(given: Any, where: str, profile: str | None) -> Task:
    if not isinstance(given, dict):
        raise _wrong(where, "an object with name and prompt")
    return Task(
        name=_text(given, "name", where),
        prompt=_text(given, "prompt", where),
        agent=_optional_text(given, "profile", where) or profile,
        cwd=_optional_text(given, "cwd", where),
        timeout=_number(given.get("timeout"), f"{where}.timeout"),
        session=_optional_text(given, "resume", where),
        files=_files(given.get("files"), f"{where}.files"),
    )


def _files(given: Any, where: str) -> tuple[FileSlice, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise _wrong(where, "an array of files")
    return tuple(_file(file, f"{where}[{number}]") for number, file in enumerate(given))


def _file(given: Any, where: str) -> FileSlice:
    if isinstance(given, str):
        given = {"path": given}
    if not isinstance(given, dict):
        raise _wrong(where, "a path, or an object with a path")
    lines = {name: _line(given.get(name), f"{where}.{name}") for name in OF_A_FILE[1:]}
    return FileSlice(path=_text(given, "path", where), **lines)


def _line(value: Any, where: str) -> int | None:
    number = _number(value, where)
    if number is None:
        return None
    if number != number // 1 or number < 1:
        raise _wrong(where, "a whole number, at least 1")
    return int(number)


def _number(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(where, "a number")
    return value


def _text(given: Mapping[str, Any], name: str, where: str) -> str:
    value = _optional_text(given, name, where)
    if value is None:
        raise _missing(_named(name, where))
    return value


def _optional_text(given: Mapping[str, Any], name: str, where: str) -> str | None:
    """The field; none where it is empty: models fill in what they leave out."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(_named(name, where), "a string")
    return value or None


def _named(name: str, where: str) -> str:
    return f"{where}.{name}" if where else name


def _missing(name: str) -> Refused:
    return refused(Code.INVALID_INPUT, f"Missing required parameter: {name}")


def _wrong(name: str, what: str) -> Refused:
    return refused(Code.INVALID_INPUT, f"Parameter {name} must be {what}")
