"""A control group per child, where Linux allows it: every process the child starts stays in it and ends with it.

A process added to a group after its start may have started others by then. So a shell enters the group and executes
the program. But a shell drops variables whose names it could not use itself, and reports a missing program in its
own way: a program that a shell might affect is started without one and added to the group afterwards.

Entering takes the kernel up to 25 ms. A program that takes longer to load than that, and starts nothing before, is
added while it loads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio

CGROUP_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""Mount points of version 2: alone, or beside version 1."""
REMOVE_INTERVALS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""Seconds in which the kernel releases processes that have ended."""
SHELL_PATH = "/bin/sh"
# If the group cannot be entered, the program runs all the same: it can still be found by its marker.
ENTER_CGROUP = '{ echo 0 >"$0/cgroup.procs"; } 2>/dev/null; '
EXEC_ARGUMENTS = 'exec "$@"'
SHELL_VARIABLES = ("PWD", "OLDPWD", "SHLVL")
"""Variables that shells add."""

_is_variable_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch


class ControlGroup:
    """One control group, without controllers: it holds processes together and limits nothing."""

    def __init__(self, folder: Path) -> None:
        """Create the group.

        Raises:
            OSError: no group can be created here.
        """
        folder.mkdir()
        self.folder = folder

    def add_process(self, pid: int) -> None:
        """Add a process, if it still exists; processes it starts from then on are in the group, too."""
        _write(self.folder / "cgroup.procs", str(pid))

    def list_pids(self) -> set[int]:
        """Return the live processes in the group and in the groups below it.

        Raises:
            OSError: no descriptor is left to read them with.
        """
        found: set[int] = set()
        for folder, _, _ in os.walk(self.folder, onerror=_raise_unless_removed):
            try:
                found.update(map(int, Path(folder, "cgroup.procs").read_bytes().split()))
            except OSError as error:
                _raise_unless_removed(error)
        return found

    def kill(self) -> None:
        """Send SIGKILL to all at one moment, so that no fork escapes. Does nothing on kernels before 5.14."""
        _write(self.folder / "cgroup.kill", "1")

    async def remove(self) -> None:
        """Remove the group and the groups below it; a group that still has a process stays."""
        for pause in REMOVE_INTERVALS:
            if self._try_remove():
                return
            await anyio.sleep(pause)

    def _try_remove(self) -> bool:
        for folder, _, _ in os.walk(self.folder, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not self.folder.exists()


def find_own_cgroup() -> Path | str:
    """Return the group of this process if groups can be created below it; else the reason why not."""
    mount = next((mount for mount in CGROUP_MOUNTS if (mount / "cgroup.procs").exists()), None)
    if mount is None:
        return "control groups of version 2 are not mounted"
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return "/proc/self/cgroup cannot be read"
    place = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if place is None:
        return "this process is in no control group of version 2"
    folder = mount / place
    # To move a process down, the kernel requires its present group to be writable, too.
    if not (os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)):
        return f"{folder} is not writable"
    return folder


def _raise_unless_removed(error: OSError) -> None:
    """Raise the error unless it means that the group was removed meanwhile."""
    if error.errno not in {errno.ENOENT, errno.ENODEV}:
        raise error


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def build_launch_command(argv: Sequence[str], cwd: str, environ: Mapping[str, str], cgroup: Path) -> list[str] | None:
    """Return the command that starts `argv` inside the group; None where a shell could change the program."""
    if not (
        os.access(SHELL_PATH, os.X_OK)
        and all(map(_is_variable_name, environ))
        and _is_executable_file(_find_program(argv[0], cwd, environ))
    ):
        return None
    unset = "".join(f"unset {name}; " for name in SHELL_VARIABLES if name not in environ)
    return [SHELL_PATH, "-c", ENTER_CGROUP + unset + EXEC_ARGUMENTS, str(cgroup), *argv]


def is_not_shell_script(program: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Return whether the program is a binary or a node script: a shell script would start others at once."""
    path = _find_program(program, cwd, environ)
    return path is not None and _read_head(path).startswith((b"\x7fELF", b"#!/usr/bin/env node"))


def _find_program(program: str, cwd: str, environ: Mapping[str, str]) -> Path | None:
    """Return the file of a program name; None if it is not found."""
    if "/" in program:
        return Path(cwd, program)
    # A name that starts with a dash is an option to some shells.
    found = None if program.startswith("-") else shutil.which(program, path=environ.get("PATH", ""))
    return Path(cwd, found) if found else None


def _is_executable_file(path: Path | None) -> bool:
    """Return whether the kernel can start this file: a binary, or a script whose interpreter exists."""
    if path is None or not (path.is_file() and os.access(path, os.X_OK)):
        return False
    head = _read_head(path)
    if head.startswith(b"#!"):
        words = head[2:].split(b"\n", 1)[0].split()
        return bool(words) and os.access(words[0], os.X_OK)
    return head.startswith(b"\x7fELF")


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError:
        return b""
