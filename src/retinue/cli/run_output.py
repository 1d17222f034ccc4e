"""Print the results of a command: answers to stdout, and to stderr failures, hints and what the runs consumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.json_output import result_json, results_json
from retinue.cli.options import RunOptions
from retinue.cli.printing import (
    OutputError,
    print_answer,
    print_error,
    print_hint,
    print_json,
    print_lines,
    print_tip,
    print_warning,
)
from retinue.client import Retinue
from retinue.config.settings import ENVIRONMENT, SettingProblem
from retinue.model.errors import ErrorCode, Failure
from retinue.model.providers import same_model
from retinue.model.results import RunResult, Usage, compute_exit_status, describe_changes
from retinue.model.sandbox import SandboxMode, SandboxReport
from retinue.model.tasks import Mode
from retinue.output.untrusted_text import to_one_line
from retinue.sessions.store import SessionState, describe_outcome, find_outcome
from retinue.support.formatting import SHORT_ID_LENGTH, pluralize, suggest_spelling
from retinue.worktrees.store import WorktreeState

if TYPE_CHECKING:
    from retinue.tui.answer_stream import AnswerStream

MAX_MODELS = 3
"""Models that are named; others are counted."""
MAX_LINE_CHARS = 200
MAX_PROBLEM_CHARS = 500
"""Characters of a problem of a setting, with the path of its file."""
MAX_NAME_LENGTH = 100
"""Characters of a run's name in a heading."""
LIMIT_FLAGS = {"depth": "--max-depth", "allow_write": "--allow-write"}
"""The option that decides about a removed tool, by the rule that removed it."""


def print_results(
    results: Sequence[RunResult],
    retinue: Retinue,
    mode: Mode,
    options: RunOptions,
    answer: AnswerStream | None = None,
) -> None:
    """Print the results of a plan: answers to stdout, failures to stderr; of a streamed answer only the rest.

    Raises:
        OutputError: stdout cannot be written; the message has the command that prints the answers.
    """
    for result in results:
        _print_differences(result, retinue, options)
    try:
        with hint_stored_answers([result.session for result in results if result.actual.saved]):
            if options.as_json:
                print_json(_results_json(results, mode))
            elif answer is not None and results[0].answer.is_text:
                _print_rest(answer, results[0].text)
            else:
                _print_answers(results, mode)
    finally:
        print_failures(results, retinue, mode)


@contextmanager
def hint_stored_answers(sessions: Sequence[str]) -> Iterator[None]:
    """Add the command that prints the stored answers to an `OutputError` of the block.

    Raises:
        OutputError: with that command.
    """
    try:
        yield
    except OutputError as error:
        ids = [session[:SHORT_ID_LENGTH] for session in sessions]
        match ids:
            case []:
                raise
            case [only]:
                where = f"The answer was kept: `retinue sessions output {only}` prints it."
            case _:
                where = f"The answers were kept: `retinue sessions output ID` prints one of {', '.join(ids)}."
        raise OutputError(f"{error.message} {where}") from error


def print_failures(results: Sequence[RunResult], retinue: Retinue, mode: Mode) -> None:
    """Print why runs failed, with hints, each hint once."""
    printed_hints: set[str] = set()
    for number, result in enumerate(results, 1):
        if failure := result.failure:
            print_error(_task_label(mode, number, result) + failure.message)
            found = (*failure_hints(failure, retinue), *_model_hints(result, retinue), *_resume_hints(result))
            hints = [hint for hint in found if hint not in printed_hints]
            for hint in hints:
                print_tip(hint)
            printed_hints.update(hints)


# -- answers ---------------------------------------------------------------------------------------


def _results_json(results: Sequence[RunResult], mode: Mode) -> dict[str, Any]:
    return result_json(results[0]) if mode is Mode.SINGLE else results_json(results, compute_exit_status(results))


def _print_answers(results: Sequence[RunResult], mode: Mode) -> None:
    gap: list[str] = []
    for number, result in enumerate(results if mode is Mode.PARALLEL else results[-1:], 1):
        if not result.text or not result.answer.is_text:
            continue
        if mode is Mode.PARALLEL:
            print_lines([*gap, click.style(_result_title(number, result), bold=True)])
            gap = [""]
        print_answer(result.text)


def _print_rest(answer: AnswerStream, text: str) -> None:
    """Print what the view could not print of an answer, such as one whose last event was dropped."""
    with answer.lock:
        answer.finish(text)
        if not answer.is_printed and text:
            rest = answer.pending()
            print_lines([*answer.lines_before(), answer.sanitize(rest)])


def _result_title(number: int, result: RunResult) -> str:
    outcome = find_outcome(SessionState.ERROR if result.failure else SessionState.COMPLETED, result.failure)
    state = describe_outcome(outcome, result.failure)
    session = f" (session {result.session[:SHORT_ID_LENGTH]})" if result.session else ""
    return f"=== {number} {to_one_line(result.spec.name, MAX_NAME_LENGTH)}: {state}{session} ==="


def _print_differences(result: RunResult, retinue: Retinue, options: RunOptions) -> None:
    """Print where a run differs from its definition or from others: preferences, model, tools, sandbox, worktree."""
    actual, name = result.actual, result.spec.name
    if actual.not_applied:
        print_hint(
            f"{name}: {result.spec.engine} does not apply {', '.join(actual.not_applied)}", quiet=options.quiet
        )
    if actual.declared_model and actual.model and not same_model(actual.model, actual.declared_model):
        print_hint(f"{name}: answered by {actual.model}, not by {actual.declared_model}", quiet=options.quiet)
    removed: dict[str, list[str]] = {}
    for each in actual.tools_removed:
        removed.setdefault(each.by, []).append(each.tool)
    for by, tools in removed.items():
        see = f"; see {LIMIT_FLAGS[by]}" if by in LIMIT_FLAGS else ""
        print_hint(f"{name}: without {', '.join(tools)} (by {by}{see})", quiet=options.quiet)
    if actual.sandbox.mode is not SandboxMode.OFF:
        print_hint(f"{name}: sandbox {_format_sandbox(actual.sandbox)}", quiet=options.quiet)
    if changes := actual.worktree:
        print_hint(f"{name}: {describe_changes(changes)}", quiet=options.quiet)
        print_tip(f"`retinue worktrees merge {result.session[:SHORT_ID_LENGTH]}` applies them to your files.")
    elif result.spec.worktree and _is_unchanged(result.session, retinue):
        print_hint(f"{name}: nothing was changed in its worktree, which was removed", quiet=options.quiet)
    if result.was_started and not actual.saved:
        # Printed even with --quiet: something is lost.
        print_warning(
            f"{name}: this run could not be stored completely; its result is complete. `retinue doctor` shows the "
            "reason."
        )


def _format_sandbox(report: SandboxReport) -> str:
    gaps = f"; {pluralize(len(report.gaps), 'gap')}: `retinue doctor --all`" if report.gaps else ""
    return f"{report.mode} ({report.mechanism}{gaps})"


def _is_unchanged(session: str, retinue: Retinue) -> bool:
    """Return whether the worktree of a session was removed because nothing was changed in it."""
    record = retinue.worktrees.find(session)
    return record is not None and record.state is WorktreeState.UNCHANGED


# -- usage -----------------------------------------------------------------------------------------


def print_usage(results: Sequence[RunResult], retinue: Retinue, elapsed: float, options: RunOptions) -> None:
    """Print in one line what the runs consumed: models, tokens, cost and time; nothing if none of them started."""
    if started := [result for result in results if result.was_started]:
        print_hint(_format_usage(started, retinue, elapsed), quiet=options.quiet)


def _format_usage(results: Sequence[RunResult], retinue: Retinue, elapsed: float) -> str:
    usage = sum((result.usage + result.actual.nested_usage for result in results), Usage())
    engines = {name for result in results if (name := result.actual.engine or result.spec.engine)}
    seconds = f"{results[0].elapsed if len(results) == 1 else elapsed:.1f} s"
    if not usage.tokens and not any(_uses_models(name, retinue) for name in engines):
        return " · ".join((", ".join(sorted(engines)), "no model", seconds))
    models = dict.fromkeys(result.actual.model or result.spec.model or "model unknown" for result in results)
    names = list(models)[:MAX_MODELS]
    more = f" and {len(models) - MAX_MODELS} more" if len(models) > MAX_MODELS else ""
    cost = "cost unknown" if usage.cost is None else f"${usage.cost:.4f}"
    if usage.cost is not None and any(result.usage.tokens and result.usage.cost is None for result in results):
        cost += " and an unknown part"
    return to_one_line(" · ".join((", ".join(names) + more, _format_tokens(usage), cost, seconds)), MAX_LINE_CHARS)


def _uses_models(engine: str, retinue: Retinue) -> bool:
    return engine not in retinue.engines or retinue.engines[engine].uses_models


def _format_tokens(usage: Usage) -> str:
    if not usage.tokens:
        return "tokens unknown"
    cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
    return f"{usage.input + usage.cache_read + usage.cache_write:,} tokens in{cached}, {usage.output:,} out"


# -- warnings --------------------------------------------------------------------------------------


def format_setting_problem(problem: SettingProblem) -> str:
    """Return what happened to a setting, with its file; a variable names its source itself."""
    source = "" if problem.source == ENVIRONMENT else f"{problem.source}: "
    return to_one_line(f"{source}{problem.message}", MAX_PROBLEM_CHARS)


# -- failures --------------------------------------------------------------------------------------


def _task_label(mode: Mode, number: int, result: RunResult) -> str:
    if mode is Mode.CHAIN:
        return f"Chain stopped at step {number} ({result.agent}): "
    return f"{number} {result.spec.name}: " if mode is Mode.PARALLEL else ""


def failure_hints(failure: Failure, retinue: Retinue) -> Iterator[str]:
    """Yield hints for people; the message of the failure is the same for people and models."""
    if broken := failure.detail.get("broken"):
        yield f"A file of this agent exists but cannot be used: {broken}"
    if failure.code is ErrorCode.UNKNOWN_AGENT and (
        near := retinue.roster().suggest_name(str(failure.detail.get("agent", "")))
    ):
        yield f"Did you mean {near}?"
    if failure.code is ErrorCode.SESSION_NOT_FOUND:
        yield "`retinue sessions list` shows the existing sessions."
    if failure.code is ErrorCode.UNKNOWN_ENGINE:
        asked = retinue.settings("single").settings.engine
        yield suggest_spelling(asked, ["auto", *retinue.engines]).strip() or "`retinue doctor` lists the engines."


def _resume_hints(result: RunResult) -> Iterator[str]:
    """Yield the command that continues a run which was stopped before it was done."""
    is_stopped = result.failure is not None and result.failure.code in {ErrorCode.ABORTED, ErrorCode.TIMEOUT}
    if is_stopped and result.was_started and result.actual.saved:
        yield f'`retinue resume {result.session[:SHORT_ID_LENGTH]} "…"` continues it.'


def _model_hints(result: RunResult, retinue: Retinue) -> Iterator[str]:
    """Yield the names of models for a run whose model its provider does not have."""
    engine, (provider, _, model) = retinue.engines.get(result.spec.engine), (result.spec.model or "").partition("/")
    if engine is None or result.failure is None or result.failure.reason != "model_unavailable":
        return
    if known := engine.list_models(provider):
        near = suggest_spelling(model, [each.name for each in known]).strip()
        if near:
            yield near.replace("Did you mean ", f"Did you mean {provider}/")
        yield f"`retinue models {provider}` lists its models."
