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

SHELL = "/bin/sh"
# If the group cannot be entered, the program runs all the same: the mark is still there to find it by.
ENTER = '{ echo 0 >"$0/cgroup.procs"; } 2>/dev/null; '
BECOME = 'exec "$@"'
ADDED = ("PWD", "OLDPWD", "SHLVL")
"""Variables that shells add by themselves."""

_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch


def launch(argv: Sequence[str], cwd: str, environ: Mapping[str, str], cgroup: Path) -> list[str] | None:
    """The command that starts `argv` inside the group; None where a shell could change what it starts."""
    if not (
        os.access(SHELL, os.X_OK) and all(map(_name, environ)) and _runs_as_it_is(_locate(argv[0], cwd, environ))
    ):
        return None
    unset = "".join(f"unset {name}; " for name in ADDED if name not in environ)
    return [SHELL, "-c", ENTER + unset + BECOME, str(cgroup), *argv]


def becomes_no_shell(program: str, cwd: str, environ: Mapping[str, str]) -> bool:
    """Whether the file is a binary, or a script for node: not one for a shell, which would start others at once."""
    path = _locate(program, cwd, environ)
    return path is not None and _head(path).startswith((b"\x7fELF", b"#!/usr/bin/env node"))


def _locate(program: str, cwd: str, environ: Mapping[str, str]) -> Path | None:
    """The file a program's name stands for."""
    if "/" in program:
        return Path(cwd, program)
    import shutil

    # A name that begins with a dash is an option to some shells.
    found = None if program.startswith("-") else shutil.which(program, path=environ.get("PATH", ""))
    return Path(cwd, found) if found else None


def _runs_as_it_is(path: Path | None) -> bool:
    """Whether the kernel starts this file without fail: a binary, or a script whose interpreter is there."""
    if path is None or not (path.is_file() and os.access(path, os.X_OK)):
        return False
    head = _head(path)
    if head.startswith(b"#!"):
        words = head[2:].split(b"\n", 1)[0].split()
        return bool(words) and os.access(words[0], os.X_OK)
    return head.startswith(b"\x7fELF")


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError:
        return b""
