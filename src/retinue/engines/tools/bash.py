"""The `bash` tool: a command in a process tree of its own, which ends with the call."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, BinaryIO

import anyio
import anyio.to_thread
from msgspec import Meta, Struct

from retinue.engines.toolbox import ToolError
from retinue.engines.tools.base import append_notices
from retinue.model.sandbox import NO_SANDBOX, SandboxPolicy
from retinue.output.truncate import CONTINUATION_BYTES, MAX_TOOL_BYTES, MAX_TOOL_LINES, format_size
from retinue.output.untrusted_text import strip_control_characters

if TYPE_CHECKING:
    from retinue.engines.process.child import ChildProcess, OnUsage
    from retinue.engines.process.supervisor import ProcessSupervisor
    from retinue.model.results import ProcessEnd

DEFAULT_COMMAND_TIMEOUT = 120.0
MIN_COMMAND_TIMEOUT = 1.0
MAX_COMMAND_TIMEOUT = 600.0
COMMAND_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL for a command that is ended."""
MAX_OUTPUT_FILE_BYTES = 256 * 2**20
"""Bytes of one command's output that are kept in a file."""
MERGE_SCRIPT = 'exec "$0" -c "$1" 2>&1'
"""Runs a command with stdout and stderr as one stream, so that their lines stay in order."""


class CommandContext(Struct, frozen=True, kw_only=True):
    """The place where the commands of one run are executed."""

    cwd: str
    environ: Mapping[str, str]
    """The complete environment; it must contain no secret."""
    open_supervisor: Callable[[], Awaitable[ProcessSupervisor]]
    """Returns the supervisor of the engine's processes."""
    sandbox: SandboxPolicy = NO_SANDBOX
    limits: Mapping[str, int] = {}
    """Limits on what the processes of all commands of the run use together."""
    run: str = ""
    on_usage: OnUsage | None = None
    """Receives what each command used."""


async def bash(
    context: CommandContext,
    command: Annotated[str, Meta(description="Command to execute")],
    timeout: Annotated[
        float, Meta(description="Timeout in seconds, from 1 to 600 (default: 120)")
    ] = DEFAULT_COMMAND_TIMEOUT,
) -> str:
    """Execute a bash command in the working directory. Returns stdout and stderr.

    Output is cut to the last 2000 lines or 50KB, whichever comes first; the whole output is then in a file. Every
    call starts a new shell without stdin. Processes that it leaves in the background are ended with it.
    """
    from retinue.engines.base import EngineError
    from retinue.engines.process.child import open_child
    from retinue.engines.process.command import ChildCommand
    from retinue.engines.sandbox.launch import open_sandbox
    from retinue.model.errors import ErrorCode

    shell = which("bash", path=context.environ.get("PATH")) or which("sh", path=context.environ.get("PATH"))
    if shell is None:
        raise ToolError("Commands cannot be executed: neither bash nor sh is on the PATH of this run.")
    # The comparison is false for NaN, too.
    seconds = min(timeout, MAX_COMMAND_TIMEOUT) if timeout >= MIN_COMMAND_TIMEOUT else MIN_COMMAND_TIMEOUT
    child_command = ChildCommand(
        argv=(shell, "-c", MERGE_SCRIPT, shell, command),
        cwd=context.cwd,
        environ=context.environ,
        limits=context.limits,
        run=context.run,
    )
    end: ProcessEnd | None = None
    with contextlib.closing(CommandOutput(context.environ.get("TMPDIR"))) as output:
        try:
            async with (
                open_sandbox(child_command, context.sandbox) as sandboxed,
                open_child(
                    sandboxed.command,
                    await context.open_supervisor(),
                    grace=COMMAND_GRACE,
                    on_usage=context.on_usage,
                ) as child,
            ):
                with anyio.move_on_after(seconds):
                    end = await _receive_all(child, output)
                child.answered = end is not None
        except EngineError as error:
            if error.failure.code is not ErrorCode.SPAWN_FAILED:
                raise  # a limit of the run, or its watchdog
            raise ToolError(error.failure.message) from error
        notices = output.describe()
    if child.killed_descendants and end is not None:
        notices.append(f"{child.killed_descendants} background processes were ended with the command")
    if problem := _describe_problem(end, seconds):
        raise ToolError(append_notices(output.tail(), [*notices, problem]))
    return append_notices(output.tail() or "(no output)", notices)


async def _receive_all(child: ChildProcess, output: CommandOutput) -> ProcessEnd:
    while chunk := await child.receive():
        await output.add(chunk)
    return await child.wait()


def _describe_problem(end: ProcessEnd | None, seconds: float) -> str | None:
    """Return why a command failed; None if it succeeded."""
    if end is None:
        return f"Command timed out after {seconds:g} seconds; it was ended with all its processes"
    return f"Command {end.describe()}" if end.signal or end.code else None


class CommandOutput:
    """The output of a command: its end in memory, and the whole in a file once it is longer than a result."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder if folder and Path(folder).is_dir() else None
        self._tail = bytearray()
        self._size = 0
        self._lines = 0
        self._file: BinaryIO | None = None
        self._path = ""
        self._stored = 0
        self._storage_error = ""

    async def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._lines += chunk.count(b"\n")
        self._tail += chunk
        if self._is_cut and not self._storage_error and self._stored < MAX_OUTPUT_FILE_BYTES:
            # Before there is a file, the tail is the whole output.
            await anyio.to_thread.run_sync(self._store, chunk if self._file else bytes(self._tail))
        if len(self._tail) > 4 * MAX_TOOL_BYTES:
            del self._tail[:-MAX_TOOL_BYTES]

    @property
    def _is_cut(self) -> bool:
        return self._size > MAX_TOOL_BYTES or self._lines > MAX_TOOL_LINES

    def _store(self, data: bytes) -> None:
        try:
            if self._file is None:
                # Only this user can read the file.
                descriptor, self._path = tempfile.mkstemp(prefix="retinue-bash-", suffix=".log", dir=self._folder)
                self._file = os.fdopen(descriptor, "wb", buffering=0)
            self._stored += self._file.write(data[: MAX_OUTPUT_FILE_BYTES - self._stored]) or 0
        except OSError as error:
            self._storage_error = os.strerror(error.errno) if error.errno else str(error)

    def close(self) -> None:
        if self._file:
            self._file.close()

    def tail(self) -> str:
        """Return the last lines that fit into a result, without terminal escapes."""
        lines = bytes(self._tail[-MAX_TOOL_BYTES:]).removesuffix(b"\n").split(b"\n")[-MAX_TOOL_LINES:]
        is_partial = self._size > MAX_TOOL_BYTES and 1 < len(lines) < MAX_TOOL_LINES
        data = b"\n".join(lines[1:] if is_partial else lines)
        if self._size > MAX_TOOL_BYTES:
            data = data.lstrip(bytes(CONTINUATION_BYTES))
        return _take_last_bytes(strip_control_characters(data.decode("utf-8", "replace")))

    def describe(self) -> list[str]:
        """Return the notices about output that is not shown."""
        if not self._is_cut:
            return []
        shown = f"Showing the end of {self._lines} lines, {format_size(self._size)}"
        if self._storage_error:
            return [f"{shown}. The whole output could not be stored: {self._storage_error}"]
        extent = "Whole output" if self._stored == self._size else f"First {format_size(self._stored)}"
        return [f"{shown}. {extent}: {self._path}"]


def _take_last_bytes(text: str) -> str:
    """Return the end of a text that fits into a result: replaced bytes are longer than the original ones."""
    data = text.encode()
    return text if len(data) <= MAX_TOOL_BYTES else data[-MAX_TOOL_BYTES:].decode("utf-8", "ignore")
