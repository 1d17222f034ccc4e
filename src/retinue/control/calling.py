"""What is said to a run that calls home: which tools it has to delegate with, and what came of using them."""

from __future__ import annotations

import logging
from contextlib import suppress

import anyio
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.control.door import LEAVING, Door
from retinue.control.listening import next_order
from retinue.control.protocol import (
    Answer,
    CallTool,
    Declined,
    Known,
    Offered,
    Order,
    Partial,
    Returned,
    TheseAgents,
    TheseTools,
    WhichAgents,
    WhichTools,
    line,
)
from retinue.home import MOST_CONNECTIONS, Member
from retinue.orchestrator import Orchestrator
from retinue.surfaces.base import MOST_AGENTS, Surface, ToolResult, ToolRun, named_tools, purpose, usable
from retinue.types import Call

FAULT = "The call was ended by a fault of Retinue itself, which its log describes. The run goes on: do without it."
NOBODY = "No run that may delegate has this token: it was never given, or its run has ended."
TOO_MANY = f"This run has {MOST_CONNECTIONS} calls under way already. Wait until one of them has been answered."


async def serve(stream: SocketStream, orders: BufferedByteReceiveStream, member: Member, door: Door) -> None:
    """Speaks with a run until it leaves, or ends."""
    await _Talk(stream, orders, member, door).hold()


class _Talk:
    """One connection of a run: one call at a time. Leaving in the middle of it ends what it asked for."""

    def __init__(self, stream: SocketStream, orders: BufferedByteReceiveStream, member: Member, door: Door) -> None:
        self._stream = stream
        self._orders = orders
        self._member = member
        self._surface = door.surface
        self._orchestrator = door.orchestrator
        self._sending = anyio.Lock(fast_acquire=True)
        self._hearing = anyio.CancelScope()
        self._working: anyio.CancelScope | None = None
        self._asked: CallTool | None = None
        """What goes on; meanwhile nothing else is heard."""
        self._was_asked = anyio.Event()

    async def hold(self) -> None:
        with self._hearing:
            try:
                while (given := await next_order(self._orders)) is not None and self._member.is_live:
                    if self._asked is None:
                        await self._obey(given)
            finally:
                if self._working:
                    self._working.cancel()

    async def _obey(self, given: Order | Declined) -> None:
        match given:
            case WhichTools():
                await self._say(_tools(self._member, self._surface))
            case WhichAgents():
                await self._say(_agents(self._member, self._orchestrator))
            case CallTool():
                self._begin(given)
            case Declined():
                await self._say(given)
            case _:
                await self._say(Declined("A run may ask for its tools and agents, and call them."))

    async def _say(self, answer: Answer) -> None:
        async with self._sending:
            await self._stream.send(line(answer))

    def _begin(self, asked: CallTool) -> None:
        self._asked = asked
        self._was_asked.set()
        if self._working is None:
            self._working = self._member.begin(self._work)
        if self._working is None:
            self._hearing.cancel()  # the run has ended

    async def _work(self) -> None:
        """Does what is asked for, one call after the other, within the life of the run."""
        try:
            with suppress(*LEAVING):
                while True:
                    await self._say(await self._answer())
        finally:
            self._hearing.cancel()  # the run has ended, and with it all it asked for

    async def _answer(self) -> Answer:
        """What came of the next call."""
        await self._was_asked.wait()
        self._was_asked = anyio.Event()
        assert self._asked is not None
        answer = await self._answer_to(self._asked)
        # Before it is sent: whoever has it may ask again before we know that they have.
        self._asked = None
        return answer

    async def _answer_to(self, asked: CallTool) -> Answer:
        run = self._surface.calls.get(asked.tool)
        if run is None:
            return Declined(f"There is no tool {asked.tool!r}. Tools: {', '.join(self._surface.calls)}.")
        try:
            call = self._member.tool_call(asked.call)
        except ValueError as error:
            return Declined(str(error))
        try:
            result = await (self._shown(run, asked, call) if asked.partial else run(asked.arguments, call, None))
        except Exception:  # a fault of ours is the answer to this call, and no reason to end the run that made it
            logging.getLogger("retinue").exception(FAULT)
            return Declined(FAULT)
        return Returned(result.as_json())

    async def _shown(self, run: ToolRun, asked: CallTool, call: Call) -> ToolResult:
        """The result; partial ones are told while it is still to come."""
        news = _News()
        async with anyio.create_task_group() as group:
            group.start_soon(self._tell, news)
            result = await run(asked.arguments, call, news.show)
            news.end()
        return result

    async def _tell(self, news: _News) -> None:
        with suppress(*LEAVING):
            while partial := await news.next():
                await self._say(partial)


def _tools(member: Member, surface: Surface) -> Answer:
    return TheseTools(
        tuple(Offered(tool.name, tool.description, tool.input_schema) for tool in surface.tools(member.call))
    )


def _agents(member: Member, orchestrator: Orchestrator) -> Answer:
    """As subagents they have neither persona nor memory; no record has masked what their files say."""
    found = [(entry.agent.as_subagent(), entry) for entry in usable(orchestrator, member.call)[:MOST_AGENTS]]
    return TheseAgents(
        tuple(
            Known(agent.name, purpose(orchestrator, entry), orchestrator.masked(agent.body), named_tools(agent.tools))
            for agent, entry in found
        )
    )


class _News:
    """The newest partial result. Whoever reads slowly misses some, and holds up nobody."""

    def __init__(self) -> None:
        self._newest: Partial | None = None
        self._moved = anyio.Event()

    async def show(self, result: ToolResult) -> None:
        self._newest = Partial(result.as_json())
        self._moved.set()

    def end(self) -> None:
        """There will be no more; one that nobody has been told is out of date."""
        self._newest = None
        self._moved.set()

    async def next(self) -> Partial | None:
        """What is new, once something is; None when there will be no more."""
        await self._moved.wait()
        self._moved = anyio.Event()
        newest, self._newest = self._newest, None
        return newest
