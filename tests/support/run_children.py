"""Start programs as processes of a run: as children of a supervisor, or below a program that adopts orphans."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from retinue.engines.process.child import open_child
from retinue.engines.process.command import ChildCommand
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor
from retinue.support.processes import WATCHDOG_MODULE, WATCHDOG_OPTIONS

CLIENT = Path(__file__).with_name("run_client.py")
WAYS = ("open", "cleared", "undumpable", "daemon")
"""Ways in which a process of a run may hide."""

ADOPTING_PROGRAM = f"""# {WATCHDOG_MODULE}
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
subprocess.Popen(sys.argv[1:])
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


@asynccontextmanager
async def open_run_client(
    way: str, *arguments: str, containment: ContainmentKind = ContainmentKind.SUBREAPER
) -> AsyncIterator[Any]:
    """Run the client as a child of a supervisor and yield what it reports."""
    async with ProcessSupervisor(max_containment=containment) as supervisor:
        command = ChildCommand(
            argv=("sh", "-c", '"$@"; exec sleep 1000', "sh", sys.executable, str(CLIENT), way, *arguments),
            cwd="/",
            environ={"PATH": "/usr/bin:/bin"},
        )
        async with open_child(command, supervisor, grace=0.0) as child:
            line = b""
            while not line.endswith(b"\n"):
                chunk = await child.receive()
                assert chunk, child.stderr_tail
                line += chunk
            yield json.loads(line)


@contextmanager
def open_adopted_client(way: str, *arguments: str) -> Iterator[Any]:
    """Run the client below a program that is started as a watchdog and adopts orphans; yield what it reports."""
    client = [sys.executable, str(CLIENT), way, *arguments]
    watchdog = subprocess.Popen(
        [sys.executable, *WATCHDOG_OPTIONS, ADOPTING_PROGRAM, *client], stdout=subprocess.PIPE, start_new_session=True
    )
    assert watchdog.stdout
    try:
        yield json.loads(watchdog.stdout.readline())
    finally:
        watchdog.kill()
        watchdog.wait()
        watchdog.stdout.close()
