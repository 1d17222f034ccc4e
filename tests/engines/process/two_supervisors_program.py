"""Two engines in one program, each with a supervisor: print whether the child of one outlives the end of the other."""

import os
import sys

import anyio

from retinue.engines.process.child import open_child
from retinue.engines.process.command import ChildCommand
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor

SLEEPS = ChildCommand(argv=("sleep", "600"), cwd="/", environ={"PATH": os.environ["PATH"]})


def make_supervisor() -> ProcessSupervisor:
    return ProcessSupervisor(max_containment=ContainmentKind.SUBREAPER)


async def run_first(is_up: anyio.Event, may_end: anyio.Event, has_ended: anyio.Event) -> None:
    async with make_supervisor() as first, open_child(SLEEPS, first):
        is_up.set()
        await may_end.wait()
    has_ended.set()


async def main() -> None:
    is_up, may_end, has_ended = anyio.Event(), anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(run_first, is_up, may_end, has_ended)
        await is_up.wait()
        async with make_supervisor() as second, open_child(SLEEPS, second) as child:
            may_end.set()
            await has_ended.wait()
            end = None
            with anyio.move_on_after(0.2):
                end = await child.wait()
            sys.stdout.write(f"{end or 'alive'}\n")


anyio.run(main)
