"""The JSON that `delegate` and `chain` read: `{tasks: [{name?, agent|profile?, prompt|task, …}], profile?}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from retinue.frontends.cli.inputs import MAX_JSON_BYTES, Unreadable, decode_json, file_text
from retinue.types import FileSlice, Task


class Entry(Struct, frozen=True):
    """One task as it is written."""

    name: str | None = None
    agent: str | None = None
    profile: str | None = None
    prompt: str | None = None
    task: str | None = None
    cwd: str | None = None
    timeout: float | None = None
    resume: str | None = None
    files: tuple[str | FileSlice, ...] = ()


class PlanFile(Struct, frozen=True):
    tasks: tuple[Entry, ...]
    profile: str | None = None


def read_plan(path: str) -> tuple[tuple[Task, ...], tuple[str, ...]]:
    """The tasks of a file, or of stdin for `-`, and the names of the fields that mean nothing.

    Raises:
        Unreadable: it is not there, no JSON, or no plan; the message says where.
    """
    text = file_text(path, limit=MAX_JSON_BYTES)
    try:
        raw = decode_json(text)
        plan = msgspec.convert(raw, PlanFile)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unreadable(f"{path} is no plan: {error}. See `retinue delegate --help` for its form.") from error
    if _is_empty(plan.profile):
        raise Unreadable(f"{path} has an empty profile. Leave it out, or say what is meant.")
    tasks = tuple(_task(number, entry, plan.profile) for number, entry in enumerate(plan.tasks, 1))
    return tasks, tuple(_unknown(raw))


def _task(number: int, entry: Entry, profile: str | None) -> Task:
    for field in ("name", "agent", "profile", "cwd", "resume"):
        if _is_empty(getattr(entry, field)):
            raise Unreadable(f"Task {number} has an empty {field}. Leave it out, or say what is meant.")
    for one, other in (("agent", "profile"), ("prompt", "task")):
        if getattr(entry, one) is not None and getattr(entry, other) is not None:
            raise Unreadable(f"Task {number} has both {one} and {other}, which mean the same. Keep one of them.")
    prompt = entry.prompt if entry.prompt is not None else entry.task
    if prompt is None or _is_empty(prompt):
        raise Unreadable(f"Task {number} has no prompt: say what is to be done.")
    return Task(
        prompt=prompt,
        agent=entry.agent or entry.profile or profile,
        name=entry.name,
        cwd=entry.cwd,
        timeout=entry.timeout,
        session=entry.resume,
        files=tuple(FileSlice(path=file) if isinstance(file, str) else file for file in entry.files),
    )


def _is_empty(value: str | None) -> bool:
    """Whether something was written that says nothing; what was not written is not empty."""
    return value is not None and not value.strip()


def _unknown(raw: Any) -> Iterator[str]:
    yield from (name for name in raw if name not in PlanFile.__struct_fields__)
    for number, entry in enumerate(raw["tasks"]):
        yield from (f"tasks[{number}].{name}" for name in entry if name not in Entry.__struct_fields__)
