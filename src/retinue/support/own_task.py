"""A context manager that any task may close. asyncio only: imported where its event loop runs."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import anyio

Value = TypeVar("Value")


class OwnTask(AbstractAsyncContextManager[Value]):
    """Keeps a context manager open in a task of its own, so that any task may close it. For asyncio only."""

    def __init__(self, manager: AbstractAsyncContextManager[Value]) -> None:
        self._manager = manager
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Value:
        """Open the context manager and return its value.

        Raises:
            BaseException: what opening it raised; then nothing is left open.
        """
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Value] = loop.create_future()
        self._task = loop.create_task(self._live(opened))
        either: set[asyncio.Future[Any]] = {opened, self._task}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._task.cancel()
            await self._ended()
            raise
        if not opened.done():
            error = self._task.exception()
            assert error is not None
            raise error
        return opened.result()

    async def __aexit__(self, *_: object) -> None:
        """Close the context manager and return when that is done, even if the caller is cancelled meanwhile.

        Raises:
            BaseException: what closing it raised.
        """
        self._closing.set()
        await self._ended()
        if not self._task.cancelled():
            self._task.result()

    async def _live(self, opened: asyncio.Future[Value]) -> None:
        async with self._manager as value:
            opened.set_result(value)
            await self._closing.wait()

    async def _ended(self) -> None:
        cancelled: BaseException | None = None
        while not self._task.done():
            try:
                with anyio.CancelScope(shield=True):
                    await asyncio.wait({self._task})
            except asyncio.CancelledError as error:
                cancelled = error  # by asyncio itself, `wait_for` or `Task.cancel`, which ignores shields
        if cancelled:
            raise cancelled
