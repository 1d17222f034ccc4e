"""A chain: each step gets the answer of the previous one, framed as data."""

import anyio

from retinue import Retinue

STEPS = [
    ("explorer", "Where is the output of an agent truncated?"),
    ("reviewer", "Review the code that {previous} names for risks"),
    ("implementer", "Plan what to change about: {task}"),
]


async def main() -> None:
    async with Retinue(engine="offline") as retinue:
        results = await retinue.chain(STEPS)
        for number, result in enumerate(results, 1):
            print(f"--- step {number}: {result.spec.agent.name}")
            print(result.failure.message if result.failure else result.text)


anyio.run(main)
