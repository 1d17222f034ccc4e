"""The JSON form of results: one stable shape, camelCase, every key always present.

    run              {status, exitCode, run, session, agent, name, task, engine, model, text, answer, failure, usage,
                      elapsed, finalized, structured, sessionFile, actual}
    delegate, chain  {status, exitCode, results: [the same, …], failure}
    other commands   {status, exitCode, results: [], failure}, if they are refused

`status` is `completed`, `failed` or `refused`. A refused task was not started: its `run`, `session`, `engine` and
`sessionFile` are null, its `text` is empty, and `agent`, `name` and `task` are null if the command line could not be
read. `exitCode` of a run is the run's (0, 124, 130, 128 + signal, the process's code or 1; 2 if it was refused or its
engine could not start), of the whole that of the command. `answer` is the kind of `text`: `final`, `partial`,
`diagnosis` or `none`. `failure` is null or {code, message, reason, detail}. `actual` is the execution report: engine,
models, tools granted, removed, missing and used, limits, attempts, masks, notices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs

from retinue.cli.printing import make_printable
from retinue.model.agents import AgentProfile
from retinue.model.errors import Failure
from retinue.model.results import REFUSED_EXIT_CODE, ExecutionReport, RunResult, has_run
from retinue.model.runs import RunSpec
from retinue.model.tasks import Lineage, Task
from retinue.output.untrusted_text import strip_control_characters


def result_json(result: RunResult) -> dict[str, Any]:
    """Return the JSON of one run."""
    spec = result.spec
    return {
        "status": "completed" if result.failure is None else "failed" if result.was_started else "refused",
        "exitCode": result.exit_code if has_run(result) else REFUSED_EXIT_CODE,
        "run": spec.run or None,
        "session": spec.session or None,
        "agent": spec.agent.name,
        "name": spec.name,
        "task": spec.task,
        "engine": spec.engine or None,
        "model": result.actual.model or spec.model,
        "text": strip_control_characters(result.text),
        "answer": result.answer,
        "failure": to_json(result.failure),
        "usage": to_json(result.usage),
        "elapsed": round(result.elapsed, 3),
        "finalized": to_json(result.finalized),
        "structured": result.structured,
        "sessionFile": result.session_file,
        "actual": to_json(result.actual),
    }


def results_json(results: Sequence[RunResult], exit_code: int) -> dict[str, Any]:
    """Return the JSON of several runs of one call."""
    return {
        "status": "refused" if exit_code == REFUSED_EXIT_CODE else "failed" if exit_code else "completed",
        "exitCode": exit_code,
        "results": [result_json(result) for result in results],
        "failure": None,
    }


def refused_run_json(failure: Failure, task: Task | None) -> dict[str, Any]:
    """Return the JSON of a run refused before it started; without its task if the command line was invalid."""
    nothing = AgentProfile(name="", layer="")
    lineage = Lineage(root="none", parent_call="none")
    spec = RunSpec(
        run="", session="", name="", toolset="", agent=nothing, task="", prompt="", cwd="", engine="", lineage=lineage
    )
    asked = (task.agent, task.name or task.agent, task.prompt) if task else (None, None, None)
    shown = dict(zip(("agent", "name", "task"), (value and make_printable(value) for value in asked), strict=True))
    result = RunResult(spec=spec, failure=_redact_failure(failure), actual=ExecutionReport(saved=False))
    return {**result_json(result), **shown}


def refusal_json(failure: Failure, exit_code: int) -> dict[str, Any]:
    """Return the JSON of a call that was refused before anything ran."""
    return {"status": "refused", "exitCode": exit_code, "results": [], "failure": to_json(_redact_failure(failure))}


def _redact_failure(failure: Failure) -> Failure:
    """Redact a failure for printing: it may quote input that no recorder has redacted."""
    detail = {name: make_printable(fact) if isinstance(fact, str) else fact for name, fact in failure.detail.items()}
    return structs.replace(failure, message=make_printable(failure.message), detail=detail)


def to_json(value: Any) -> Any:
    """Convert a value to JSON with all its fields, defaults included, by their names on the wire."""
    match value:
        case Struct():
            return {name: to_json(getattr(value, field)) for field, name in _wire_names(type(value))}
        case Mapping():
            return {key: to_json(member) for key, member in value.items()}
        case list() | tuple():
            return [to_json(member) for member in value]
        case _:
            return value


@lru_cache
def _wire_names(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """Return the fields of a struct, each with its name on the wire."""
    return tuple((field.name, field.encode_name) for field in structs.fields(kind))
