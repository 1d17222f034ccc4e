"""Run many children at once: each answer reaches its own caller, and nothing is left open."""

from __future__ import annotations

import os
import resource
from collections import Counter
from pathlib import Path

import anyio
from tests.support.fake_pi import action, encode_script, install_fake_pi

from chaos.attack import Attack, count_left, environment
from retinue.client import Retinue
from retinue.model.events import RunEnded
from retinue.model.results import RunResult

CHILDREN = 200
RUN_TIMEOUT = 900.0


async def attack_with_children(attack: Attack, *, children: int = CHILDREN, at_least: int = 1) -> None:
    """Start so many pi stand-ins at once, with a subscriber that never reads."""
    rounds = 0
    while rounds < at_least or not attack.is_over:
        rounds += 1
        await _run_all(attack, attack.folder(), children)
        if attack.is_control:
            break
    attack.tally.figures |= {
        "at once": children,
        "peak of the parent, MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


async def _run_all(attack: Attack, home: Path, children: int) -> None:
    install_fake_pi(home / "bin")
    answers = [f"answer {attack.choose.getrandbits(64):x}" for _ in range(children)]
    before = _open_descriptors()
    retinue = Retinue(
        environ=environment(home),
        cwd=home,
        state=home / "state",
        engine="pi",
        settings={"max_concurrency": children},
    )
    ends: Counter[str] = Counter()
    results: dict[int, RunResult] = {}
    async with retinue, retinue.events(), retinue.events(deltas=False) as events, anyio.create_task_group() as group:

        async def count_ends() -> None:
            async for record in events:
                ends[record.origin.run] += isinstance(record.event, RunEnded)
                if sum(ends.values()) == children:
                    return

        async def run(number: int) -> None:
            script = encode_script(
                action("call", "read", {"path": "main.py"}, returns="x" * 1000),
                action("say", answers[number], deltas=20),
            )
            results[number] = await retinue.run(None, script, timeout=RUN_TIMEOUT)

        group.start_soon(count_ends)
        for number in range(children):
            group.start_soon(run, number)
    left, _ = await count_left(str(home / "bin"))
    for number, result in results.items():
        wanted = "another answer" if attack.is_control else answers[number]
        is_right = result.failure is None and result.text == wanted and ends[result.run] == 1
        problem = f"run {result.run}: {result.failure.message if result.failure else result.text!r}"
        attack.tally.note(*([] if is_right else [problem]), lost=not is_right)
    leaked = len(_open_descriptors() - before)
    attack.tally.note(*([f"{leaked} descriptors left open"] if leaked else []), orphans=left)


def _open_descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}
