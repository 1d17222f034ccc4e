"""Report a run on pi: its events, its end, and events that arrive after the end."""

from __future__ import annotations

import anyio

from retinue.engines.base import Emit
from retinue.engines.pi.events import PiEventReader
from retinue.engines.process.child import ChildProcess
from retinue.engines.process_reporter import ProcessReporter, ProgramInfo, wait_for_exit
from retinue.model.events import Notice

PI = ProgramInfo(name="pi", records="events", check_command="pi -p hello")

STDERR_POLL_INTERVAL = 0.5
"""Seconds between two checks of stderr while stdout is silent."""


class PiReporter(ProcessReporter):
    """Reporter of one run on a pi process that may have served earlier runs."""

    def __init__(self, child: ChildProcess, reader: PiEventReader, emit: Emit) -> None:
        super().__init__(PI, child, reader, emit, stderr_before=child.stderr_bytes)
        self.reader = reader
        self.late_messages = 0
        """Events after the agent was done; they are not part of the run."""

    @property
    def succeeded(self) -> bool:
        """Return whether the run ended without a provider error or abort and without late events."""
        return self._stop_reason in {"stop", "tool_use", "length"} and not self.late_messages

    async def receive(self) -> bytes:
        """Return the next chunk of stdout; count stderr meanwhile, even while stdout is silent."""
        while True:
            with anyio.move_on_after(STDERR_POLL_INTERVAL):
                return await self._process.receive()
            await self.count(0)

    async def finish(self) -> None:
        """Report the end of the run; its process may continue to run."""
        await self.flush_counts()
        if self.late_messages:
            message = f"pi told of {self.late_messages} more events after it had settled; they are left out."
            await self._emit(Notice("late_events", message))

    async def finish_after_exit(self) -> None:
        """Report the end of a run whose process has exited, and stop what the process left behind.

        Raises:
            EngineError: it printed nothing, or its output ended within a record.
        """
        await self.finish()
        await self.report_leftovers()
        end = await self.report_exit(await wait_for_exit(self._process))
        if end.signal:
            return  # the signal is the reason, whatever it cut off
        if self.reader.is_truncated:
            raise PI.truncated_error(end)
        if not self.reader.stdout and end.code:
            raise PI.produced_nothing_error(self._process, self.reader, end)
