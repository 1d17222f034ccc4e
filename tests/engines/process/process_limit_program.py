"""Become a user who may start no process, try to start one, and print the failure."""

# ruff: noqa: T201

import os
import resource

import anyio

from retinue.engines.base import EngineError
from retinue.engines.process.child import open_child
from retinue.engines.process.command import ChildCommand
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor

NOBODY = 65_534


async def main() -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    os.setresuid(NOBODY, NOBODY, NOBODY)
    async with ProcessSupervisor(max_containment=ContainmentKind.SUBREAPER) as supervisor:
        try:
            async with open_child(ChildCommand(argv=("/bin/true",), cwd="/", environ={}), supervisor):
                print("it started")
        except EngineError as error:
            print(error.failure.message)


anyio.run(main)
