"""`retinue` commands in processes of their own, forked from one that has imported what they need.

Importing the MCP SDK takes longer than most commands of a test.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio.to_thread

PRELOADED = ["retinue.cli.main", "retinue.cli.commands.call", "retinue.cli.commands.run", "claude_agent_sdk"]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(PRELOADED)


async def run_forked(arguments: Sequence[str], *, environ: Mapping[str, str], cwd: Path, output: Path) -> int:
    """Run `retinue` with these arguments and this whole environment; return its exit code.

    Its stdin is empty, and what it prints on stdout is written to a file.
    """
    process = _forks.Process(target=_run_command, args=(arguments, dict(environ), cwd, output))
    process.start()
    await anyio.to_thread.run_sync(process.join, abandon_on_cancel=True)
    assert process.exitcode is not None
    return process.exitcode


def _run_command(arguments: Sequence[str], environ: Mapping[str, str], cwd: Path, output: Path) -> None:
    from retinue.cli.main import main

    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    with output.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
    main(arguments)
