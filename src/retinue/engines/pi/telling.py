"""What a run on pi tells beside what a run on any program does: how it ended, and what came after that."""

from __future__ import annotations

import anyio

from retinue.engines.base import Emit
from retinue.engines.child import Process
from retinue.engines.pi.wire import Reader
from retinue.engines.telling import ProcessTelling, Program, end_of
from retinue.events import Notice

PI = Program(name="pi", records="events", trial="pi -p hello")

LOOK = 0.5
"""Seconds between two looks at stderr while stdout is silent."""


class Telling(ProcessTelling):
    """Passes on what happens in one run on a pi that may have served others before."""

    def __init__(self, child: Process, reader: Reader, emit: Emit) -> None:
        super().__init__(PI, child, reader, emit, stderr_before=child.stderr_bytes)
        self.reader = reader
        self.late = 0
        """Events after the run had settled: they are no part of it."""

    @property
    def went_well(self) -> bool:
        """Whether no provider failed, nobody broke off, and pi was silent after the end."""
        return self._stopped in {"stop", "tool_use", "length"} and not self.late

    async def receive(self) -> bytes:
        """The next chunk of stdout. What is written to stderr meanwhile is counted, be stdout ever so silent."""
        while True:
            with anyio.move_on_after(LOOK):
                return await self._process.receive()
            await self.count(0)

    async def end(self) -> None:
        """The run is over, and its process may go on."""
        await self.end_of_output()
        if self.late:
            message = f"pi told of {self.late} more events after it had settled; they are left out."
            await self._emit(Notice("late_events", message))

    async def child_gone(self) -> None:
        """The run is over because its process is; what that leaves behind is ended.

        Raises:
            EngineError: it said nothing, or broke off within a record.
        """
        await self.end()
        await self.leftovers()
        end = await self.end_of_process(await end_of(self._process))
        if end.signal:
            return  # that says why, whatever was cut off by it
        if self.reader.is_cut:
            raise PI.broke_off(end)
        if not self.reader.stdout and end.code:
            raise PI.silent(self._process, self.reader, end)
