"""A plan carried out from the command line: trust asked for, results told, the exit code found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import click
from msgspec import Struct

from retinue.app import Retinue
from retinue.frontends.cli.helping import did_you_mean
from retinue.frontends.cli.inputs import text_of
from retinue.frontends.cli.options import Options
from retinue.frontends.cli.results import refusal_json, result_json, results_json
from retinue.frontends.cli.talk import answer, answer_json, fault, note, warn
from retinue.frontends.cli.trusting import ask_for_trust
from retinue.frontends.cli.work import at_work
from retinue.frontends.event_lines import SHORT
from retinue.output.frame import one_line
from retinue.results import AnswerKind, RunResult
from retinue.surfaces.base import BEFORE_THE_RUN, REFUSED, exit_status
from retinue.types import Code, Failure, Mode, Plan, Refused

NAME = 100
"""Characters of a run's name."""


class Outcome(Struct, frozen=True):
    """What came of a plan: results, or the reason why nothing ran."""

    results: tuple[RunResult, ...] = ()
    refusal: Failure | None = None

    @property
    def exit_code(self) -> int:
        return REFUSED if self.refusal else exit_status(self.results)


def task_text(value: str, retinue: Retinue, surface: str) -> str:
    """The task an argument stands for.

    Raises:
        Unreadable: it cannot be had.
    """
    return text_of(value, limit=retinue.settings(surface).settings.max_task_bytes)


def dispatch(ctx: click.Context, retinue: Retinue, plan: Plan, surface: str, options: Options) -> NoReturn:
    """Carries a plan out, tells what came of it, and ends the command with its exit code."""
    ask_for_trust(retinue, [task.agent for task in plan.tasks if task.agent])
    outcome = carry_out(retinue, plan, surface, options)
    tell(outcome, retinue, plan, options)
    ctx.exit(outcome.exit_code)


def carry_out(retinue: Retinue, plan: Plan, surface: str, options: Options) -> Outcome:
    """Carries the plan out on the surface's terms. The only task of a call that never ran was refused."""
    try:
        results = at_work(retinue, lambda: retinue.carry_out(plan, retinue.call(surface)), options, surface=surface)
    except Refused as refusal:
        return Outcome(refusal=refusal.failure)
    only = results[0].failure if plan.mode is Mode.SINGLE else None
    if only and only.code in BEFORE_THE_RUN:
        return Outcome(refusal=only)
    return Outcome(results)


def tell(outcome: Outcome, retinue: Retinue, plan: Plan, options: Options) -> None:
    """Prints what came of a plan: answers to stdout, failures to stderr."""
    for result in outcome.results:
        _tell_circumstances(result, options)
    if options.as_json:
        answer_json(_outcome_json(outcome, plan.mode))
    else:
        _tell_answers(outcome.results, plan.mode)
    tell_failures(outcome, retinue, plan)


def tell_failures(outcome: Outcome, retinue: Retinue, plan: Plan) -> None:
    """Says why nothing ran, or why which runs failed, with what may help."""
    if outcome.refusal:
        _tell_failure(outcome.refusal, retinue, plan)
    for number, result in enumerate(outcome.results, 1):
        if failure := result.failure:
            _tell_failure(failure, retinue, plan, before=_place(plan.mode, number, result))


def _outcome_json(outcome: Outcome, mode: Mode) -> dict[str, Any]:
    if outcome.refusal:
        return refusal_json(outcome.refusal, outcome.exit_code)
    if mode is Mode.SINGLE:
        return result_json(outcome.results[0])
    return results_json(outcome.results, outcome.exit_code)


def _tell_answers(results: Sequence[RunResult], mode: Mode) -> None:
    told = results if mode is Mode.PARALLEL else results[-1:]
    for number, result in enumerate(told, 1):
        if not _has_answer(result):
            continue
        if mode is Mode.PARALLEL:
            click.secho(_title(number, result), bold=True)
        answer(result.text)


def _title(number: int, result: RunResult) -> str:
    state, session = "error" if result.failure else "ok", result.spec.session[:SHORT]
    return f"=== {number} {one_line(result.spec.name, NAME)}: {state} (session {session}) ==="


def _has_answer(result: RunResult) -> bool:
    return bool(result.text) and result.answer in (AnswerKind.FINAL, AnswerKind.PARTIAL)


def _tell_circumstances(result: RunResult, options: Options) -> None:
    """What really happened beside what was declared, as far as someone should know."""
    actual, name = result.actual, result.spec.name
    if actual.not_applied:
        note(f"{name}: {result.spec.engine} does not apply {', '.join(actual.not_applied)}", quiet=options.quiet)
    if result.spec.model and actual.model and actual.model != result.spec.model:
        note(f"{name}: answered by {actual.model}, not by {result.spec.model}", quiet=options.quiet)
    for removed in actual.tools_removed:
        note(f"{name}: without {removed.tool} (by {removed.by})", quiet=options.quiet)
    if result.answer is AnswerKind.DIAGNOSIS:
        note(f"{name}: {result.text}", quiet=options.quiet)
    if not actual.saved:
        warn(f"{name}: not all of this run could be stored; its result is complete.", quiet=options.quiet)


def _place(mode: Mode, number: int, result: RunResult) -> str:
    if mode is Mode.CHAIN:
        return f"Chain stopped at step {number} ({result.spec.agent.name}): "
    return f"{number} {result.spec.name}: " if mode is Mode.PARALLEL else ""


def _tell_failure(failure: Failure, retinue: Retinue, plan: Plan, before: str = "") -> None:
    fault(before + failure.message)
    for hint in _hints(failure, retinue, plan):
        note(hint)


def _hints(failure: Failure, retinue: Retinue, plan: Plan) -> Iterator[str]:
    """What the sentence itself must not say: it is the same for people and models."""
    if broken := failure.detail.get("broken"):
        yield f"There is a file for it, but it cannot be used: {broken}"
    if failure.code is Code.UNKNOWN_AGENT:
        asked = failure.detail.get("agent")
        roster = retinue.roster()
        for name in [str(asked)] if asked else dict.fromkeys(task.agent for task in plan.tasks if task.agent):
            if name not in roster.names() and (near := roster.suggest(name)):
                yield f"Did you mean {near}?"
    if failure.reason == "unknown_engine":
        asked = retinue.settings("single").settings.engine
        yield did_you_mean(asked, ["auto", *retinue.engines]).strip() or "`retinue doctor` shows what there is."
