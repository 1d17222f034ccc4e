"""Run the plan of a command with the live view, and print its results."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import anyio
import click
from anyio.abc import TaskStatus
from msgspec import structs

from retinue.cli.json_output import result_json, results_json
from retinue.cli.main import EXIT_CANCELLED
from retinue.cli.options import CommandRefusedError, InvalidInputError, RunOptions
from retinue.cli.printing import (
    OutputError,
    is_interactive,
    print_answer,
    print_error,
    print_hint,
    print_json,
    print_lines,
    print_warning,
)
from retinue.client import Retinue
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.providers import same_model
from retinue.model.results import AnswerStatus, RunResult
from retinue.model.tasks import Mode, Plan, Task
from retinue.output.untrusted_text import to_one_line
from retinue.support.formatting import SHORT_ID_LENGTH, pluralize, suggest_spelling, unknown_name_message
from retinue.support.signals import list_stop_signals
from retinue.support.stdio_streams import is_blocked
from retinue.toolsets.base import compute_exit_status
from retinue.tui.keys import KeyboardReader, KeyHandler
from retinue.tui.live_view import EngineNote, EventView, LinesView, LiveView, is_screen, run_view, storage_losses


def make_retinue(options: RunOptions, *, root: str | None = None) -> Retinue:
    """Return a Retinue for a command whose answer a person reads, in a new conversation or the one of `root`.

    Raises:
        InvalidInputError: an option has an invalid value.
    """
    return _build_retinue(options, root=root, offline_may_answer=True, owns_process=True)


def make_server_retinue(
    options: RunOptions, *, root: str | None = None, client: str | None = None, owns_process: bool = True
) -> Retinue:
    """Return a Retinue for a server, where the offline engine is not chosen automatically.

    Raises:
        InvalidInputError: an option has an invalid value.
        click.UsageError: the engine is unknown, which would show only at the first call.
    """
    retinue = _build_retinue(options, root=root, client=client, owns_process=owns_process)
    engines = ("auto", *retinue.engines)
    if options.engine and options.engine not in engines:
        raise click.UsageError(unknown_name_message("engine", options.engine, engines))
    return retinue


def _build_retinue(options: RunOptions, **how: Any) -> Retinue:
    try:
        return Retinue(cwd=options.cwd, settings=options.settings(), **how)
    except ValueError as error:
        raise InvalidInputError(f"{error}. Nothing was started.") from error


STOPPING_MESSAGE = "Stopping; what the runs had is kept. A second signal ends at once."
MAX_NAMED = 3
"""Interrupted sessions that are named; others are counted."""

WorkResult = TypeVar("WorkResult")


async def run_watched(
    retinue: Retinue,
    work: Callable[[], Awaitable[WorkResult]],
    view: EventView,
    toolset: str,
    options: RunOptions,
) -> WorkResult:
    """Run `work` in an open Retinue, send its events to the view, and stop its runs on a signal.

    Raises:
        RefusedError: nothing was started.
    """
    result: WorkResult | RefusedError
    keyboard = KeyboardReader(sys.stdin)
    # Signals are handled until the view is closed: a reader that has stopped reading must not block the process.
    async with retinue, anyio.create_task_group() as listening:
        for warning in _startup_warnings(retinue, toolset):
            print_warning(warning, quiet=options.quiet)
        await listening.start(_stop_on_signal, retinue, view, keyboard, options)
        async with retinue.events(deltas=view.wants_deltas) as watcher, anyio.create_task_group() as showing:
            showing.start_soon(run_view, watcher, view)
            if isinstance(view, KeyHandler):
                showing.start_soon(keyboard.listen, view.press)
            try:
                result = await work()
            except RefusedError as refusal:  # caught here: the task groups would wrap it
                result = refusal
            showing.cancel_scope.cancel()
        listening.cancel_scope.cancel()
    if isinstance(result, RefusedError):
        raise result
    return result


# -- the view --------------------------------------------------------------------------------------


@contextmanager
def live_view(
    retinue: Retinue, toolset: str, options: RunOptions, *, shows_progress: bool = True
) -> Iterator[EventView]:
    """Make the view of a command on stderr; log messages go to it, as they would break its screen."""

    class ViewLogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            view.show_message(record.getMessage())

    view = _make_view(retinue, toolset, options, shows_progress=shows_progress)
    logger, handler = logging.getLogger("retinue"), ViewLogHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield view
    finally:
        logger.removeHandler(handler)
        if is_blocked(sys.stderr) and not sys.stderr.isatty():
            # Nobody has read for as long as closing the view may take: later messages must not block either.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for the rest of the process


def _make_view(retinue: Retinue, toolset: str, options: RunOptions, *, shows_progress: bool) -> EventView:
    stream = sys.stderr
    if stream is None or options.quiet:
        return LinesView(stream, storage_losses)
    settings = retinue.settings(toolset).settings
    is_auto_engine = settings.engine == "auto"
    about = (
        {kind.name: kind.summary_for(settings.model) for kind in retinue.engines.values()} if is_auto_engine else {}
    )
    note = EngineNote(about)
    if not shows_progress:
        return LinesView(stream, note, storage_losses)
    if is_screen(stream, os.environ):
        return LiveView(stream, settings.max_lines_per_window, note, storage_losses)
    from retinue.tui.event_lines import EventLineFormatter

    return LinesView(stream, note, EventLineFormatter())


def _startup_warnings(retinue: Retinue, toolset: str) -> Iterator[str]:
    """Yield the warnings to print before anything runs."""
    if count := len(retinue.recovered_sessions):
        ids = ", ".join(summary.session[:SHORT_ID_LENGTH] for summary in retinue.recovered_sessions[:MAX_NAMED])
        were = pluralize(count, "run was interrupted when its process", "runs were interrupted when their process")
        more = ", …" if count > MAX_NAMED else ""
        yield f"{were} ended: {ids}{more} (retinue sessions show ID)"
    if problems := retinue.settings(toolset).problems:
        values = pluralize(len(problems), "setting was", "settings were")
        yield f"{values} not taken as written in {problems[0].source} (retinue doctor)"


# -- signals ---------------------------------------------------------------------------------------


async def _stop_on_signal(
    retinue: Retinue, view: EventView, keyboard: KeyboardReader, options: RunOptions, *, task_status: TaskStatus[None]
) -> None:
    """Wait for a signal and stop all runs; the next signal ends the process at once."""
    signals = list_stop_signals()
    if not signals:
        task_status.started()
        return
    with anyio.open_signal_receiver(*signals) as received:
        task_status.started()
        async for _ in received:
            break
        for number in signals:
            signal.signal(number, lambda *_: _exit_now(view, keyboard))
        if not options.quiet:
            view.show_message(STOPPING_MESSAGE)
        retinue.stop_all()
        await anyio.sleep_forever()


def _exit_now(view: EventView, keyboard: KeyboardReader) -> None:
    view.restore()
    keyboard.restore()
    os._exit(EXIT_CANCELLED)


MAX_NAME_LENGTH = 100
"""Characters of a run's name in a heading."""
LIMIT_FLAGS = {"depth": "--max-depth", "allow_write": "--allow-write"}
"""The option that decides about a removed tool, by the rule that removed it."""


def run_plan(
    retinue: Retinue, plan: Plan, toolset: str, options: RunOptions, *, asks_for_trust: bool = True
) -> tuple[RunResult, ...]:
    """Run a plan with the defaults of a toolset and return its results; first ask about agents that need trust.

    Raises:
        CommandRefusedError: nothing ran: the call was refused, or its only task could not start.
    """
    if asks_for_trust and is_interactive():
        from retinue.cli.trust_prompt import ask_for_trust

        ask_for_trust(retinue, [task.agent for task in plan.tasks if task.agent])
    call = structs.replace(retinue.call(toolset), records_refusals=False)
    only_task = plan.tasks[0] if plan.mode is Mode.SINGLE else None
    try:
        with live_view(retinue, toolset, options) as view:
            results = anyio.run(run_watched, retinue, lambda: retinue.run_plan(plan, call), view, toolset, options)
    except RefusedError as refusal:
        raise _refused_error(refusal.failure, retinue, only_task) from refusal
    if only_task and (failure := results[0].failure) and not results[0].was_started:
        raise _refused_error(failure, retinue, only_task)
    return results


def exit_with_results(
    ctx: click.Context, results: Sequence[RunResult], retinue: Retinue, mode: Mode, options: RunOptions
) -> NoReturn:
    """Print the results of a plan and end the command with their exit status."""
    print_results(results, retinue, mode, options)
    ctx.exit(compute_exit_status(results))


def print_results(results: Sequence[RunResult], retinue: Retinue, mode: Mode, options: RunOptions) -> None:
    """Print the results of a plan: answers to stdout, failures to stderr.

    Raises:
        OutputError: stdout cannot be written; the message has the command that prints the answers.
    """
    for result in results:
        _print_differences(result, options)
    try:
        with hint_stored_answers([result.session for result in results if result.actual.saved]):
            if options.as_json:
                print_json(_results_json(results, mode))
            else:
                _print_answers(results, mode)
    finally:
        print_failures(results, retinue, mode, options)


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
                where = f"The answer is kept: `retinue sessions output {only}` prints it."
            case _:
                where = f"The answers are kept: `retinue sessions output ID` prints each of {', '.join(ids)}."
        raise OutputError(f"{error.message} {where}") from error


def print_failures(results: Sequence[RunResult], retinue: Retinue, mode: Mode, options: RunOptions) -> None:
    """Print why runs failed, with hints, each hint once."""
    printed_hints: set[str] = set()
    for number, result in enumerate(results, 1):
        if failure := result.failure:
            print_error(_task_label(mode, number, result) + failure.message)
            if result.answer is AnswerStatus.DIAGNOSIS:
                print_hint(result.text, quiet=options.quiet)
            hints = [hint for hint in _failure_hints(failure, retinue) if hint not in printed_hints]
            for hint in hints:
                print_hint(hint)
            printed_hints.update(hints)


# -- answers ---------------------------------------------------------------------------------------


def _results_json(results: Sequence[RunResult], mode: Mode) -> dict[str, Any]:
    return result_json(results[0]) if mode is Mode.SINGLE else results_json(results, compute_exit_status(results))


def _print_answers(results: Sequence[RunResult], mode: Mode) -> None:
    for number, result in enumerate(results if mode is Mode.PARALLEL else results[-1:], 1):
        if not result.text or result.answer not in {AnswerStatus.FINAL, AnswerStatus.PARTIAL}:
            continue
        if mode is Mode.PARALLEL:
            print_lines([click.style(_result_title(number, result), bold=True)])
        print_answer(result.text)


def _result_title(number: int, result: RunResult) -> str:
    state = "error" if result.failure else "ok"
    session = f" (session {result.session[:SHORT_ID_LENGTH]})" if result.session else ""
    return f"=== {number} {to_one_line(result.spec.name, MAX_NAME_LENGTH)}: {state}{session} ==="


def _print_differences(result: RunResult, options: RunOptions) -> None:
    """Print where a run differs from its definition: preferences, model, tools, storage."""
    actual, name = result.actual, result.spec.name
    if actual.not_applied:
        print_hint(
            f"{name}: {result.spec.engine} does not apply {', '.join(actual.not_applied)}", quiet=options.quiet
        )
    if actual.declared_model and actual.model and not same_model(actual.model, actual.declared_model):
        print_hint(f"{name}: answered by {actual.model}, not by {actual.declared_model}", quiet=options.quiet)
    for removed in actual.tools_removed:
        see = f"; see {LIMIT_FLAGS[removed.by]}" if removed.by in LIMIT_FLAGS else ""
        print_hint(f"{name}: without {removed.tool} (by {removed.by}{see})", quiet=options.quiet)
    if result.was_started and not actual.saved:
        # Printed even with --quiet: something is lost.
        print_warning(
            f"{name}: not all of this run could be stored; its result is complete. `retinue doctor` says why."
        )


# -- failures --------------------------------------------------------------------------------------


def _task_label(mode: Mode, number: int, result: RunResult) -> str:
    if mode is Mode.CHAIN:
        return f"Chain stopped at step {number} ({result.agent}): "
    return f"{number} {result.spec.name}: " if mode is Mode.PARALLEL else ""


def _refused_error(failure: Failure, retinue: Retinue, task: Task | None) -> CommandRefusedError:
    return CommandRefusedError(failure, *_failure_hints(failure, retinue), task=task)


def _failure_hints(failure: Failure, retinue: Retinue) -> Iterator[str]:
    """Yield hints for people; the message of the failure is the same for people and models."""
    if broken := failure.detail.get("broken"):
        yield f"There is a file for it, but it cannot be used: {broken}"
    if failure.code is ErrorCode.UNKNOWN_AGENT and (
        near := retinue.roster().suggest_name(str(failure.detail.get("agent", "")))
    ):
        yield f"Did you mean {near}?"
    if failure.code is ErrorCode.UNKNOWN_ENGINE:
        asked = retinue.settings("single").settings.engine
        yield suggest_spelling(asked, ["auto", *retinue.engines]).strip() or "`retinue doctor` shows what there is."
