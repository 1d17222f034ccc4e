"""One run on one Claude Code: the prompt, its messages until it is over, and how its process ended."""

from __future__ import annotations

import anyio

from retinue.engines.base import Completion, Emit, EngineError
from retinue.engines.child import Process
from retinue.engines.claude.launch import cost_bound
from retinue.engines.claude.messages import Reader
from retinue.engines.claude.said import Begun, Ended, Given, Said, Taken
from retinue.engines.claude.wire import Wire
from retinue.engines.steering import Steering
from retinue.engines.telling import ProcessTelling, Program, end_of
from retinue.events import Steered
from retinue.results import ProcessEnd
from retinue.types import Code, Failure, Limits

CLAUDE = Program(name="Claude Code", records="messages", trial="claude -p hello")

LOOK = 1.0
"""Seconds of silence after which what is held back is told, and what was written to stderr is counted."""
GOODBYE = 1.0
"""Seconds a process has to end by itself once its run is over."""

FORGOTTEN = "No conversation found"
"""What Claude Code says of a session that it does not know."""


class Forgotten(Exception):  # noqa: N818 - it names what happened
    """Claude Code does not know the session it was to go on with; nothing was asked of a model."""


class Telling(ProcessTelling):
    """Passes on what happens in one run on a Claude Code of its own."""

    def __init__(self, process: Process, wire: Wire, emit: Emit, steering: Steering) -> None:
        self._reader = Reader()
        self._steering = steering
        super().__init__(CLAUDE, process, self._reader, emit)
        self._wire = wire
        self._waiting: list[Said] = []

    async def until_begun(self) -> Begun | Ended | None:
        """Passes events on until Claude Code asks the model; None if its output ended before."""
        return await self._until((Begun, Ended))

    async def until_ended(self) -> Ended | None:
        """Passes events on until the run is over; None if the output ended without a word about that.

        What was said too late for a turn begins another one.
        """
        while isinstance(ended := await self._until((Ended,)), Ended):
            if ended.subtype != "success" or not self._steering.is_pending:
                return ended
            await self._emit(Completion.REPORTED)
        return None

    async def _until(self, kinds: tuple[type[Begun | Ended], ...]) -> Begun | Ended | None:
        while True:
            while self._waiting:
                said = self._waiting.pop(0)
                if isinstance(said, kinds):
                    return said
                match said:
                    case Taken(name=name):
                        self._steering.taken(name)
                    case Given(name=name):
                        if text := self._steering.given(name):
                            await self.pass_on(Steered(text))
                    case Begun():
                        await self._emit(Completion.PENDING)
                    case Ended():
                        pass
                    case event:
                        await self.pass_on(event)
            if not await self._receive():
                return None

    async def _receive(self) -> bool:
        """Whether there was anything more."""
        lines = None
        with anyio.move_on_after(LOOK):
            lines = await self._wire.receive()
        if lines is None:
            # An answer is kept even if its result never follows. While a tool runs, silence means nothing.
            self._waiting += () if self._reader.has_open_calls else self._reader.release()
        else:
            self._waiting += self._reader.read(lines) if lines else self._reader.end()
        await self.count(sum(line.size for line in lines or ()))
        return lines is None or bool(lines or self._waiting)

    # -- the end -------------------------------------------------------------------------------------

    async def over(self, ended: Ended, limits: Limits) -> None:
        """The run is over; its process has a moment to go.

        Raises:
            EngineError: Claude Code broke it off.
        """
        self._process.answered = True
        await self._emit(Completion.REPORTED)
        self._process.close_stdin()
        await self._close(await end_of(self._process, GOODBYE))
        if ended.subtype != "success":
            raise EngineError(_broken_off(ended, limits))

    async def gone(self) -> None:
        """The output has ended without a word about the run.

        Raises:
            EngineError: it said nothing, or broke off within a record or an answer.
        """
        end = await self._close(await end_of(self._process))
        if self._reader.is_cut and not end.signal:
            raise CLAUDE.broke_off(end)
        if self._reader.is_within_answer:
            raise CLAUDE.ended_within_answer(end)
        if end.signal:
            return  # that says why, whatever was cut off by it
        if not self._reader.stdout:
            raise CLAUDE.silent(self._process, self._reader, end)

    async def _close(self, end: ProcessEnd) -> ProcessEnd:
        await self.end_of_output()
        await self.leftovers()
        return await self.end_of_process(end)


def check_known(ended: Ended) -> None:
    """Raises `Forgotten` if a session could not be gone on with."""
    if FORGOTTEN in ended.errors:
        raise Forgotten


def _broken_off(ended: Ended, limits: Limits) -> Failure:
    words = ended.errors or ended.subtype
    bound = cost_bound(limits)
    if bound and ended.subtype == "error_max_budget_usd":
        _, setting = bound
        message = f"Budget of cost spent before a final answer ({words}). What it had is kept."
        return Failure(Code.BUDGET, f"{message} Resume it, or raise {setting}.", setting)
    return Failure(Code.ENGINE, f"Claude Code broke off: {words}. What came before is kept. {AGAIN}", ended.subtype)


AGAIN = "Run the task again, or resume the session."
