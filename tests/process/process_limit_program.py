"""Becomes a user who may start no process, tries to start one, and prints why it failed."""

# ruff: noqa: T201

import os
import resource

import anyio

from retinue.engines.base import EngineError
from retinue.engines.child import Command, child
from retinue.engines.processes.containment import Containment
from retinue.engines.processes.keeper import Keeper

NOBODY = 65_534


async def main() -> None:
    async with Keeper(at_most=Containment.MARKER) as keeper:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        os.setresuid(NOBODY, NOBODY, NOBODY)
        try:
            async with child(Command(argv=("/bin/true",), cwd="/", environ={}), keeper):
                print("it started")
        except EngineError as error:
            print(error.failure.message)
            print(keeper.unguarded)


anyio.run(main)
