"""Run the plan of a command with the live view, stop it on a signal, and exit with its results."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import anyio
import click
from anyio.abc import TaskStatus
from msgspec import structs

from retinue.cli.main import EXIT_CANCELLED
from retinue.cli.options import CommandRefusedError, InvalidInputError, RunOptions
from retinue.cli.printing import is_interactive, print_hint, print_warning
from retinue.cli.run_output import failure_hints, format_setting_problem, print_failures, print_results, print_usage
from retinue.client import Retinue
from retinue.config.settings import SettingProblem
from retinue.model.errors import Failure, RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import Event, Notice
from retinue.model.results import RunResult, compute_exit_status
from retinue.model.tasks import Mode, Plan, Task
from retinue.support.formatting import SHORT_ID_LENGTH, pluralize, unknown_name_message
from retinue.support.own_process import is_blocked, list_stop_signals
from retinue.tui.event_view import (
    EngineNote,
    EventView,
    KeyHandler,
    LinesView,
    PendingEvents,
    is_screen,
    run_view,
    storage_losses,
)

if TYPE_CHECKING:
    from retinue.tui.answer_stream import AnswerPrinter, AnswerStream
    from retinue.tui.keys import KeyboardReader


def make_retinue(options: RunOptions, *, root: str | None = None) -> Retinue:
    """Return a Retinue for a command whose answer a person reads, in a new conversation or the one of `root`.

    Raises:
        InvalidInputError: an option has an invalid value.
    """
    return _build_retinue(options, root=root, offline_may_answer=True)


def make_server_retinue(options: RunOptions, *, root: str | None = None, client: str | None = None) -> Retinue:
    """Return a Retinue for a server, where the offline engine is not chosen automatically.

    Raises:
        InvalidInputError: an option has an invalid value.
        click.UsageError: the engine is unknown, which would show only at the first call.
    """
    retinue = _build_retinue(options, root=root, client=client)
    engines = ("auto", *retinue.engines)
    if options.engine and options.engine not in engines:
        raise click.UsageError(unknown_name_message("engine", options.engine, engines))
    return retinue


def _build_retinue(options: RunOptions, **how: Any) -> Retinue:
    try:
        return Retinue(cwd=options.cwd, settings=options.settings(), **how)
    except ValueError as error:
        raise InvalidInputError(f"{error}. Nothing was started.") from error


STOPPING_MESSAGE = "Cancelling; partial output is kept. A second signal ends at once."
MAX_NAMED = 3
"""Interrupted sessions that are named; others are counted."""

WorkResult = TypeVar("WorkResult")


async def run_watched(
    retinue: Retinue, work: Callable[[], Awaitable[WorkResult]], view: EventView, toolset: str, options: RunOptions
) -> WorkResult:
    """Run `work` in an open Retinue, send its events to the view, and stop its runs on a signal.

    Raises:
        RefusedError: nothing was started.
    """
    result: WorkResult | RefusedError
    keyboard = _open_keyboard(view)
    # Signals are handled until the view is closed: a reader that has stopped reading must not block the process.
    async with retinue, anyio.create_task_group() as listening:
        problems = retinue.settings(toolset).problems
        for warning in _recovery_warnings(retinue):
            print_warning(warning, quiet=options.quiet)
        # A restriction that cannot be read is the reason why nothing is run.
        for warning in _setting_warnings([each for each in problems if not each.is_restriction]):
            # Printed even with --quiet: the run does not do what was configured.
            print_warning(warning)
        await listening.start(_stop_on_signal, retinue, view, keyboard, options)
        async with retinue.events(deltas=view.wants_deltas) as watcher, anyio.create_task_group() as showing:
            showing.start_soon(run_view, _UnprintedEvents(watcher, problems[:MAX_NAMED]), view)
            if keyboard and isinstance(view, KeyHandler):
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


def _open_keyboard(view: EventView) -> KeyboardReader | None:
    """Return the keyboard for a view that reacts to keys."""
    if not isinstance(view, KeyHandler):
        return None
    from retinue.tui.keys import KeyboardReader

    return KeyboardReader(sys.stdin)


# -- the view --------------------------------------------------------------------------------------


@contextmanager
def live_view(
    retinue: Retinue,
    toolset: str,
    options: RunOptions,
    *,
    shows_progress: bool = True,
    answer: AnswerStream | None = None,
) -> Iterator[EventView]:
    """Make the view of a command on stderr; log messages go to it, as they would break its screen.

    The answer is printed on stdout, above the view if both are one terminal.
    """

    class ViewLogHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            view.show_message(record.getMessage())

    view = _make_view(retinue, toolset, options, shows_progress=shows_progress, answer=answer)
    logger, handler = logging.getLogger("retinue"), ViewLogHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield view
    finally:
        logger.removeHandler(handler)
        if is_blocked(sys.stderr) and not sys.stderr.isatty():
            # Nobody has read for as long as closing the view may take: later messages must not block either.
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for the rest of the process


def _make_view(
    retinue: Retinue, toolset: str, options: RunOptions, *, shows_progress: bool, answer: AnswerStream | None
) -> EventView:
    stream = sys.stderr
    if stream is None or options.quiet:
        return LinesView(stream, storage_losses, answer=_make_printer(answer, whole_lines=False))
    settings = retinue.settings(toolset).settings
    engines = retinue.engines.values() if settings.engine == "auto" else ()
    note = EngineNote({kind.name: partial(kind.describe_run, environ=os.environ) for kind in engines})
    if not shows_progress:
        return LinesView(stream, note, storage_losses)
    if is_screen(stream, os.environ) and (answer is None or _is_same_terminal(sys.stdout, stream)):
        from retinue.tui.live_view import LiveView

        color = click.get_current_context().color
        return LiveView(stream, settings.max_lines_per_window, note, storage_losses, answer=answer, color=color)
    from retinue.tui.event_lines import EventLineFormatter

    printer = _make_printer(answer, whole_lines=stream.isatty())
    return LinesView(stream, note, EventLineFormatter(), answer=printer)


def _make_printer(answer: AnswerStream | None, *, whole_lines: bool) -> AnswerPrinter | None:
    if answer is None:
        return None
    from retinue.tui.answer_stream import AnswerPrinter

    return AnswerPrinter(sys.stdout, answer, whole_lines=whole_lines)


def _is_same_terminal(one: TextIO, other: TextIO) -> bool:
    try:
        return os.path.samestat(os.fstat(one.fileno()), os.fstat(other.fileno()))
    except (OSError, ValueError):
        return False


class _UnprintedEvents:
    """The events of a source without the notices about settings, which are printed once before all runs."""

    def __init__(self, source: PendingEvents, printed: Iterable[SettingProblem]) -> None:
        self._source = source
        self._messages = frozenset(f"{problem.source}: {problem.message}" for problem in printed)

    def drain(self) -> tuple[EventRecord, ...]:
        pending = self._source.drain()
        return tuple(record for record in pending if not self._is_printed(record.event))

    def _is_printed(self, event: Event) -> bool:
        return isinstance(event, Notice) and event.message in self._messages


def _recovery_warnings(retinue: Retinue) -> Iterator[str]:
    """Yield the warning about runs whose process ended before them."""
    if count := len(retinue.recovered_sessions):
        ids = ", ".join(summary.session[:SHORT_ID_LENGTH] for summary in retinue.recovered_sessions[:MAX_NAMED])
        were = pluralize(count, "run was interrupted when its process", "runs were interrupted when their process")
        more = ", …" if count > MAX_NAMED else ""
        yield f"{were} ended: {ids}{more} (retinue sessions show ID)"


def _setting_warnings(problems: Sequence[SettingProblem]) -> Iterator[str]:
    """Yield the warnings about ignored and changed settings."""
    yield from map(format_setting_problem, problems[:MAX_NAMED])
    if len(problems) > MAX_NAMED:
        yield f"{pluralize(len(problems) - MAX_NAMED, 'more setting')} ignored or changed (retinue doctor)"


# -- signals ---------------------------------------------------------------------------------------


async def _stop_on_signal(
    retinue: Retinue,
    view: EventView,
    keyboard: KeyboardReader | None,
    options: RunOptions,
    *,
    task_status: TaskStatus[None],
) -> None:
    """Wait for a signal and stop all runs; the next signal ends the process at once."""
    signals = list_stop_signals()
    if not signals:
        task_status.started()
        return
    try:
        with anyio.open_signal_receiver(*signals) as received:
            task_status.started()
            async for _ in received:
                break
            _exit_on_signals(signals, view, keyboard)
            if not options.quiet:
                view.show_message(STOPPING_MESSAGE)
            retinue.stop_all()
            await anyio.sleep_forever()
    finally:
        # The receiver leaves the handler that raises KeyboardInterrupt, and Retinue is not closed yet.
        _exit_on_signals(signals, view, keyboard)


def _exit_on_signals(signals: Iterable[signal.Signals], view: EventView, keyboard: KeyboardReader | None) -> None:
    for number in signals:
        signal.signal(number, lambda *_: _exit_now(view, keyboard))


@contextmanager
def restore_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers that the block replaces."""
    handlers = {number: signal.getsignal(number) for number in list_stop_signals()}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # as of a handler that is not Python's
                signal.signal(number, handler)


def _exit_now(view: EventView, keyboard: KeyboardReader | None) -> None:
    view.restore()
    if keyboard:
        keyboard.restore()
    os._exit(EXIT_CANCELLED)


def run_and_exit(ctx: click.Context, retinue: Retinue, plan: Plan, toolset: str, options: RunOptions) -> NoReturn:
    """Run a plan, print its results, and end the command with their exit status.

    On a terminal the answer of a single run is printed while it is written.
    """
    answer = _make_answer_stream(plan, options)
    started = time.monotonic()
    results = run_plan(retinue, plan, toolset, options, answer=answer)
    elapsed = time.monotonic() - started
    try:
        print_results(results, retinue, plan.mode, options, answer)
    finally:
        print_usage(results, retinue, elapsed, options)
    ctx.exit(compute_exit_status(results))


def _make_answer_stream(plan: Plan, options: RunOptions) -> AnswerStream | None:
    """Return the stream of an answer that is printed while it is written; one with a schema is no text."""
    if options.as_json or plan.mode is not Mode.SINGLE or plan.tasks[0].output_schema is not None:
        return None
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    from retinue.tui.answer_stream import AnswerStream

    return AnswerStream()


def run_plan(
    retinue: Retinue,
    plan: Plan,
    toolset: str,
    options: RunOptions,
    *,
    asks_for_trust: bool = True,
    answer: AnswerStream | None = None,
) -> tuple[RunResult, ...]:
    """Run a plan with the defaults of a toolset and return its results; first ask about agents that need trust.

    The answer is printed on stdout while it is written.

    Raises:
        CommandRefusedError: nothing ran: the call was refused, or its only task could not start.
    """
    if asks_for_trust and is_interactive():
        from retinue.cli.trust_prompt import ask_for_trust

        ask_for_trust(retinue, [task.agent for task in plan.tasks if task.agent])
    try:
        call = structs.replace(retinue.call(toolset, model=options.model), records_refusals=False)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    only_task = plan.tasks[0] if plan.mode is Mode.SINGLE else None
    try:
        with live_view(retinue, toolset, options, answer=answer) as view, restore_signal_handlers():
            results = anyio.run(run_watched, retinue, lambda: retinue.run_plan(plan, call), view, toolset, options)
    except RefusedError as refusal:
        raise _refused_error(refusal.failure, retinue, only_task) from refusal
    if only_task and (failure := results[0].failure) and not results[0].was_started:
        raise _refused_error(failure, retinue, only_task)
    return results


def _refused_error(failure: Failure, retinue: Retinue, task: Task | None) -> CommandRefusedError:
    return CommandRefusedError(failure, *failure_hints(failure, retinue), task=task)


# -- a trial ------------------------------------------------------------------------------------------


TOOLSET = "single"
SEARCH_TASK = Task(agent="explorer", prompt="Where is the main entry point, and what does the README say it is for?")
REQUEST_TASK = Task(agent="explorer", prompt="Reply with the one word: ready")
"""One short request to a model, which costs a fraction of a cent."""
MAX_REQUESTS = 2
"""A limit of one would be announced to the model as its last turn."""


def run_trial(engine: str, task: Task, *, model: str | None = None, cwd: str | None = None) -> RunResult:
    """Give an engine one task and return its result; print its failure and what it consumed."""
    print_hint(f"Testing: {task.agent}, {task.prompt}")
    options = RunOptions(
        engine=engine, model=model, cwd=cwd, max_turns=MAX_REQUESTS if task is REQUEST_TASK else None
    )
    retinue, plan = make_retinue(options), Plan(tasks=(task,))
    results = run_plan(retinue, plan, TOOLSET, options, asks_for_trust=False)
    print_failures(results, retinue, plan.mode)
    print_usage(results, retinue, results[0].elapsed, options)
    return results[0]
