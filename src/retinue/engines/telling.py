"""What a run on a program of its own tells: its events, the bytes it printed, and how its process ended."""

from __future__ import annotations

import anyio
from msgspec import Struct, structs

from retinue.engines.base import Emit, EngineError, engine_error
from retinue.engines.child import Process
from retinue.engines.record_counts import RecordCounts
from retinue.events import Event, MessageEnded, Notice, OutputCounted, ProcessEnded, StopReason
from retinue.output.frame import plain
from retinue.output.provider_errors import classify
from retinue.results import ProcessEnd
from retinue.types import Code, Failure

COUNTED = 64 * 1024
"""Bytes between two counts."""
LAST_WORDS = 2.0
"""Seconds from the end of a process's output to its own."""
STDERR_CHARS = 4000
"""Of the end of a process's stderr: a stack trace and the error before it."""

UNKNOWN = ProcessEnd()

_UNCLEAR = {"other", "tool", "bad_request"}


class Program(Struct, frozen=True):
    """How a program is spoken of."""

    name: str
    records: str
    """What its lines are."""
    trial: str
    """A command that shows whether it works at all."""

    def failed_to_start(self, said: str) -> EngineError:
        """The program's own words, by what they mean: another model may help against some of them."""
        reason = classify(said)
        is_unclear = reason in _UNCLEAR
        code = Code.SPAWN_FAILED if is_unclear else Code.PROVIDER
        advice = f"Nothing was asked of a model. Try the same with `{self.trial}`, and see `retinue doctor`."
        message = f"{self.name} could not begin: {said}\n{advice}"
        return EngineError(Failure(code, message, None if is_unclear else reason))

    def silent(self, process: Process, counts: RecordCounts, end: ProcessEnd) -> EngineError:
        """A process that ended before it said anything of use."""
        said = _stderr_end(process) or counts.first_noise
        return self.failed_to_start(said or f"it said nothing and {end.describe()}")

    def broke_off(self, end: ProcessEnd) -> EngineError:
        how = f": it {end.describe()}" if end.code else ""
        message = (
            f"{self.name} broke off in the middle of a record{how}. What came before is kept. Run the task again."
        )
        return engine_error(f"{message}{end.quote_stderr()}", reason="truncated_stream")

    def ended_within_answer(self, end: ProcessEnd) -> EngineError:
        """A process that ended while its answer was being written: not the provider's fault."""
        code, reason = (Code.SIGNALLED, "child_signal") if end.signal else (Code.ENGINE, "no_final_message")
        message = f"{self.name} {end.describe()} in the middle of its answer. What it wrote is kept."
        advice = "Run the task again, or resume the session."
        return engine_error(f"{message} {advice}{end.quote_stderr()}", code=code, reason=reason)


class ProcessTelling:
    """Passes on what happens in one run, and counts."""

    def __init__(
        self, program: Program, process: Process, counts: RecordCounts, emit: Emit, *, stderr_before: int = 0
    ) -> None:
        self._program = program
        self._process = process
        self._counts = counts
        self._emit = emit
        self._raw = 0
        self._told = (0, stderr_before, 0)
        self._stderr_before = stderr_before
        self._stopped: StopReason | None = None
        """Why its last message ended."""

    async def begin(self) -> None:
        # From the first count on, bytes are counted here and not guessed from texts.
        await self._emit(OutputCounted())

    async def pass_on(self, event: Event) -> None:
        if isinstance(event, MessageEnded):
            self._stopped = event.stop_reason
            self._process.answered = event.stop_reason == "stop"
        await self._emit(event)

    async def count(self, raw: int, *, to_the_end: bool = False) -> None:
        self._raw += raw
        now = (self._counts.stdout, self._process.stderr_bytes, self._counts.dropped)
        if self._raw >= COUNTED or now[1] - self._told[1] >= COUNTED or to_the_end:
            stdout, stderr, dropped = (new - old for new, old in zip(now, self._told, strict=True))
            counted = OutputCounted(stdout=stdout, stderr=stderr, raw=self._raw, dropped=dropped)
            self._raw, self._told = 0, now
            await self._emit(counted)

    async def end_of_output(self) -> None:
        """Tells what is left to be counted, and of lines that said nothing."""
        await self.count(0, to_the_end=True)
        if noise := self._counts.noise:
            lines = f"{noise} lines that are no {self._program.records}"
            message = f"{self._program.name} printed {lines}; the first of them: {self._counts.first_noise}"
            await self._emit(Notice("noise", message))

    async def leftovers(self, companions: int = 0) -> int:
        """How many processes the run has left behind, beside those it began with; they end with the program's own."""
        left = max(await self._process.others() - companions, 0)
        if left:
            message = f"The agent left {left} process{'es' * (left > 1)} running in the background: ended."
            await self._emit(Notice("leftovers", message))
        return left

    async def end_of_process(self, end: ProcessEnd) -> ProcessEnd:
        """Tells how the process ended, as far as that is known; returns it with the end of its stderr."""
        if end == UNKNOWN:
            return end
        if end.code or end.signal or not self._process.answered:
            end = structs.replace(end, stderr=_stderr_end(self._process, self._stderr_before))
        await self._emit(ProcessEnded(end))
        if self._stopped == "stop" and (end.code or end.signal):
            message = f"{self._program.name} {end.describe()} after its answer."
            await self._emit(Notice("nonzero_exit_after_final", message))
        return end


async def end_of(process: Process, patience: float = LAST_WORDS) -> ProcessEnd:
    """How it ended; nothing is known of one that closed its output and goes on."""
    with anyio.move_on_after(patience):
        return await process.wait()
    return UNKNOWN


def _stderr_end(process: Process, since: int = 0) -> str:
    """Return the end of its stderr after so many bytes, in whole lines and without control characters."""
    tail = process.stderr_tail
    written = process.stderr_bytes - since
    text = plain(tail[-written:].decode(errors="replace")).strip() if written > 0 else ""
    if len(text) <= STDERR_CHARS:
        return text
    cut = text[-STDERR_CHARS:]
    return cut.partition("\n")[2] or cut
