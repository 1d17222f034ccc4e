"""Tasks that run beside a block and end with it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

import anyio


class Beside:
    """Like a task group, but what the block raises comes out as it is, not inside a group of exceptions.

    The tasks themselves raise nothing.
    """

    def __init__(self, *tasks: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks = tasks
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> None:
        await self._group.__aenter__()
        for task in self._tasks:
            self._group.start_soon(task)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)
