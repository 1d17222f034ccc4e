"""Tasks that run beside a block and end with it; work that ends by itself, whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

import anyio
from anyio.abc import TaskGroup


class BackgroundTasks:
    """A task group for a block, cancelled at its end. What the block raises comes out as it is, not inside a group.

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
    """Does work that must be done whole, though whoever asks for it is cancelled. It raises nothing.

    In a task of its own: asyncio's own cancelling, of `wait_for` and `Task.cancel`, knows no shields.
    """

    async def run_work() -> None:
        with anyio.CancelScope(shield=True):
            await work()

    async with anyio.create_task_group() as group:
        group.start_soon(run_work)
