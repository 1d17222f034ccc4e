"""Something at work: runs watched, stopped by a signal, and told when they are done."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import anyio
from anyio.abc import TaskStatus

from retinue.app import Retinue
from retinue.frontends.cli.main import CANCELLED
from retinue.frontends.cli.options import Options
from retinue.frontends.cli.talk import warn
from retinue.frontends.event_lines import EventLines
from retinue.frontends.keys import Keyboard, Keyed
from retinue.frontends.signals import stop_signals
from retinue.frontends.streams import is_stuck
from retinue.frontends.views import EngineNote, LinesView, View, is_screen, losses, show
from retinue.frontends.wording import SHORT, counted
from retinue.types import Refused

STOPPING = "Stopping; what the runs had is kept. A second signal ends at once."
NAMED = 3
"""Interrupted sessions named; others are counted."""

Found = TypeVar("Found")


def at_work(
    retinue: Retinue,
    work: Callable[[], Awaitable[Found]],
    options: Options,
    *,
    surface: str,
    shows_progress: bool = True,
) -> Found:
    """Opens Retinue and does the work in it; shows it meanwhile on stderr, and stops its runs on a signal.

    Raises:
        Refused: nothing was started.
    """

    async def working() -> Found | Refused:
        async with retinue:
            for warning in _warnings(retinue, surface):
                warn(warning, quiet=options.quiet)
            return await _watched(retinue, work, view, options)

    view = _view(retinue, surface, options, shows_progress=shows_progress)
    with _logged_to(view):
        found = anyio.run(working)
    if is_stuck(sys.stderr) and not sys.stderr.isatty():
        # Nobody has read for as long as closing the view may take. What is left to say must not keep us either.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - a device, for the rest of the process
    if isinstance(found, Refused):
        raise found
    return found


async def _watched(
    retinue: Retinue, work: Callable[[], Awaitable[Found]], view: View, options: Options
) -> Found | Refused:
    found: Found | Refused
    keyboard = Keyboard(sys.stdin)
    # Signals are heard until the view is closed, too: a reader who has stopped reading must not hold us for ever.
    async with anyio.create_task_group() as listening:
        await listening.start(_stop_on_signal, retinue, view, keyboard, options)
        async with retinue.events(deltas=view.wants_deltas) as watcher, anyio.create_task_group() as showing:
            showing.start_soon(show, watcher, view)
            if isinstance(view, Keyed):
                showing.start_soon(keyboard.listen, view.press)
            try:
                found = await work()
            except Refused as refusal:  # caught here: the task groups would wrap it
                found = refusal
            showing.cancel_scope.cancel()
        listening.cancel_scope.cancel()
    return found


# -- what is shown ---------------------------------------------------------------------------------


def _view(retinue: Retinue, surface: str, options: Options, *, shows_progress: bool) -> View:
    stream = sys.stderr
    if stream is None or options.quiet:
        return LinesView(stream, losses)
    settings = retinue.settings(surface).settings
    is_chosen_for_us = settings.engine == "auto"
    about = {kind.name: kind.about for kind in retinue.engines.values()} if is_chosen_for_us else {}
    note = EngineNote(about)
    if not shows_progress:
        return LinesView(stream, note, losses)
    if is_screen(stream, os.environ):
        from retinue.frontends.terminal import LiveView

        return LiveView(stream, settings.max_lines_per_window, note, losses)
    return LinesView(stream, note, EventLines())


@contextmanager
def _logged_to(view: View) -> Iterator[None]:
    """Lets the view say what is logged: printed past it, it would tear the picture, and not be quiet."""

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            view.say(record.getMessage())

    logger, handler = logging.getLogger("retinue"), Said(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _warnings(retinue: Retinue, surface: str) -> Iterator[str]:
    """What a user should know before anything runs."""
    if count := len(retinue.interrupted):
        ids = ", ".join(summary.session[:SHORT] for summary in retinue.interrupted[:NAMED])
        were = counted(count, "run was interrupted when its process", "runs were interrupted when their process")
        more = ", …" if count > NAMED else ""
        yield f"{were} ended: {ids}{more} (retinue sessions show ID)"
    if problems := retinue.settings(surface).problems:
        values = counted(len(problems), "setting was", "settings were")
        yield f"{values} not taken as written in {problems[0].source} (retinue doctor)"


# -- how it is stopped -----------------------------------------------------------------------------


async def _stop_on_signal(
    retinue: Retinue, view: View, keyboard: Keyboard, options: Options, *, task_status: TaskStatus[None]
) -> None:
    """Waits for a signal, then stops all runs; the next signal ends the process at once."""
    signals = stop_signals()
    if not signals:
        task_status.started()
        return
    with anyio.open_signal_receiver(*signals) as received:
        task_status.started()
        async for _ in received:
            break
        for number in signals:
            signal.signal(number, lambda *_: _leave(view, keyboard))
        if not options.quiet:
            view.say(STOPPING)
        retinue.stop_all()
        await anyio.sleep_forever()


def _leave(view: View, keyboard: Keyboard) -> None:
    view.restore()
    keyboard.restore()
    os._exit(CANCELLED)
