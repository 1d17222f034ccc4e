"""Events of running agents: the stream behind the live view and the dashboard."""

import anyio

from retinue import Retinue
from retinue.model.events import RunEnded, RunStarted, ToolCalled


async def main() -> None:
    async with Retinue(engine="offline") as retinue, anyio.create_task_group() as group:

        async def watch() -> None:
            async with retinue.events(deltas=False) as events:
                async for stamped in events:
                    match stamped.event:
                        case RunStarted():
                            print(f"{stamped.origin.run[:8]} started")
                        case ToolCalled(name=name, args=args):
                            print(f"{stamped.origin.run[:8]} → {name} {args}")
                        case RunEnded(elapsed=elapsed):
                            print(f"{stamped.origin.run[:8]} ended after {elapsed:.1f}s")

        group.start_soon(watch)
        await retinue.delegate([("explorer", "Where is the bus?"), ("tester", "How is the bus tested?")])
        group.cancel_scope.cancel()


anyio.run(main)
