"""One agent, one task: ask the explorer where something is, and print what was executed."""

import anyio

from retinue import Retinue


async def main() -> None:
    async with Retinue(engine="offline") as retinue:
        result = await retinue.run("explorer", "Where is loop detection implemented?")
        if failure := result.failure:
            print(f"{failure.code}: {failure.message}")
            return
        print(result.text)
        print()
        print(f"answered by {result.actual.model} in {result.elapsed:.1f}s")
        print(f"tools used: {dict(result.actual.tools_used)}")
        print(f"session: {result.spec.session[:8]} ({result.session_file})")


anyio.run(main)
