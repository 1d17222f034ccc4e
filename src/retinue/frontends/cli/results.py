"""Results as programs read them: one stable JSON shape, camelCase, every key always there.

    run              {status, exitCode, run, session, agent, name, task, engine, model, text, answer, failure, usage,
                      elapsed, finalized, sessionFile, actual}
    delegate, chain  {status, exitCode, results: [the same, …], failure}
    refused          {status, exitCode, results: [], failure}

`status` is `completed`, `failed` or `refused`; `exitCode` of a run is the run's (contract: 0, 124, 130, 128 + signal,
the process's code or 1), of the whole that of the command. `answer` says what `text` is: `final`, `partial`,
`diagnosis` or `none`. `failure` is null or {code, message, reason, detail}. `actual` is what really happened beside
what was declared: engine, models, tools granted, removed, missing and used, limits, attempts, masks, notices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs

from retinue.frontends.cli.talk import sayable
from retinue.output.frame import plain
from retinue.results import RunResult
from retinue.types import Failure


def result_json(result: RunResult) -> dict[str, Any]:
    """One run."""
    spec = result.spec
    return {
        "status": "failed" if result.failure else "completed",
        "exitCode": result.exit_code,
        "run": spec.run,
        "session": spec.session,
        "agent": spec.agent.name,
        "name": spec.name,
        "task": spec.task,
        "engine": spec.engine,
        "model": result.actual.model or spec.model,
        "text": plain(result.text),
        "answer": result.answer,
        "failure": whole(result.failure),
        "usage": whole(result.usage),
        "elapsed": round(result.elapsed, 3),
        "finalized": whole(result.finalized),
        "sessionFile": result.session_file,
        "actual": whole(result.actual),
    }


def results_json(results: Sequence[RunResult], exit_code: int) -> dict[str, Any]:
    """Several runs of one call."""
    return {
        "status": "failed" if exit_code else "completed",
        "exitCode": exit_code,
        "results": [result_json(result) for result in results],
        "failure": None,
    }


def refusal_json(failure: Failure, exit_code: int) -> dict[str, Any]:
    """A call that was refused before anything ran. It may quote its input, which no record has masked."""
    detail = {name: sayable(fact) if isinstance(fact, str) else fact for name, fact in failure.detail.items()}
    shown = structs.replace(failure, message=sayable(failure.message), detail=detail)
    return {"status": "refused", "exitCode": exit_code, "results": [], "failure": whole(shown)}


def whole(value: Any) -> Any:
    """A value with all its fields, also those that say nothing, by their names on the wire."""
    match value:
        case Struct():
            return {name: whole(getattr(value, field)) for field, name in _names(type(value))}
        case Mapping():
            return {key: whole(member) for key, member in value.items()}
        case list() | tuple():
            return [whole(member) for member in value]
        case _:
            return value


@lru_cache
def _names(kind: type[Struct]) -> tuple[tuple[str, str], ...]:
    """The fields of a value, each with its name on the wire."""
    return tuple((field.name, field.encode_name) for field in structs.fields(kind))
