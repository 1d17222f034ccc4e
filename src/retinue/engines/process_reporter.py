"""Report the run of a child process: its events, the bytes it wrote, and how it exited."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct, structs

from retinue.engines.base import Emit, EngineError, engine_error
from retinue.engines.json_lines import RecordCounts
from retinue.engines.process.child import ChildProcess, OnUsage
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    Event,
    MessageEnded,
    Notice,
    OutputBytesCounted,
    ProcessEnded,
    ProcessUsageCounted,
    StopReason,
)
from retinue.model.results import ProcessEnd, ProcessUsage
from retinue.output.provider_errors import classify_error
from retinue.output.untrusted_text import strip_control_characters

COUNT_INTERVAL_BYTES = 64 * 1024
"""Bytes between two `OutputBytesCounted` events."""
EXIT_TIMEOUT = 2.0
"""Seconds from the end of a process's output to its exit."""
STDERR_CHARS = 4000
"""Characters kept of the end of a process's stderr: a stack trace and the error before it."""

KILL_SIGNAL = 9
KERNEL_COUNTERS = Path("/proc/vmstat")
UNKNOWN_END = ProcessEnd()

_UNCLEAR_REASONS = {"other", "tool", "bad_request"}


class ProgramInfo(Struct, frozen=True):
    """The words about a program in messages."""

    name: str
    records: str
    """The plural noun for its lines."""
    check_command: str
    """A command that checks whether the program works at all."""
    explain: Callable[[str], str | None] = lambda _: None
    """Returns the cause and the way out if the output of a program that could not start names a known one."""

    def start_error(self, output: str) -> EngineError:
        """Return the failure of a program that exited before its first model call, classified by its output.

        Another model may help against some of these failures.
        """
        if explained := self.explain(output):
            return engine_error(f"{self.name} could not start: {explained}", code=ErrorCode.SPAWN_FAILED)
        reason = classify_error(output)
        is_unclear = reason in _UNCLEAR_REASONS
        code = ErrorCode.SPAWN_FAILED if is_unclear else ErrorCode.PROVIDER
        advice = f"No model was called. Test it with `{self.check_command}` and with `retinue doctor`."
        message = f"{self.name} could not start: {output}\n{advice}"
        return EngineError(Failure(code, message, None if is_unclear else reason))

    def produced_nothing_error(self, process: ChildProcess, counts: RecordCounts, end: ProcessEnd) -> EngineError:
        """Return the failure of a process that exited before its first record."""
        output = _stderr_end(process) or counts.first_noise
        return self.start_error(output or f"it printed nothing and {end.describe()}")

    def truncated_error(self, end: ProcessEnd) -> EngineError:
        how = f": it {end.describe()}" if end.code else ""
        message = (
            f"{self.name} stopped in the middle of a record{how}. The output before that was kept. Run the task "
            f"again."
        )
        return engine_error(f"{message}{end.quote_stderr()}", reason="truncated_stream")

    def exit_during_answer_error(self, end: ProcessEnd) -> EngineError:
        """Return the failure of a process that exited in the middle of its answer: not the provider's fault."""
        code, reason = (
            (ErrorCode.SIGNALLED, end.signal_reason) if end.signal else (ErrorCode.ENGINE, "no_final_message")
        )
        message = f"{self.name} {end.describe()} in the middle of its answer. The partial answer was kept."
        advice = "Run the task again, or resume the session."
        return engine_error(f"{message} {advice}{end.quote_stderr()}", code=code, reason=reason)


class ProcessReporter:
    """Emits the events of one run and counts its bytes."""

    def __init__(
        self, program: ProgramInfo, process: ChildProcess, counts: RecordCounts, emit: Emit, *, stderr_before: int = 0
    ) -> None:
        self._program = program
        self._process = process
        self._counts = counts
        self._emit = emit
        self._raw = 0
        self._reported = (0, stderr_before, 0)
        self._stderr_before = stderr_before
        self._oom_kills = count_oom_kills()
        self._stop_reason: StopReason | None = None
        """The stop reason of its last message."""

    async def start(self) -> None:
        # From the first count on, bytes are counted here and not estimated from texts.
        await self._emit(OutputBytesCounted())

    async def emit(self, event: Event) -> None:
        if isinstance(event, MessageEnded):
            self._stop_reason = event.stop_reason
            self._process.answered = event.stop_reason == "stop"
        await self._emit(event)

    async def count(self, raw: int, *, flush: bool = False) -> None:
        self._raw += raw
        now = (self._counts.stdout, self._process.stderr_bytes, self._counts.dropped)
        if self._raw >= COUNT_INTERVAL_BYTES or now[1] - self._reported[1] >= COUNT_INTERVAL_BYTES or flush:
            stdout, stderr, dropped = (new - old for new, old in zip(now, self._reported, strict=True))
            counted = OutputBytesCounted(stdout=stdout, stderr=stderr, raw=self._raw, dropped=dropped)
            self._raw, self._reported = 0, now
            await self._emit(counted)

    async def flush_counts(self) -> None:
        """Emit the remaining counts, and a notice about lines that are not records."""
        await self.count(0, flush=True)
        if noise := self._counts.noise:
            lines = f"{noise} lines that are not {self._program.records}"
            message = f"{self._program.name} printed {lines}; the first one: {self._counts.first_noise}"
            await self._emit(Notice("noise", message))

    async def report_leftovers(self, companions: int = 0) -> int:
        """Emit a notice about descendants that are still running, except `companions`; return their number.

        They are terminated with the process itself.
        """
        left = max(await self._process.count_descendants() - companions, 0)
        if left:
            message = (
                f"The agent left {left} process{'es' * (left > 1)} running in the background, which Retinue ended."
            )
            await self._emit(Notice("leftovers", message))
        return left

    async def report_exit(self, end: ProcessEnd) -> ProcessEnd:
        """Emit how the process exited, if that is known; return it with the end of its stderr."""
        if end == UNKNOWN_END:
            return end
        if end.code or end.signal or not self._process.answered:
            was_oom = end.signal == KILL_SIGNAL and count_oom_kills() > self._oom_kills
            stderr = _stderr_end(self._process, self._stderr_before)
            end = structs.replace(end, stderr=stderr, out_of_memory=was_oom)
        await self._emit(ProcessEnded(end))
        if self._stop_reason == "stop" and (end.code or end.signal):
            message = f"{self._program.name} {end.describe()} after its answer."
            await self._emit(Notice("nonzero_exit_after_final", message))
        return end


def count_oom_kills() -> int:
    """Return how many processes this machine's kernel has killed for lack of memory; 0 where that is not known.

    The limit of a container or a control group counts, too. Which process it was is not stated: another one may have
    been killed in the same moment.
    """
    try:
        text = KERNEL_COUNTERS.read_text()
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def usage_reporter(emit: Emit) -> OnUsage:
    """Return what passes on the usage of a process that has ended, for `open_child`."""

    async def report(usage: ProcessUsage) -> None:
        await emit(ProcessUsageCounted(usage))

    return report


async def wait_for_exit(process: ChildProcess, timeout: float = EXIT_TIMEOUT) -> ProcessEnd:
    """Wait for the exit; return `UNKNOWN_END` for a process that closed its output and continues."""
    with anyio.move_on_after(timeout):
        return await process.wait()
    return UNKNOWN_END


def _stderr_end(process: ChildProcess, since: int = 0) -> str:
    """Return the end of its stderr after the first `since` bytes, in whole lines and without control characters."""
    tail = process.stderr_tail
    written = process.stderr_bytes - since
    text = strip_control_characters(tail[-written:].decode(errors="replace")).strip() if written > 0 else ""
    if len(text) <= STDERR_CHARS:
        return text
    cut = text[-STDERR_CHARS:]
    return cut.partition("\n")[2] or cut
