"""A Retinue to be killed: starts a child with a daemon, prints who is there, and waits.

Prints the numbers of the child, the daemon and the guardian, and of a fork without an exec where one is asked for.
"""
# ruff: noqa: T201

import os
import signal
import sys
from functools import partial

import anyio
from tests.process.processes import read_lines, shell

from retinue.engines.child import child
from retinue.engines.processes.containment import Containment
from retinue.engines.processes.keeper import Keeper

SCRIPT = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 1000' & wait; sleep 1000"


async def main(kind: str, *extra: str) -> None:
    async with Keeper(at_most=Containment(kind)) as keeper, child(shell(SCRIPT), keeper, grace=0.1) as process:
        (daemon,) = await read_lines(process, 1)
        fork = fork_without_exec() if "fork" in extra else 0
        assert keeper._guardian
        print(process.pid, daemon.decode(), keeper._guardian.pid, fork, flush=True)
        await process.wait()


def fork_without_exec() -> int:
    """A process that holds every descriptor of ours, as the workers of some libraries do."""
    if pid := os.fork():
        return pid
    os.close(1)
    os.close(2)
    signal.pause()
    os._exit(0)


anyio.run(partial(main, *sys.argv[1:]))
