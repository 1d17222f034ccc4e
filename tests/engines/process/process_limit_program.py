"""Become a user who may start no process, try to start one, and print the failure."""

# ruff: noqa: T201

import os
import resource

import anyio

from retinue.engines.base import EngineError
from retinue.engines.process.child import ChildCommand, open_child
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor

NOBODY = 65_534


async def main() -> None:
    async with ProcessSupervisor(max_containment=ContainmentKind.MARKER) as supervisor:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setresuid(NOBODY, NOBODY, NOBODY)
        try:
            async with open_child(ChildCommand(argv=("/bin/true",), cwd="/", environ={}), supervisor):
                print("it started")
        except EngineError as error:
            print(error.failure.message)
            print(supervisor.no_watchdog_reason)


anyio.run(main)
