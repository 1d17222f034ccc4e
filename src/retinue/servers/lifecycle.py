"""Run a server of any protocol until it is done or a signal arrives."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskStatus

from retinue.model.results import CANCELLED_EXIT_CODE
from retinue.support.own_process import list_stop_signals


class ServerStartError(Exception):
    """A server cannot start; the message gives the reason and what to do."""


async def run_until_signal(work: Callable[[], Awaitable[None]], on_hangup: Sequence[Callable[[], None]] = ()) -> int:
    """Run the work until it is done or a signal arrives, and return the exit code.

    A second signal ends the process at once. On SIGHUP the `on_hangup` callbacks are called first: the terminal is
    gone, and the host with it.

    Raises:
        ServerStartError: the server cannot start.
    """
    fault: ServerStartError | None = None
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            await group.start(_cancel_on_signal, scope, on_hangup)
            try:
                await work()
            except ServerStartError as error:  # caught here: the group would wrap it
                fault = error
            group.cancel_scope.cancel()
    if fault:
        raise fault
    return CANCELLED_EXIT_CODE if scope.cancel_called else 0


async def _cancel_on_signal(
    scope: anyio.CancelScope, on_hangup: Sequence[Callable[[], None]], *, task_status: TaskStatus[None]
) -> None:
    signals = list_stop_signals()
    if not signals:
        task_status.started()
        return
    with anyio.open_signal_receiver(*signals) as received:
        task_status.started()
        async for number in received:
            for callback in on_hangup if number == signal.SIGHUP else ():
                callback()
            break
    for number in signals:
        signal.signal(number, lambda *_: os._exit(CANCELLED_EXIT_CODE))
    scope.cancel()
