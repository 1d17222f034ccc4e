"""A pi process for one run alone: `--mode json -p`, for older versions and for arguments of the agent's own."""

from __future__ import annotations

from contextlib import suppress

import anyio

from retinue.engines.base import Completion, Emit
from retinue.engines.child import ChildGone, Process
from retinue.engines.lines import Lines
from retinue.engines.pi.telling import Telling
from retinue.engines.pi.wire import Configured, Dialog, Given, Reader, Response, Settled
from retinue.events import NativeSession

GOODBYE = 1.0
"""Seconds a process has to end by itself once it has settled."""


async def follow(process: Process, prompt: str, session: str | None, emit: Emit, *, settles: bool = True) -> None:
    """Gives the process its prompt and tells what happens until it has ended, or has settled and will not end.

    `settles` is False for versions that do not report when their agent is done.

    Raises:
        EngineError: it said nothing, or broke off within a record.
    """
    telling = Telling(process, Reader(), emit)
    await telling.begin()
    with suppress(ChildGone):  # its last words say why
        await process.send(prompt.encode())
    process.close_stdin()
    if session:
        await emit(NativeSession(session))
    if settles:
        await emit(Completion.PENDING)
    if await _told_to_the_end(process, telling, emit):
        await telling.child_gone()
    else:
        await telling.end()


async def _told_to_the_end(process: Process, telling: Telling, emit: Emit) -> bool:
    """Passes events on; whether the process has closed its output, as it should."""
    lines, has_settled = Lines(), False
    with anyio.CancelScope() as goodbye:
        while True:
            chunk = await telling.receive()
            for said in telling.reader.read(lines.feed(chunk) if chunk else lines.end()):
                if isinstance(said, Settled):
                    process.answered = has_settled = True
                    await emit(Completion.REPORTED)
                    goodbye.deadline = anyio.current_time() + GOODBYE
                elif isinstance(said, Response | Given | Dialog | Configured):
                    continue
                elif has_settled:
                    telling.late += 1
                else:
                    await telling.pass_on(said)
            await telling.count(len(chunk))
            if not chunk:
                return True
    return False
