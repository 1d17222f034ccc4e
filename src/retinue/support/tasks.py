"""Tasks that end with a block, and work that completes even if its caller is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

import anyio
from anyio.abc import TaskGroup


class BackgroundTasks:
    """A task group for a block, cancelled at its end. An exception of the block is not wrapped in a group.

    The tasks themselves raise nothing.
    """

    def __init__(self, *tasks: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks = tasks

    async def __aenter__(self) -> TaskGroup:
        self._group = await anyio.create_task_group().__aenter__()
        for task in self._tasks:
            self._group.start_soon(task)
        return self._group

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.cancel_scope.cancel()
        # Without the error: it belongs to the block, and the group would wrap it in another.
        await self._group.__aexit__(None, None, None)


async def run_shielded(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Complete the work even if the caller is cancelled. The work must not raise.

    It gets its own task: cancellation by asyncio itself, `wait_for` or `Task.cancel`, ignores shields.
    """

    async def run_work() -> None:
        with anyio.CancelScope(shield=True):
            await work()

    async with anyio.create_task_group() as group:
        group.start_soon(run_work)
