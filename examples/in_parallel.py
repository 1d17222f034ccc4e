"""Parallel tasks: four run at a time, the others wait; a failed task does not stop the others."""

import anyio

from retinue import Retinue, Task

TASKS = [
    Task(agent="explorer", prompt="Where are settings read?"),
    Task(agent="reviewer", prompt="Review the loop guard for risks"),
    Task(agent="tester", prompt="How is the masking of secrets tested?", timeout=60),
    Task(agent="nobody", prompt="This agent does not exist"),
]


async def main() -> None:
    async with Retinue(engine="offline") as retinue:
        for result in await retinue.delegate(TASKS):
            if failure := result.failure:
                print(f"✗ {result.spec.name}: {failure.message}")
            else:
                print(f"✓ {result.spec.name}: {result.text.splitlines()[0]}")


anyio.run(main)
