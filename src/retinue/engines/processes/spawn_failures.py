"""Why a program could not be started, in words that say what to do about it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping

from retinue.engines.base import EngineError, engine_error
from retinue.types import Code

REASON = "spawn_failed"
CWD_REASON = "cwd_missing"

_ADVICE = {
    errno.EACCES: "Make it an executable file that this user may run.",
    errno.EPERM: "Make it an executable file that this user may run.",
    errno.ENOEXEC: "It is no program for this machine, or lacks a first line that says what runs it.",
    errno.E2BIG: "Its arguments and environment are too large: give it a shorter task, or large texts as files.",
    errno.EAGAIN: "Too many processes are running: let some end, or run fewer agents at once.",
    errno.ENOMEM: "There is not enough memory: let some processes end, or run fewer agents at once.",
    errno.EMFILE: "Too many files are open in this process: run fewer agents at once, or raise `ulimit -n`.",
    errno.ENFILE: "Too many files are open on this machine: let some processes end.",
}
_INSTALL = "Install it, or name it by its full path."
_INTERPRETER = "The file is there, but what its first line names to run it is not: install that."
_NUL = "Remove the NUL character from its arguments or environment."


def spawn_failed(program: str, cwd: str, environ: Mapping[str, str], error: OSError | ValueError) -> EngineError:
    """The failure of a run whose child did not start."""
    if isinstance(error, ValueError):
        return _failed(f"Could not start {program}: {error}.", _NUL)
    why = f"{os.strerror(error.errno) if error.errno else error} ({errno.errorcode.get(error.errno or 0, 'error')})"
    # Both a missing program and a missing folder are ENOENT; only the name tells them apart.
    if error.filename == cwd != program:
        return _failed(f"Could not start {program} in {cwd}: {why}.", "Choose a folder that exists.", CWD_REASON)
    if error.errno == errno.ENOENT:
        is_there = shutil.which(program, path=environ.get("PATH", os.defpath))
        return _failed(f"Could not start {program}: {why}.", _INTERPRETER if is_there else _INSTALL)
    return _failed(f"Could not start {program}: {why}.", _ADVICE.get(error.errno or 0, "Try it in a terminal."))


def _failed(what: str, advice: str, reason: str = REASON) -> EngineError:
    return engine_error(f"{what} Nothing was run. {advice}", code=Code.SPAWN_FAILED, reason=reason)
