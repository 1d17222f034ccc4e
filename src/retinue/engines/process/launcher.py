"""Starting a program inside its control group, so that nothing it starts is ever outside.

A process put into a group after its start may have started others by then. So a shell enters the group and becomes
the program. But a shell drops variables whose names it could not use itself, and has its own way to report a program
that cannot be started: whatever it might change is started without it, and put into the group afterwards.

To enter takes the kernel as long as 25 ms. A program that takes longer to load than that, and starts nothing before,
need not wait for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

SHELL_PATH = "/bin/sh"
# If the group cannot be entered, the program runs all the same: the mark is still there to find it by.
ENTER_CGROUP = '{ echo 0 >"$0/cgroup.procs"; } 2>/dev/null; '
EXEC_ARGUMENTS = 'exec "$@"'
SHELL_VARIABLES = ("PWD", "OLDPWD", "SHLVL")
"""Variables that shells add by themselves."""

_is_variable_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch


def build_launch_command(argv: Sequence[str], cwd: str, environ: Mapping[str, str], cgroup: Path) -> list[str] | None:
    """The command that starts `argv` inside the group; None where a shell could change what it starts."""
    if not (
        os.access(SHELL_PATH, os.X_OK)
        and all(map(_is_variable_name, environ))
        and _is_executable_file(_find_program(argv[0], cwd, environ))
    ):
        return None
    unset = "".join(f"unset {name}; " for name in SHELL_VARIABLES if name not in environ)
    return [SHELL_PATH, "-c", ENTER_CGROUP + unset + EXEC_ARGUMENTS, str(cgroup), *argv]


def is_not_shell_script(program: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Whether the file is a binary, or a script for node: not one for a shell, which would start others at once."""
    path = _find_program(program, cwd, environ)
    return path is not None and _read_head(path).startswith((b"\x7fELF", b"#!/usr/bin/env node"))


def _find_program(program: str, cwd: str, environ: Mapping[str, str]) -> Path | None:
    """The file a program's name stands for."""
    if "/" in program:
        return Path(cwd, program)
    import shutil

    # A name that begins with a dash is an option to some shells.
    found = None if program.startswith("-") else shutil.which(program, path=environ.get("PATH", ""))
    return Path(cwd, found) if found else None


def _is_executable_file(path: Path | None) -> bool:
    """Whether the kernel starts this file without fail: a binary, or a script whose interpreter is there."""
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
