"""A provider's key is enough: ask a model, with a limit for its cost, and print what the run consumed."""

import os
import sys

import anyio

from retinue import Retinue


async def main() -> None:
    async with Retinue(engine="api") as retinue:
        result = await retinue.run("explorer", "Where is loop detection implemented?", max_cost=0.25)
        if failure := result.failure:
            sys.exit(f"{failure.code}: {failure.message}")
        print(result.text)
        print()
        usage, cost = result.usage, "unknown" if result.usage.cost is None else f"${result.usage.cost:.4f}"
        print(f"answered by {result.actual.model} in {result.elapsed:.1f}s")
        print(f"tokens: {usage.tokens}, cost: {cost}")


if any(name.endswith("_API_KEY") for name in os.environ) or "OLLAMA_HOST" in os.environ:
    anyio.run(main)
else:
    print("Set the key of a provider first, e.g. export ANTHROPIC_API_KEY=…, then run this again.")
