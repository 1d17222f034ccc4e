"""What a run on pi tells: its events, the bytes it printed, and how its process ended."""

from __future__ import annotations

import anyio

from retinue.engines.base import Emit, EngineError, engine_error
from retinue.engines.child import Process
from retinue.engines.pi.wire import Reader
from retinue.events import Event, MessageEnded, Notice, OutputCounted, ProcessEnded, StopReason
from retinue.output.provider_errors import classify
from retinue.results import ProcessEnd
from retinue.types import Code, Failure

COUNTED = 64 * 1024
"""Bytes between two counts."""
LOOK = 0.5
"""Seconds between two looks at stderr while stdout is silent."""
LAST_WORDS = 2.0
"""Seconds from the end of a process's output to its own."""
QUOTED = 1000
"""Characters of what a process printed on its way out."""

UNKNOWN = ProcessEnd()

_UNCLEAR = {"other", "tool"}


class Telling:
    """Passes on what happens in one run, and counts."""

    def __init__(self, child: Process, reader: Reader, emit: Emit) -> None:
        self._child = child
        self.reader = reader
        self._emit = emit
        self._raw = 0
        self._told = (reader.stdout, child.stderr_bytes, reader.dropped)
        self._noise = reader.noise
        self._ended: StopReason | None = None
        self.late = 0
        """Events after the run had settled: they are no part of it."""

    @property
    def went_well(self) -> bool:
        """Whether no provider failed, nobody broke off, and pi was silent after the end."""
        return self._ended in {"stop", "tool_use", "length"} and not self.late

    async def begin(self) -> None:
        # From the first count on, bytes are counted here and not guessed from texts.
        await self._emit(OutputCounted())

    async def pass_on(self, event: Event) -> None:
        if isinstance(event, MessageEnded):
            self._ended = event.stop_reason
            self._child.answered = event.stop_reason == "stop"
        await self._emit(event)

    async def receive(self) -> bytes:
        """The next chunk of stdout. What is written to stderr meanwhile is counted, be stdout ever so silent."""
        while True:
            with anyio.move_on_after(LOOK):
                return await self._child.receive()
            await self.count(0)

    async def count(self, raw: int, *, to_the_end: bool = False) -> None:
        self._raw += raw
        now = (self.reader.stdout, self._child.stderr_bytes, self.reader.dropped)
        if self._raw >= COUNTED or now[1] - self._told[1] >= COUNTED or to_the_end:
            stdout, stderr, dropped = (new - old for new, old in zip(now, self._told, strict=True))
            counted = OutputCounted(stdout=stdout, stderr=stderr, raw=self._raw, dropped=dropped)
            self._raw, self._told = 0, now
            await self._emit(counted)

    async def end(self) -> None:
        """The run is over, and its process may go on."""
        await self.count(0, to_the_end=True)
        if noise := self.reader.noise - self._noise:
            message = f"pi printed {noise} lines that are no events; the first of them: {self.reader.first_noise}"
            await self._emit(Notice("noise", message))
        if self.late:
            message = f"pi told of {self.late} more events after it had settled; they are left out."
            await self._emit(Notice("late_events", message))

    async def leftovers(self, companions: int = 0) -> int:
        """How many processes the run has left behind, beside those pi always has; they end with pi's own."""
        left = max(await self._child.others() - companions, 0)
        if left:
            message = f"The agent left {left} process{'es' * (left > 1)} running in the background: ended."
            await self._emit(Notice("leftovers", message))
        return left

    async def child_gone(self) -> None:
        """The run is over because its process is; what that leaves behind is ended.

        Raises:
            EngineError: it said nothing, or broke off within a record.
        """
        await self.end()
        await self.leftovers()
        end = await _end_of(self._child)
        if end != UNKNOWN:
            await self._emit(ProcessEnded(end))
        if self._ended == "stop" and (end.code or end.signal):
            await self._emit(Notice("nonzero_exit_after_final", f"pi {_how(end)} after its answer."))
        if end.signal:
            return  # that says why, whatever was cut off by it
        if self.reader.is_cut:
            raise engine_error(
                "pi broke off in the middle of a record. What came before is kept. Run the task again.",
                reason="truncated_stream",
            )
        if not self.reader.stdout and end.code:
            raise await gone(self._child, self.reader)


async def gone(child: Process, reader: Reader) -> EngineError:
    """A process that ended before it said anything of use."""
    end = await _end_of(child)
    said = child.stderr_tail.decode(errors="replace").strip() or reader.first_noise
    return failed_to_start(said[-QUOTED:] or f"it said nothing and {_how(end)}")


async def _end_of(child: Process) -> ProcessEnd:
    """How it ended; nothing is known of one that closed its output and goes on."""
    with anyio.move_on_after(LAST_WORDS):
        return await child.wait()
    return UNKNOWN


def _how(end: ProcessEnd) -> str:
    if end == UNKNOWN:
        return "closed its output"
    return f"was ended by signal {end.signal}" if end.signal else f"ended with exit code {end.code}"


def failed_to_start(said: str) -> EngineError:
    """Pi's own words, by what they mean: another model may help against some of them."""
    reason = classify(said)
    code = Code.SPAWN_FAILED if reason in _UNCLEAR else Code.PROVIDER
    return EngineError(Failure(code, f"pi could not begin: {said}\n{TRY}", None if reason in _UNCLEAR else reason))


TRY = "Nothing was asked of a model. Try the same with `pi -p hello`, and see `retinue doctor`."
