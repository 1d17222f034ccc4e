"""One run on one Claude Code: the prompt, its messages until it is over, and how its process ended."""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from retinue.engines.base import Emit, EngineError, engine_error
from retinue.engines.child import Process
from retinue.engines.claude.messages import Reader
from retinue.engines.claude.said import Begun, Ended, Said
from retinue.engines.claude.wire import Heard, Wire
from retinue.events import Event, MessageEnded, Notice, OutputCounted, ProcessEnded, StopReason
from retinue.output.provider_errors import classify
from retinue.results import ProcessEnd
from retinue.types import Code, Failure

COUNTED = 64 * 1024
"""Bytes between two counts."""
LOOK = 1.0
"""Seconds of silence after which what is held back is told, and what was written to stderr is counted."""
GOODBYE = 1.0
"""Seconds a process has to end by itself once its run is over."""
LAST_WORDS = 2.0
"""Seconds from the end of a process's output to its own."""
QUOTED = 1000
"""Characters of what a process printed on its way out."""

FORGOTTEN = "No conversation found"
"""What Claude Code says of a session that it does not know."""

_UNCLEAR = {"other", "tool"}


class Forgotten(Exception):  # noqa: N818 - it names what happened
    """Claude Code does not know the session it was to go on with; nothing was asked of a model."""


class Telling:
    """Passes on what happens in one run, and counts."""

    def __init__(self, process: Process, wire: Wire, emit: Emit) -> None:
        self._process = process
        self._wire = wire
        self._emit = emit
        self._reader = Reader()
        self._raw = 0
        self._told = (0, 0, 0)
        self._stopped: StopReason | None = None
        self._waiting: list[Said] = []

    async def begin(self) -> None:
        # From the first count on, bytes are counted here and not guessed from texts.
        await self._emit(OutputCounted())

    async def until_begun(self) -> Begun | Ended | None:
        """Passes events on until Claude Code asks the model; None if its output ended before."""
        return await self._until((Begun, Ended))

    async def until_ended(self) -> Ended | None:
        """Passes events on until the run is over; None if the output ended without a word about that."""
        ended = await self._until((Ended,))
        return ended if isinstance(ended, Ended) else None

    async def _until(self, kinds: tuple[type[Begun | Ended], ...]) -> Begun | Ended | None:
        while True:
            while self._waiting:
                said = self._waiting.pop(0)
                if isinstance(said, kinds):
                    return said
                if not isinstance(said, Begun | Ended):
                    await self._pass_on(said)
            if not await self._receive():
                return None

    async def _receive(self) -> bool:
        """Whether there was anything more."""
        lines = None
        with anyio.move_on_after(LOOK):
            lines = await self._wire.receive()
        if lines is None:
            # Whoever wrote an answer and does not say that it is over has answered all the same.
            self._waiting += self._reader.release()
        else:
            self._waiting += self._reader.read(lines) if lines else self._reader.end()
        await self._count(lines or ())
        return lines is None or bool(lines or self._waiting)

    async def _pass_on(self, event: Event) -> None:
        if isinstance(event, MessageEnded):
            self._stopped = event.stop_reason
            self._process.answered = event.stop_reason == "stop"
        await self._emit(event)

    async def _count(self, lines: Iterable[Heard], *, to_the_end: bool = False) -> None:
        self._raw += sum(line.size for line in lines)
        now = (self._reader.stdout, self._process.stderr_bytes, self._reader.dropped)
        if self._raw >= COUNTED or now[1] - self._told[1] >= COUNTED or to_the_end:
            stdout, stderr, dropped = (new - old for new, old in zip(now, self._told, strict=True))
            counted = OutputCounted(stdout=stdout, stderr=stderr, raw=self._raw, dropped=dropped)
            self._raw, self._told = 0, now
            await self._emit(counted)

    # -- the end -------------------------------------------------------------------------------------

    async def over(self, ended: Ended) -> None:
        """The run is over; its process has a moment to go.

        Raises:
            EngineError: Claude Code broke it off.
        """
        self._process.answered = True
        self._process.close_stdin()
        end = None
        with anyio.move_on_after(GOODBYE):
            end = await self._process.wait()
        await self._close(end)
        if ended.subtype != "success":
            raise EngineError(_broken_off(ended))

    async def gone(self) -> None:
        """The output has ended without a word about the run.

        Raises:
            EngineError: it said nothing, or broke off within a record.
        """
        end = ProcessEnd()
        with anyio.move_on_after(LAST_WORDS):
            end = await self._process.wait()
        await self._close(end)
        if end.signal:
            return  # that says why, whatever was cut off by it
        if self._reader.is_cut:
            raise engine_error(
                "Claude Code broke off in the middle of a record. What came before is kept. Run the task again.",
                reason="truncated_stream",
            )
        if not self._reader.stdout:
            raise self._silent(end)

    async def _close(self, end: ProcessEnd | None) -> None:
        await self._count((), to_the_end=True)
        if self._reader.noise:
            message = (
                f"{self._reader.noise} lines that are no messages; the first of them: {self._reader.first_noise}"
            )
            await self._emit(Notice("noise", f"Claude Code printed {message}"))
        if left := await self._process.others():
            message = f"The agent left {left} process{'es' * (left > 1)} running in the background: ended."
            await self._emit(Notice("leftovers", message))
        if end:
            await self._emit(ProcessEnded(end))
            if self._stopped == "stop" and (end.code or end.signal):
                message = f"Claude Code ended {_how(end)} after its answer."
                await self._emit(Notice("nonzero_exit_after_final", message))

    def _silent(self, end: ProcessEnd) -> EngineError:
        """A process that ended before it said anything of use."""
        said = self._process.stderr_tail.decode(errors="replace").strip() or self._reader.first_noise
        said = said[-QUOTED:] or f"it said nothing and ended {_how(end)}"
        reason = classify(said)
        code = Code.SPAWN_FAILED if reason in _UNCLEAR else Code.PROVIDER
        message = f"Claude Code could not begin: {said}\n{TRY}"
        return EngineError(Failure(code, message, None if reason in _UNCLEAR else reason))


def check_known(ended: Ended) -> None:
    """Raises `Forgotten` if a session could not be gone on with."""
    if FORGOTTEN in ended.errors:
        raise Forgotten


def _broken_off(ended: Ended) -> Failure:
    words = ended.errors or ended.subtype
    if ended.subtype == "error_max_budget_usd":
        message = f"Budget of cost spent before a final answer ({words}). What it had is kept. {RAISE}"
        return Failure(Code.BUDGET, message, "max_cost")
    return Failure(Code.ENGINE, f"Claude Code broke off: {words}. What came before is kept. {AGAIN}", ended.subtype)


def _how(end: ProcessEnd) -> str:
    return f"by signal {end.signal}" if end.signal else f"with exit code {end.code}"


RAISE = "Resume it, or raise max_cost."
AGAIN = "Run the task again, or resume the session."
TRY = "Nothing was asked of a model. Try the same with `claude -p hello`, and see `retinue doctor`."
