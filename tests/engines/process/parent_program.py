"""A Retinue to be killed: start a child with a daemon, print the pids, and wait.

Prints the numbers of the child, the daemon and the watchdog, and of a fork without an exec where one is asked for.
"""
# ruff: noqa: T201

import os
import signal
import sys
from functools import partial

import anyio
from tests.support.processes import read_lines, shell

from retinue.engines.process.child import open_child
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor

SCRIPT = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 1000' & wait; sleep 1000"


async def main(kind: str, *extra: str) -> None:
    async with (
        ProcessSupervisor(max_containment=ContainmentKind(kind)) as supervisor,
        open_child(shell(SCRIPT), supervisor, grace=0.1) as process,
    ):
        (daemon,) = await read_lines(process, 1)
        fork = fork_without_exec() if "fork" in extra else 0
        print(process.pid, daemon.decode(), supervisor.watchdog_pid, fork, flush=True)
        await process.wait()


def fork_without_exec() -> int:
    """Fork a process that inherits every descriptor, as the workers of some libraries do."""
    if pid := os.fork():
        return pid
    os.close(1)
    os.close(2)
    signal.pause()
    os._exit(0)


anyio.run(partial(main, *sys.argv[1:]))
