"""What `spawn_subagent` answers, when its runs have ended and while they go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retinue.orchestrator import ABORTED
from retinue.output.frame import neutralise, plain
from retinue.progress import Phase, Progress, RunView
from retinue.results import AnswerKind, RunResult
from retinue.surfaces.base import (
    BEFORE_THE_RUN,
    CANCELLED,
    REFUSED,
    Clean,
    ToolResult,
    add_skipped_file,
    exit_status,
    storage_warning,
)
from retinue.types import Failure, Mode, Plan


def answer(results: Sequence[RunResult], plan: Plan) -> ToolResult:
    """What came of a plan: a result for each run that was begun."""
    failed = [result for result in results if result.failure]
    is_stopped = len(results) < len(plan.tasks) and not failed
    is_error = len(failed) == len(results) if plan.mode is Mode.PARALLEL else bool(failed)
    return ToolResult(
        text="\n\n".join(filter(None, [_text(results, plan), storage_warning(results)])),
        details={"mode": plan.mode, "results": [_result(result) for result in results]},
        is_error=is_error or is_stopped,
        exit_code=CANCELLED if is_stopped else _exit_code(results),
    )


def partial_answer(progress: Progress, *, mode: Mode, order: Sequence[str], clean: Clean) -> ToolResult:
    """The same shape while the runs go on, with the newest text of each.

    `order` has the runs of tasks that are begun at once; the steps of a chain come one after the other by themselves.
    """
    numbers = {run: number for number, run in enumerate(order or progress.runs, 1)}
    views = [progress.runs[run] for run in numbers if run in progress.runs]
    newest = [clean(_newest(view)) for view in views]
    blocks = [
        _block(numbers[view.run], view.agent, _state(view), text or "(running...)")
        for view, text in zip(views, newest, strict=True)
    ]
    results = [
        {
            "subagentId": view.run,
            "agent": view.agent,
            "task": view.task,
            "result": text,
            "isError": view.phase is Phase.ERROR,
        }
        for view, text in zip(views, newest, strict=True)
    ]
    text = newest[0] or "(running...)" if mode is Mode.SINGLE else "\n\n".join(blocks)
    return ToolResult(text=text, details={"mode": mode, "results": results})


def sentence(failure: Failure) -> str:
    """The failure as the core says it, and what is wrong with the file of an agent that is not found."""
    return add_skipped_file(failure, failure.message)


def cleaned(text: str) -> str:
    """Child text as it may leave; verbatim but for what is no text, or would pass for another's."""
    return neutralise(plain(text))


# -- the end ---------------------------------------------------------------------------------------


def _text(results: Sequence[RunResult], plan: Plan) -> str:
    last = results[-1]
    if plan.mode is Mode.PARALLEL:
        return "\n\n".join(
            _block(number, result.agent, "error" if result.failure else "ok", _said(result))
            for number, result in enumerate(results, 1)
        )
    if plan.mode is Mode.SINGLE:
        return _said(last)
    if last.failure:
        return _chain_stopped(len(results), last.agent, sentence(last.failure))
    if len(results) < len(plan.tasks):
        return _chain_stopped(len(results) + 1, plan.tasks[len(results)].agent or "", ABORTED.message)
    return cleaned(last.text)


def _chain_stopped(step: int, agent: str, message: str) -> str:
    return f"Chain stopped at step {step} ({plain(agent)}): {cleaned(message)}"


def _block(number: int, agent: str, state: str, text: str) -> str:
    return f"=== {number} {plain(agent)}: {state} ===\n{text}"


def _said(result: RunResult) -> str:
    """What one run comes to for a model: its answer, or why there is none and what there is instead."""
    if result.failure is None:
        return cleaned(result.text)
    message, text = cleaned(sentence(result.failure)), _kept(result)
    return f"{message}\n\nPartial output:\n\n{text}" if text else message


def _kept(result: RunResult) -> str:
    """What the agent itself wrote, if anything."""
    return cleaned(result.text) if result.answer in {AnswerKind.FINAL, AnswerKind.PARTIAL} else ""


def _result(result: RunResult) -> dict[str, Any]:
    found = {
        "subagentId": result.run,
        "agent": result.agent,
        "task": result.spec.task,
        "result": _kept(result),
        "isError": result.failure is not None,
    }
    if failure := result.failure:
        found["error"] = {"code": str(failure.code), "message": cleaned(sentence(failure))}
    return found


def _exit_code(results: Sequence[RunResult]) -> int:
    codes = [result.failure and result.failure.code for result in results]
    # A later attempt may not have started; what the earlier ones said is kept.
    nothing_ran = all(code in BEFORE_THE_RUN for code in codes) and not any(map(_kept, results))
    return REFUSED if nothing_ran else exit_status(results)


# -- meanwhile -------------------------------------------------------------------------------------


def _newest(view: RunView) -> str:
    texts = [item for item in (*view.display_items(), view.partial) if isinstance(item, str) and item]
    return texts[-1] if texts else ""


def _state(view: RunView) -> str:
    return {Phase.DONE: "ok", Phase.ERROR: "error"}.get(view.phase, str(view.phase))
