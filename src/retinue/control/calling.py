"""What is said to a run that calls home: which tools it has to delegate with, and what came of using them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.control.listening import next_order, until_gone
from retinue.control.protocol import (
    CALL_BYTES,
    Answer,
    CallTool,
    Declined,
    Offered,
    Partial,
    Returned,
    TheseTools,
    WhichTools,
    line,
)
from retinue.home import MOST_CONNECTIONS, Member
from retinue.surfaces.base import Surface, ToolResult

NOBODY = "No run that may delegate has this token: it was never given, or its run has ended."
TOO_MANY = f"This run has {MOST_CONNECTIONS} calls under way already. Wait until one of them has been answered."


async def serve(stream: SocketStream, orders: BufferedByteReceiveStream, member: Member, surface: Surface) -> None:
    """Speaks with a run until it leaves, or ends."""
    while (given := await next_order(orders, CALL_BYTES)) is not None:
        match given:
            case WhichTools():
                await stream.send(line(_tools(member, surface)))
            case CallTool():
                if not await _called(stream, orders, given, member, surface):
                    return
            case Declined():
                await stream.send(line(given))
            case _:
                await stream.send(line(Declined("A run may ask for its tools, and call them.")))


def _tools(member: Member, surface: Surface) -> Answer:
    return TheseTools(
        tuple(Offered(tool.name, tool.description, tool.input_schema) for tool in surface.tools(member.call))
    )


async def _called(
    stream: SocketStream,
    orders: BufferedByteReceiveStream,
    asked: CallTool,
    member: Member,
    surface: Surface,
) -> bool:
    """Whether the call was answered; else the client has left, or its run has ended."""
    run = surface.calls.get(asked.tool)
    if run is None:
        await stream.send(line(Declined(f"There is no tool {asked.tool!r}. Tools: {', '.join(surface.calls)}.")))
        return True
    try:
        call = member.tool_call(asked.call)
    except ValueError as error:
        await stream.send(line(Declined(str(error))))
        return True
    news = _News()

    async def work() -> None:
        result: ToolResult | None = None
        try:
            result = await run(asked.arguments, call, news.show if asked.partial else None)
        finally:
            news.end(result)

    scope = member.begin(work)
    if scope is None:
        return False
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(until_gone, orders, group)
            async for answer in news:
                await stream.send(line(answer))
            group.cancel_scope.cancel()
    finally:
        scope.cancel()
    return news.is_answered


class _News:
    """The newest partial result, and then the result. Whoever reads slowly misses some, and holds up nobody."""

    def __init__(self) -> None:
        self.is_answered = False
        self._newest: Answer | None = None
        self._is_over = False
        self._moved = anyio.Event()

    async def show(self, result: ToolResult) -> None:
        self._newest = Partial(result.as_json())
        self._moved.set()

    def end(self, result: ToolResult | None) -> None:
        """There is no result where the run ended first."""
        self._newest = Returned(result.as_json()) if result else None
        self._is_over = True
        self._moved.set()

    async def __aiter__(self) -> AsyncIterator[Answer]:
        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            newest, self._newest = self._newest, None
            self.is_answered = self._is_over and newest is not None
            if newest:
                yield newest
            if self._is_over and self._newest is None:
                return
