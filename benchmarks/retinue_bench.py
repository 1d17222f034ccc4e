"""Retinue's side of the same work, with durable sessions, event bus and guards.

`python -m benchmarks.retinue_bench WORK N`
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from benchmarks.workload import print_cost, resident_bytes, scratch
from retinue.client import Retinue
from retinue.engines.agent_loop import ChatModel, ModelReply, ModelRequest, OnDelta, run_agent_loop
from retinue.engines.base import Emit, EngineCapabilities, EngineInfo
from retinue.engines.toolbox import AgentToolbox, make_tool
from retinue.model.agents import AgentProfile
from retinue.model.event_codec import EventRecord, EventSource, from_line
from retinue.model.events import Text, TextDelta, ToolCalled, ToolReturned
from retinue.model.runs import RunSpec, ToolUse
from retinue.model.tasks import Lineage
from retinue.sessions.jsonl import JsonlStore

TASK = ("explorer", "do it")


async def read(path: str) -> str:
    """Read a file."""
    return f"content of {path}"


class LoopEngine:
    """The agent loop over a model of the benchmark."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._toolbox = AgentToolbox([make_tool(read)])

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        await run_agent_loop(self._model, spec, self._toolbox, emit)


class InstantModel:
    """Calls one tool, then answers."""

    name = "instant"

    async def reply(self, request: ModelRequest, say: OnDelta) -> ModelReply:
        if request.messages[-1].role == "user":
            return ModelReply(content=(ToolUse("c1", "read", {"path": "x"}),), stop_reason="tool_use")
        return ModelReply(content=(Text("done"),))


def make_retinue(model: Any, **settings: Any) -> Retinue:
    kind = EngineInfo(
        name="bench",
        capabilities=EngineCapabilities(tools=frozenset({"read", "grep", "find", "ls"})),
        make=lambda: LoopEngine(model),
        not_installed_reason=lambda: None,
    )
    many = {"max_tasks": 100_000, "max_concurrency": 100_000, **settings}
    return Retinue(cwd=scratch(), state=f"{scratch()}/state", engine="bench", engines={"bench": kind}, settings=many)


async def delegations(count: int) -> None:
    async with make_retinue(InstantModel()) as retinue:
        for _ in range(20):
            await retinue.run(*TASK)
        with print_cost(times=count):
            for _ in range(count):
                result = await retinue.run(*TASK)
                assert result.failure is None


async def parallel(count: int) -> None:
    async with make_retinue(InstantModel()) as retinue:
        await retinue.run(*TASK)
        with print_cost(times=count):
            results = await retinue.delegate([TASK] * count)
        assert all(result.failure is None for result in results)


TURN = 0.05
"""Seconds per model turn."""
TURNS = 4
SLOTS = 4
"""The default."""


async def thinking(count: int) -> None:
    """Measure tasks of four turns of 50 ms, four at a time."""

    class ThinkingModel:
        name = "thinking"

        async def reply(self, request: ModelRequest, say: OnDelta) -> ModelReply:
            await anyio.sleep(TURN)
            calls = sum(message.role == "assistant" for message in request.messages)
            if calls + 1 < TURNS:
                return ModelReply(
                    content=(ToolUse(f"c{calls}", "read", {"path": f"file {calls}"}),), stop_reason="tool_use"
                )
            return ModelReply(content=(Text("done"),))

    async with make_retinue(ThinkingModel(), max_concurrency=SLOTS) as retinue:
        await retinue.run(*TASK)
        with print_cost():
            results = await retinue.delegate([TASK] * count)
        assert all(result.failure is None for result in results)


async def held(count: int) -> None:
    """Measure the memory of runs just before their last event."""
    ready, go = 0, anyio.Event()

    class WaitingModel:
        name = "waiting"

        async def reply(self, request: ModelRequest, say: OnDelta) -> ModelReply:
            nonlocal ready
            calls = sum(message.role == "assistant" for message in request.messages)
            if calls < 2:
                return ModelReply(
                    content=(ToolUse(f"c{calls}", "read", {"path": f"file {calls}"}),), stop_reason="tool_use"
                )
            ready += 1
            await go.wait()
            return ModelReply(content=(Text("done"),))

    async with make_retinue(WaitingModel()) as retinue:
        before = resident_bytes()
        async with anyio.create_task_group() as group:
            group.start_soon(retinue.delegate, [TASK] * count)
            while ready < count:
                await anyio.sleep(0.01)
            print(f'{{"grown_bytes": {(resident_bytes() - before) // count}}}')
            go.set()


async def deltas(count: int) -> None:
    """Measure a stream of deltas of 500 bytes without subscribers."""
    await _deltas(count, watched=False)


async def watched_deltas(count: int) -> None:
    """Measure the same stream, redacted and sent to a subscriber."""
    await _deltas(count, watched=True)


async def _deltas(count: int, *, watched: bool) -> None:
    class StreamingModel:
        name = "streaming"

        async def reply(self, request: ModelRequest, say: OnDelta) -> ModelReply:
            text = "x" * 500
            for _ in range(count):
                await say(TextDelta(text))
            return ModelReply(content=(Text("done"),))

    async with make_retinue(StreamingModel(), idle_timeout=180.0) as retinue:
        with print_cost():
            if watched:
                async with retinue.events() as events, anyio.create_task_group() as group:

                    async def watch() -> None:
                        async for _ in events:
                            pass

                    group.start_soon(watch)
                    result = await retinue.run(*TASK)
                    group.cancel_scope.cancel()
            else:
                result = await retinue.run(*TASK)
        assert result.failure is None


async def appended(count: int) -> None:
    """Measure events through the whole runtime into the durable store."""

    class StreamingModel:
        async def run(self, spec: RunSpec, emit: Emit) -> None:
            for number in range(count):
                await emit(ToolCalled(f"c{number}", "read", {"path": "x" * 60, "n": number}))
            await InstantEnd().run(spec, emit)

    kind = EngineInfo(
        name="bench",
        capabilities=EngineCapabilities(tools=frozenset({"read", "grep", "find", "ls"})),
        make=StreamingModel,
        not_installed_reason=lambda: None,
    )
    async with Retinue(cwd=scratch(), state=f"{scratch()}/state", engine="bench", engines={"bench": kind}) as retinue:
        with print_cost(times=count):
            result = await retinue.run(*TASK)
        assert result.failure is None, result.failure


class InstantEnd:
    async def run(self, spec: RunSpec, emit: Emit) -> None:
        from retinue.model.events import MessageEnded

        await emit(Text("done"))
        await emit(MessageEnded(stop_reason="stop"))


async def first_request(_: int) -> None:
    """Measure the time from the program's start to the first model request of a durable session."""
    import time

    class ProbeModel:
        name = "probe"

        async def reply(self, request: ModelRequest, say: OnDelta) -> ModelReply:
            print(f'{{"cpu": {time.process_time()}}}')
            return ModelReply(content=(Text("done"),))

    async with make_retinue(ProbeModel()) as retinue:
        await retinue.run(*TASK)


async def session_of(count: int, size: int = 200) -> str:
    """Store a session with this many events of this size and return its id."""
    async with JsonlStore(state()) as store:
        session = store.claim()
        spec = RunSpec(
            run=session,
            session=session,
            name="bench",
            toolset="single",
            agent=AgentProfile(name="explorer"),
            task="do it",
            prompt="do it",
            cwd=scratch(),
            engine="bench",
            lineage=Lineage(root="r", parent_call="c", depth=1),
        )
        record = await store.open_record(spec)
        origin = EventSource.of(spec)
        from retinue.model.events import RunEnded, RunQueued

        queued = RunQueued(name="bench", agent="explorer", task="do it", cwd="/", surface="single")
        record.append(EventRecord(origin, 1, 1.0, queued))
        for number in range(count):
            record.append(EventRecord(origin, number + 2, 1.0, ToolReturned(f"c{number}", "read", "y" * size)))
        record.append(EventRecord(origin, count + 2, 1.0, RunEnded(text="the answer")))
        await record.sync()
        await record.release()
    return session


def state() -> Any:
    from pathlib import Path

    return Path(scratch()) / "state"


async def listed(count: int) -> None:
    """Measure listing a state folder with one session of `count` events and a new index."""
    await session_of(count)
    async with JsonlStore(state()) as store:
        with print_cost(times=20):
            for _ in range(20):
                (state() / "index.sqlite").unlink(missing_ok=True)
                assert len(await store.list()) == 1


async def tailed(count: int) -> None:
    """Measure reading the answer and the last 20 events of a session with `count` events."""
    session = await session_of(count)
    async with JsonlStore(state()) as store:
        with print_cost(times=50):
            for _ in range(50):
                summary = await store.summary(session)
                assert summary and summary.preview == "the answer"
                assert len(await store.tail(session, 20)) == 20


async def first_screen(count: int) -> None:
    """Measure reading the last 12 events of a session of `count` messages of 5 KB."""
    session = await session_of(count, 5000)
    async with JsonlStore(state()) as store:
        await store.tail(session, 12)
        with print_cost(times=20):
            for _ in range(20):
                assert len(await store.tail(session, 12)) == 12


async def last_bytes(count: int) -> None:
    """Measure reading and decoding the last 64 KB of the same session's file in a thread."""
    import os

    import anyio.to_thread

    session = await session_of(count, 5000)
    (path,) = state().glob(f"sessions/{session[:8]}/session.jsonl")

    def read() -> None:
        with path.open("rb") as file:
            file.seek(-64 * 1024, os.SEEK_END)
            lines = file.read().split(b"\n")
        for line in lines[1:-1]:
            from_line(line)

    await anyio.to_thread.run_sync(read)
    with print_cost(times=20):
        for _ in range(20):
            await anyio.to_thread.run_sync(read)


WORK: dict[str, Callable[[int], Awaitable[None]]] = {
    work.__name__: work
    for work in (
        delegations,
        parallel,
        held,
        deltas,
        watched_deltas,
        appended,
        first_request,
        listed,
        tailed,
        thinking,
        first_screen,
        last_bytes,
    )
}

if __name__ == "__main__":
    anyio.run(WORK[sys.argv[1]], int(sys.argv[2]))
