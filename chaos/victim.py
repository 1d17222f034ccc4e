"""A Retinue to be killed: run pi stand-ins that start daemons, and print every event once it is shown.

python -m chaos.victim HOME MARK SEED
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import anyio
from tests.support.fake_pi import FakePiAction, action, encode_script

from chaos.attack import environment
from retinue.client import Retinue
from retinue.model.events import RunEnded

PARALLEL = 4


def choose_script(choose: random.Random, mark: str) -> str:
    """Return what one agent does: texts, tools, daemons, with or without their environment, and an end or none."""
    daemon = f"setsid sleep {mark} >/dev/null 2>&1 &"
    kinds: list[FakePiAction] = [
        action("say", "half of an answer", stop="toolUse"),
        action("call", "read", {"path": "main.py"}, returns="print()" * choose.randint(1, 50)),
        action("bash", daemon),
        action("bash", f"env -i {daemon}"),
        action("bash", f"env -i sh -c 'trap \"\" TERM HUP; {daemon}'"),
        action("pause", choose.random() / 10),
    ]
    actions = choose.choices(kinds, k=choose.randint(1, 6))
    ending = [action("hang", deaf=True)] if choose.random() < 0.2 else [action("say", "done")]
    return encode_script(*actions, *ending)


async def main(home: Path, mark: str, seed: int) -> None:
    choose = random.Random(seed)
    retinue = Retinue(
        environ=environment(home),
        cwd=home,
        state=home / "state",
        engine="pi",
        settings={"max_concurrency": PARALLEL, "extend_timeout_debounce": 0},
    )
    async with retinue, retinue.events(deltas=False) as events, anyio.create_task_group() as runs:
        limiter = anyio.Semaphore(PARALLEL)

        async def run_one(prompt: str) -> None:
            async with limiter:
                await retinue.run(None, prompt, timeout=choose.randint(1, 3))

        async def start_runs() -> None:
            for _ in range(1000):
                async with limiter:
                    runs.start_soon(run_one, choose_script(choose, mark))
                await anyio.sleep(0.01)

        runs.start_soon(start_runs)
        async for record in events:
            is_end = isinstance(record.event, RunEnded)
            line = json.dumps([record.origin.session, record.origin.run, record.seq, is_end])
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(lambda: main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
