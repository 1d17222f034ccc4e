"""One run on one Claude Code process: the prompt, the messages until the end, and the exit of the process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

import anyio
import msgspec
from msgspec import Struct

from retinue.config.directories import claude_folder, engine_session_file
from retinue.engines.base import Completion, Emit, EngineError
from retinue.engines.claude.launch import find_cost_limit
from retinue.engines.claude.messages import (
    ClaudeEventReader,
    ClaudeMessage,
    MessageAccepted,
    MessageDelivered,
    ModelRequestStarted,
    ResultReceived,
)
from retinue.engines.claude.wire import ClaudeTransport
from retinue.engines.process.child import ChildProcess
from retinue.engines.process_reporter import ProcessReporter, ProgramInfo, wait_for_exit
from retinue.engines.steering import SteeringChannel
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import SteeringDelivered
from retinue.model.results import ProcessEnd
from retinue.model.runs import Limits, RunSpec
from retinue.support.safe_files import FileTooLargeError, read_regular_file

CLAUDE = ProgramInfo(name="Claude Code", records="messages", check_command="claude -p hello")

STDERR_POLL_INTERVAL = 1.0
"""Seconds of silence after which held-back events are emitted and stderr is counted."""
EXIT_GRACE = 1.0
"""Seconds a process has to exit once its run is over."""

SESSION_NOT_FOUND_TEXT = "No conversation found"
"""Claude Code's text for a session that it does not know."""


class SessionNotFoundError(Exception):
    """Raised if Claude Code does not know the session to resume; no model request was made."""


class ClaudeRun(ProcessReporter):
    """Reporter of one run on a Claude Code process of its own."""

    def __init__(self, process: ChildProcess, wire: ClaudeTransport, emit: Emit, steering: SteeringChannel) -> None:
        self._reader = ClaudeEventReader()
        self._steering = steering
        super().__init__(CLAUDE, process, self._reader, emit)
        self._wire = wire
        self._pending: list[ClaudeMessage] = []

    async def wait_started(self) -> ModelRequestStarted | ResultReceived | None:
        """Report events until Claude Code sends its first model request; return None if its output ended before."""
        return await self._wait_for((ModelRequestStarted, ResultReceived))

    async def wait_ended(self) -> ResultReceived | None:
        """Report events until the run is over; return None if the output ended without a result.

        A steering message that is too late for a turn starts another one.
        """
        while isinstance(ended := await self._wait_for((ResultReceived,)), ResultReceived):
            if ended.subtype != "success" or not self._steering.is_pending:
                return ended
            await self._emit(Completion.REPORTED)
        return None

    async def _wait_for(
        self, kinds: tuple[type[ModelRequestStarted | ResultReceived], ...]
    ) -> ModelRequestStarted | ResultReceived | None:
        while True:
            while self._pending:
                message = self._pending.pop(0)
                if isinstance(message, kinds):
                    return message
                match message:
                    case MessageAccepted(name=name):
                        self._steering.mark_accepted(name)
                    case MessageDelivered(name=name):
                        if text := self._steering.mark_delivered(name):
                            await self.emit(SteeringDelivered(text))
                    case ModelRequestStarted():
                        await self._emit(Completion.PENDING)
                    case ResultReceived():
                        pass
                    case event:
                        await self.emit(event)
            if not await self._receive():
                return None

    async def _receive(self) -> bool:
        """Read and report the next lines; return False at the end of the output."""
        lines = None
        with anyio.move_on_after(STDERR_POLL_INTERVAL):
            lines = await self._wire.receive()
        if lines is None:
            # An answer is kept even if its result never follows. While a tool runs, silence means nothing.
            self._pending += () if self._reader.has_open_calls else self._reader.release_held()
        else:
            self._pending += self._reader.read(lines) if lines else self._reader.finish()
        await self.count(sum(line.size for line in lines or ()))
        return lines is None or bool(lines or self._pending)

    # -- the end -------------------------------------------------------------------------------------

    async def finish(self, ended: ResultReceived, limits: Limits) -> None:
        """Report the end of the run and give its process time to exit.

        Raises:
            EngineError: Claude Code stopped the run.
        """
        self._process.answered = True
        await self._emit(Completion.REPORTED)
        self._process.close_stdin()
        await self._report_end(await wait_for_exit(self._process, EXIT_GRACE))
        if ended.subtype != "success":
            raise EngineError(_stopped_failure(ended, limits))

    async def finish_after_exit(self) -> None:
        """Report a run whose output ended without a result.

        Raises:
            EngineError: it printed nothing, or its output ended within a record or an answer.
        """
        end = await self._report_end(await wait_for_exit(self._process))
        if self._reader.is_truncated and not end.signal:
            raise CLAUDE.truncated_error(end)
        if self._reader.is_within_answer:
            raise CLAUDE.exit_during_answer_error(end)
        if end.signal:
            return  # the signal is the reason, whatever it cut off
        if not self._reader.stdout:
            raise CLAUDE.produced_nothing_error(self._process, self._reader, end)

    async def _report_end(self, end: ProcessEnd) -> ProcessEnd:
        await self.flush_counts()
        await self.report_leftovers()
        return await self.report_exit(end)


def raise_if_session_unknown(ended: ResultReceived) -> None:
    """Raise `SessionNotFoundError` if the session could not be resumed."""
    if SESSION_NOT_FOUND_TEXT in ended.errors:
        raise SessionNotFoundError


def _stopped_failure(ended: ResultReceived, limits: Limits) -> Failure:
    explanation = ended.errors or ended.subtype
    bound = find_cost_limit(limits)
    if bound and ended.subtype == "error_max_budget_usd":
        _, setting = bound
        message = f"Budget of cost spent before a final answer ({explanation}). The partial output was kept."
        return Failure(ErrorCode.BUDGET, f"{message} Resume it, or raise {setting}.", setting)
    return Failure(
        ErrorCode.ENGINE,
        f"Claude Code stopped unexpectedly: {explanation}. The output before that was kept. {RETRY_HINT}",
        ended.subtype,
    )


RETRY_HINT = "Run the task again, or resume the session."

MAX_POINTER_BYTES = 1024
FIRST_LINE_BYTES = 64 << 20

FORGOTTEN = "Claude Code no longer has a record of this session; the run continues from the stored messages."
DAMAGED = (
    "Claude Code's own record {} is damaged. The file was left unchanged, and the session continues from the stored "
    "messages."
)


class _SessionPointer(Struct):
    claude: UUID


def pointer_path(spec: RunSpec) -> Path:
    """Return the file that stores the id of Claude Code's session."""
    if spec.native_session:
        return Path(spec.native_session)
    return engine_session_file(Path(spec.native_folder), spec.agent.name, spec.session)


def find_resumable_session(spec: RunSpec) -> str | None:
    """Return the id of the session to resume, or None if there is none or Claude Code cannot continue it."""
    session = _noted_session(spec)
    record = _record_of(session, spec.environment) if session else None
    return session if record and not _is_damaged(record) else None


def why_not_resumable(spec: RunSpec) -> str:
    """Return the sentence for a session that Claude Code cannot continue."""
    session = _noted_session(spec)
    record = _record_of(session, spec.environment) if session else None
    if record and _is_damaged(record):
        return DAMAGED.format(record)
    return FORGOTTEN


def new_session_id() -> str:
    """Return a unique id for a new session; a run may start more than one."""
    return str(uuid4())


def write_pointer(pointer: Path, session: str) -> None:
    """Store the id of the session that was started."""
    pointer.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = pointer.with_name(f".{pointer.name}.{session}")
    beside.write_bytes(msgspec.json.encode({"claude": session}) + b"\n")
    beside.chmod(0o600)
    os.replace(beside, pointer)  # noqa: PTH105 - of a link it replaces the link


def _noted_session(spec: RunSpec) -> str | None:
    if not spec.native_session:
        return None
    try:
        return str(
            msgspec.json.decode(
                read_regular_file(spec.native_session, MAX_POINTER_BYTES), type=_SessionPointer
            ).claude
        )
    except (OSError, FileTooLargeError, ValueError):  # msgspec's errors are value errors
        return None


def _record_of(session: str, environ: Mapping[str, str]) -> Path | None:
    # Claude Code has one folder per working directory; their names are its own.
    return next((claude_folder(environ) / "projects").glob(f"*/{session}.jsonl"), None)


def _is_damaged(record: Path) -> bool:
    """Return whether the start of the record is lost: Claude Code would continue without it and not report it."""
    try:
        with record.open("rb") as file:
            first = file.readline(FIRST_LINE_BYTES)
        if first.strip():
            msgspec.json.decode(first, type=dict)
    except (OSError, ValueError):
        return True
    return False
