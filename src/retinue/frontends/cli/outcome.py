"""A plan carried out from the command line: trust asked for, results told, the exit code found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click
from msgspec import structs

from retinue.app import Retinue
from retinue.frontends.cli.endings import Declined
from retinue.frontends.cli.options import Options
from retinue.frontends.cli.results import result_json, results_json
from retinue.frontends.cli.talk import Unwritable, answer, answer_json, fault, lines, note, warn
from retinue.frontends.cli.trusting import ask_for_trust
from retinue.frontends.cli.work import at_work
from retinue.frontends.wording import SHORT, did_you_mean
from retinue.models import same_model
from retinue.output.frame import one_line
from retinue.results import AnswerKind, RunResult
from retinue.surfaces.base import REFUSED, exit_status
from retinue.types import Code, Failure, Mode, Plan, Refused, Task

NAME = 100
"""Characters of a run's name."""
FLAGS = {"depth": "--max-depth", "allow_write": "--allow-write"}
"""What decides about a tool that was taken, by who took it."""


def dispatch(ctx: click.Context, retinue: Retinue, plan: Plan, surface: str, options: Options) -> NoReturn:
    """Carries a plan out, tells what came of it, and ends the command with its exit code."""
    ask_for_trust(retinue, [task.agent for task in plan.tasks if task.agent])
    results = carry_out(retinue, plan, surface, options)
    tell(results, retinue, plan.mode, options)
    ctx.exit(_exit_status(results))


def carry_out(retinue: Retinue, plan: Plan, surface: str, options: Options) -> tuple[RunResult, ...]:
    """Carries the plan out on the surface's terms.

    Raises:
        Declined: nothing ran: the call was refused, or its only task could not begin.
    """
    call = structs.replace(retinue.call(surface), records_refusals=False)
    only = plan.tasks[0] if plan.mode is Mode.SINGLE else None
    try:
        results = at_work(retinue, lambda: retinue.carry_out(plan, call), options, surface=surface)
    except Refused as refusal:
        raise _declined(refusal.failure, retinue, only) from refusal
    if only and (failure := results[0].failure) and not results[0].was_started:
        raise _declined(failure, retinue, only)
    return results


def tell(results: Sequence[RunResult], retinue: Retinue, mode: Mode, options: Options) -> None:
    """Prints what came of a plan: answers to stdout, failures to stderr.

    Raises:
        Unwritable: stdout takes nothing more; the message says how to get the answers all the same.
    """
    for result in results:
        _tell_circumstances(result, options)
    try:
        with kept([result.session for result in results if result.actual.saved]):
            if options.as_json:
                answer_json(_results_json(results, mode))
            else:
                _tell_answers(results, mode)
    finally:
        tell_failures(results, retinue, mode, options)


@contextmanager
def kept(sessions: Sequence[str]) -> Iterator[None]:
    """Says of answers that cannot be printed in the block where they are found all the same.

    Raises:
        Unwritable: with that.
    """
    try:
        yield
    except Unwritable as error:
        ids = [session[:SHORT] for session in sessions]
        match ids:
            case []:
                raise
            case [only]:
                where = f"The answer is kept: `retinue sessions output {only}` prints it."
            case _:
                where = f"The answers are kept: `retinue sessions output ID` prints each of {', '.join(ids)}."
        raise Unwritable(f"{error.message} {where}") from error


def tell_failures(results: Sequence[RunResult], retinue: Retinue, mode: Mode, options: Options) -> None:
    """Says why which runs failed, with what may help, each help once."""
    said: set[str] = set()
    for number, result in enumerate(results, 1):
        if failure := result.failure:
            fault(_place(mode, number, result) + failure.message)
            if result.answer is AnswerKind.DIAGNOSIS:
                note(result.text, quiet=options.quiet)
            hints = [hint for hint in _hints(failure, retinue) if hint not in said]
            for hint in hints:
                note(hint)
            said.update(hints)


# -- answers ---------------------------------------------------------------------------------------


def _results_json(results: Sequence[RunResult], mode: Mode) -> dict[str, Any]:
    return result_json(results[0]) if mode is Mode.SINGLE else results_json(results, _exit_status(results))


def _tell_answers(results: Sequence[RunResult], mode: Mode) -> None:
    for number, result in enumerate(results if mode is Mode.PARALLEL else results[-1:], 1):
        if not result.text or result.answer not in {AnswerKind.FINAL, AnswerKind.PARTIAL}:
            continue
        if mode is Mode.PARALLEL:
            lines([click.style(_title(number, result), bold=True)])
        answer(result.text)


def _title(number: int, result: RunResult) -> str:
    state = "error" if result.failure else "ok"
    session = f" (session {result.session[:SHORT]})" if result.session else ""
    return f"=== {number} {one_line(result.spec.name, NAME)}: {state}{session} ==="


def _tell_circumstances(result: RunResult, options: Options) -> None:
    """What really happened beside what was declared, as far as someone should know."""
    actual, name = result.actual, result.spec.name
    if actual.not_applied:
        note(f"{name}: {result.spec.engine} does not apply {', '.join(actual.not_applied)}", quiet=options.quiet)
    if actual.declared_model and actual.model and not same_model(actual.model, actual.declared_model):
        note(f"{name}: answered by {actual.model}, not by {actual.declared_model}", quiet=options.quiet)
    for removed in actual.tools_removed:
        see = f"; see {FLAGS[removed.by]}" if removed.by in FLAGS else ""
        note(f"{name}: without {removed.tool} (by {removed.by}{see})", quiet=options.quiet)
    if not actual.saved:
        # Said whatever -q says: something is lost.
        warn(f"{name}: not all of this run could be stored; its result is complete. `retinue doctor` says why.")


# -- failures --------------------------------------------------------------------------------------


def _place(mode: Mode, number: int, result: RunResult) -> str:
    if mode is Mode.CHAIN:
        return f"Chain stopped at step {number} ({result.agent}): "
    return f"{number} {result.spec.name}: " if mode is Mode.PARALLEL else ""


def _exit_status(results: Sequence[RunResult]) -> int:
    """The exit status of the command: 2 if nothing was started."""
    return exit_status(results) if any(result.was_started for result in results) else REFUSED


def _declined(failure: Failure, retinue: Retinue, task: Task | None) -> Declined:
    return Declined(failure, *_hints(failure, retinue), task=task)


def _hints(failure: Failure, retinue: Retinue) -> Iterator[str]:
    """What the sentence itself must not say: it is the same for people and models."""
    if broken := failure.detail.get("broken"):
        yield f"There is a file for it, but it cannot be used: {broken}"
    if failure.code is Code.UNKNOWN_AGENT and (
        near := retinue.roster().suggest(str(failure.detail.get("agent", "")))
    ):
        yield f"Did you mean {near}?"
    if failure.code is Code.UNKNOWN_ENGINE:
        asked = retinue.settings("single").settings.engine
        yield did_you_mean(asked, ["auto", *retinue.engines]).strip() or "`retinue doctor` shows what there is."
