"""What a run on pi tells beside what a run on any program does: how it ended, and what came after that."""

from __future__ import annotations

import anyio

from retinue.engines.base import Emit
from retinue.engines.pi.events import PiEventReader
from retinue.engines.process.child import ChildProcess
from retinue.engines.process_reporter import ProcessReporter, ProgramInfo, wait_for_exit
from retinue.model.events import Notice

PI = ProgramInfo(name="pi", records="events", check_command="pi -p hello")

STDERR_POLL_INTERVAL = 0.5
"""Seconds between two looks at stderr while stdout is silent."""


class PiReporter(ProcessReporter):
    """Passes on what happens in one run on a pi that may have served others before."""

    def __init__(self, child: ChildProcess, reader: PiEventReader, emit: Emit) -> None:
        super().__init__(PI, child, reader, emit, stderr_before=child.stderr_bytes)
        self.reader = reader
        self.late_messages = 0
        """Events after the run had settled: they are no part of it."""

    @property
    def succeeded(self) -> bool:
        """Whether no provider failed, nobody broke off, and pi was silent after the end."""
        return self._stop_reason in {"stop", "tool_use", "length"} and not self.late_messages

    async def receive(self) -> bytes:
        """The next chunk of stdout. What is written to stderr meanwhile is counted, be stdout ever so silent."""
        while True:
            with anyio.move_on_after(STDERR_POLL_INTERVAL):
                return await self._process.receive()
            await self.count(0)

    async def finish(self) -> None:
        """The run is over, and its process may go on."""
        await self.flush_counts()
        if self.late_messages:
            message = f"pi told of {self.late_messages} more events after it had settled; they are left out."
            await self._emit(Notice("late_events", message))

    async def finish_after_exit(self) -> None:
        """The run is over because its process is; what that leaves behind is ended.

        Raises:
            EngineError: it said nothing, or broke off within a record.
        """
        await self.finish()
        await self.report_leftovers()
        end = await self.report_exit(await wait_for_exit(self._process))
        if end.signal:
            return  # that says why, whatever was cut off by it
        if self.reader.is_truncated:
            raise PI.truncated_error(end)
        if not self.reader.stdout and end.code:
            raise PI.produced_nothing_error(self._process, self.reader, end)
