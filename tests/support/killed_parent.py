"""A Retinue that starts children and daemons without end, until it is killed: `python -m tests.support.killed_parent`.

Arguments: the containment, a seed, and a duration for `sleep` by which its processes are recognized.
"""
# ruff: noqa: T201

import random
import sys
from functools import partial

import anyio
from tests.support.processes import shell

from retinue.engines.process.child import open_child
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor

SCRIPTS = (
    "sleep {0}",
    "sleep {0} & exit 0",
    "trap '' TERM; setsid sleep {0} & sleep {0}",
    "(setsid sh -c 'sleep {0} & exit 0') & sleep 0.05",
    "env -i setsid sleep {0} & sleep {0}",
    "env -i setsid sh -c 'setsid sleep {0} & exit 0' & sleep 0.02; exit 3",
    "env -i sh -c '(trap \"\" HUP TERM INT; cd /; setsid sleep {0} &) &' ; sleep {0}",
)
"""Children with every way to leave a process behind: background, own session, cleared environment, double fork."""
CHILDREN = 4
"""Children at once."""


async def main(kind: str, seed: str, duration: str) -> None:
    choose = random.Random(seed)

    async def work(supervisor: ProcessSupervisor) -> None:
        while True:
            async with open_child(shell(choose.choice(SCRIPTS).format(duration)), supervisor, grace=0.1) as child:
                with anyio.move_on_after(choose.uniform(0, 0.3)):
                    await child.wait()

    async with (
        ProcessSupervisor(max_containment=ContainmentKind(kind)) as supervisor,
        anyio.create_task_group() as group,
    ):
        print(supervisor.watchdog_pid, flush=True)
        for _ in range(CHILDREN):
            group.start_soon(work, supervisor)


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[1:]))
