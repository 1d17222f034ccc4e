"""What is said to a run that calls home: which tools it has to delegate with, and what came of using them."""

from __future__ import annotations

import logging

import anyio
from anyio.abc import SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.control.door import Door
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
from retinue.surfaces.base import MOST_AGENTS, Surface, ToolResult, named_tools, purpose, usable

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
        self._news = _News()
        self._sending = anyio.Lock(fast_acquire=True)
        self._call: anyio.CancelScope | None = None
        """What goes on; meanwhile nothing else is heard."""

    async def hold(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._tell, group)
                while (given := await next_order(self._orders)) is not None:
                    if self._call is None:
                        await self._obey(given, group)
                group.cancel_scope.cancel()
        finally:
            if self._call:
                self._call.cancel()

    async def _tell(self, group: TaskGroup) -> None:
        """Tells what comes of calls, beside what is heard."""
        while answer := await self._news.next():
            if not isinstance(answer, Partial):
                # Before it is sent: whoever has it may ask again before we know that they have.
                self._call = None
            await self._say(answer)
        group.cancel_scope.cancel()  # the run has ended, and with it all it asked for

    async def _obey(self, given: Order | Declined, group: TaskGroup) -> None:
        match given:
            case WhichTools():
                await self._say(_tools(self._member, self._surface))
            case WhichAgents():
                await self._say(_agents(self._member, self._orchestrator))
            case CallTool():
                if declined := self._begin(given, group):
                    await self._say(declined)
            case Declined():
                await self._say(given)
            case _:
                await self._say(Declined("A run may ask for its tools and agents, and call them."))

    async def _say(self, answer: Answer) -> None:
        async with self._sending:
            await self._stream.send(line(answer))

    def _begin(self, asked: CallTool, group: TaskGroup) -> Declined | None:
        """Begins a call; why not, where it is none."""
        run = self._surface.calls.get(asked.tool)
        if run is None:
            return Declined(f"There is no tool {asked.tool!r}. Tools: {', '.join(self._surface.calls)}.")
        try:
            call = self._member.tool_call(asked.call)
        except ValueError as error:
            return Declined(str(error))
        news = self._news

        async def work() -> None:
            answer: Returned | Declined | None = None
            try:
                answer = Returned((await run(asked.arguments, call, news.show if asked.partial else None)).as_json())
            except Exception:  # a fault of ours is the answer to this call, and no reason to end the run that made it
                logging.getLogger("retinue").exception(FAULT)
                answer = Declined(FAULT)
            finally:
                news.end(answer)

        self._call = self._member.begin(work)
        if self._call is None:
            group.cancel_scope.cancel()
        return None


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
    """The newest partial result, and then the result. Whoever reads slowly misses some, and holds up nobody."""

    def __init__(self) -> None:
        self._newest: Partial | Returned | Declined | None = None
        self._moved = anyio.Event()

    async def show(self, result: ToolResult) -> None:
        self._newest = Partial(result.as_json())
        self._moved.set()

    def end(self, answer: Returned | Declined | None) -> None:
        """There is no answer where the run ended first."""
        self._newest = answer
        self._moved.set()

    async def next(self) -> Partial | Returned | Declined | None:
        """What is new, once something is; None where there is no answer."""
        await self._moved.wait()
        self._moved = anyio.Event()
        newest, self._newest = self._newest, None
        return newest
