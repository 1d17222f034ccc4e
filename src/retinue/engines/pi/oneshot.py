"""Run one task on a pi process of its own (`--mode json -p`), for old versions and agents with extra arguments."""

from __future__ import annotations

from contextlib import suppress

import anyio

from retinue.engines.base import Completion, Emit
from retinue.engines.json_lines import LineSplitter
from retinue.engines.pi.events import (
    AgentIdle,
    CommandResponse,
    ExtensionPrompt,
    ExtensionReady,
    PiEventReader,
    UserMessageDelivered,
)
from retinue.engines.pi.reporter import PiReporter
from retinue.engines.process.child import ChildExitedError, ChildProcess
from retinue.model.events import EngineSessionStarted

EXIT_GRACE = 1.0
"""Seconds a process has to exit once its agent is done."""


async def run_oneshot(
    process: ChildProcess, prompt: str, session: str | None, emit: Emit, *, settles: bool = True
) -> None:
    """Send the prompt and report events until the process exits, or is done and does not exit.

    `settles` is False for versions that do not report when their agent is done.

    Raises:
        EngineError: it printed nothing, or its output ended within a record.
    """
    reporter = PiReporter(process, PiEventReader(), emit)
    await reporter.start()
    with suppress(ChildExitedError):  # its exit code and stderr give the reason
        await process.send(prompt.encode())
    process.close_stdin()
    if session:
        await emit(EngineSessionStarted(session))
    if settles:
        await emit(Completion.PENDING)
    if await _report_until_closed(process, reporter, emit):
        await reporter.finish_after_exit()
    else:
        await reporter.finish()


async def _report_until_closed(process: ChildProcess, reporter: PiReporter, emit: Emit) -> bool:
    """Report events; return whether the process closed its output, as it should."""
    lines, is_idle = LineSplitter(), False
    with anyio.CancelScope() as exit_deadline:
        while True:
            chunk = await reporter.receive()
            for message in reporter.reader.read(lines.feed(chunk) if chunk else lines.flush()):
                if isinstance(message, AgentIdle):
                    process.answered = is_idle = True
                    await emit(Completion.REPORTED)
                    exit_deadline.deadline = anyio.current_time() + EXIT_GRACE
                elif isinstance(message, CommandResponse | UserMessageDelivered | ExtensionPrompt | ExtensionReady):
                    continue
                elif is_idle:
                    reporter.late_messages += 1
                else:
                    await reporter.emit(message)
            await reporter.count(len(chunk))
            if not chunk:
                return True
    return False
