"""Run the command of a hook in a process tree of its own, bounded in time and output."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import which

import anyio
from msgspec import Struct

from retinue.engines.base import EngineError
from retinue.engines.process.child import ChildExitedError, ChildProcess, open_child
from retinue.engines.process.command import ChildCommand, StdinMode
from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.engines.sandbox.launch import SandboxNeeds, open_sandbox
from retinue.model.hooks import Hook
from retinue.model.results import ProcessEnd
from retinue.model.sandbox import NO_SANDBOX, SandboxPolicy
from retinue.support.tasks import BackgroundTasks

OpenSupervisor = Callable[[], Awaitable[ProcessSupervisor]]
"""Returns the supervisor of the processes of hooks, which is opened on first use."""

MAX_OUTPUT_BYTES = 256 * 2**10
"""Bytes of stdout of a hook: an answer with the input of a call fits."""
HOOK_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for a hook that is ended."""


class HookPlace(Struct, frozen=True, kw_only=True):
    """Where the hooks of one run are executed."""

    cwd: str
    environ: Mapping[str, str]
    open_supervisor: OpenSupervisor
    sandbox: SandboxPolicy = NO_SANDBOX
    limits: Mapping[str, int] = {}
    shows_scripts: bool = True
    """Whether the sandbox shows the scripts that commands name: not to agents of a project, which only tighten it."""


class HookOutcome(Struct, frozen=True, kw_only=True):
    """What a hook did."""

    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    fault: str = ""
    """Why it has no exit code, or printed too much; empty if neither."""


async def run_hook(hook: Hook, given: bytes, place: HookPlace) -> HookOutcome:
    """Run a hook with the JSON on its stdin; it and all its processes have ended when this returns."""
    shell = which("sh", path=place.environ.get("PATH"))
    if shell is None:
        return HookOutcome(fault="there is no sh on the PATH of this run")
    command = ChildCommand(
        argv=(shell, "-c", hook.command),
        cwd=place.cwd,
        environ=place.environ,
        stdin=StdinMode.PIPE,
        limits=place.limits,
    )
    is_shown = place.sandbox.is_on and place.shows_scripts
    needs = SandboxNeeds(read=_list_scripts(hook, place)) if is_shown else None
    try:
        async with (
            open_sandbox(command, place.sandbox, needs) as sandboxed,
            open_child(sandboxed.command, await place.open_supervisor(), grace=HOOK_GRACE) as child,
        ):
            outcome = HookOutcome(fault=f"it did not end within {hook.timeout:g} seconds")
            with anyio.move_on_after(hook.timeout):
                outcome = await _communicate(child, given)
            child.answered = True
            return outcome
    except EngineError as error:
        return HookOutcome(fault=error.failure.message)


async def _communicate(child: ChildProcess, given: bytes) -> HookOutcome:
    output = bytearray()
    async with BackgroundTasks(partial(_send, child, given)):
        while chunk := await child.receive():
            output += chunk
            if len(output) > MAX_OUTPUT_BYTES:
                return HookOutcome(fault=f"it printed more than {MAX_OUTPUT_BYTES // 2**10} KiB")
        end: ProcessEnd = await child.wait()
    if end.signal:
        return HookOutcome(fault=f"it {end.describe()}")
    return HookOutcome(code=end.code or 0, stdout=bytes(output), stderr=child.stderr_tail)


async def _send(child: ChildProcess, given: bytes) -> None:
    with suppress(ChildExitedError):  # a hook need not read its input
        await child.send(given)
    child.close_stdin()


def _list_scripts(hook: Hook, place: HookPlace) -> tuple[str, ...]:
    """Return the files that the command names by absolute paths, which the sandbox of the run may not show."""
    try:
        words = shlex.split(hook.command)
    except ValueError:
        words = hook.command.split()
    home = place.environ.get("HOME", "")
    names = (word.replace("$HOME", home).replace("~/", f"{home}/", 1) for word in words)
    return tuple(name for name in names if name.startswith("/") and "\0" not in name and Path(name).is_file())
