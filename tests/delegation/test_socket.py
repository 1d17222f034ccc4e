"""Delegation by the control socket: limits of known runs, and refusals of others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import structs
from tests.support.delegation_reports import SPAWN, ends, is_end
from tests.support.pi_setup import until_told

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.base import EngineInfo
from retinue.engines.scripted import CAPABILITIES, RunCallback, ScriptedEngine, reply
from retinue.ipc.connection import INVALID_TOKEN
from retinue.ipc.server import MAX_CLIENTS
from retinue.model.errors import ErrorCode
from retinue.model.events import RunQueued, RunStarted
from retinue.model.runs import CallbackAddress, Delegation, DelegationAnswer, RunSpec
from retinue.model.tasks import Plan, Task
from retinue.runtime.delegation import MAX_CALLS
from retinue.sessions.memory import MemoryRecord, MemoryStore
from retinue.toolsets.base import ToolResult
from retinue.toolsets.delegation import INTERNAL_ERROR, RUN_ENDED, TOO_MANY_CALLS

LEAD = Agent(name="lead", tools=("read", "subagent"))
NESTS = structs.replace(CAPABILITIES, delegates_by_socket=True)


class Stage:
    """A lead that waits while the test makes its calls. Workers answer at once, or wait for the test."""

    def __init__(self, runtime: Path, store: MemoryStore | None = None) -> None:
        kind = EngineInfo(name="scripted", capabilities=NESTS, make=self._engine, not_installed_reason=lambda: None)
        runtime.chmod(0o700)
        self.environ = {"HOME": str(runtime), "XDG_RUNTIME_DIR": str(runtime)}
        self.retinue = Retinue(
            engine="scripted",
            engines={"scripted": kind},
            environ=self.environ,
            cwd=runtime,
            agents=[LEAD],
            store=store or MemoryStore(),
            settings={"max_spawns": 10**6, "max_concurrency": 1},
        )
        self.homes: list[CallbackAddress] = []
        self.delegations: list[Delegation] = []
        self.begun, self.go_on, self.worker_waits = anyio.Event(), anyio.Event(), False

    def _engine(self) -> ScriptedEngine:
        def script(spec: RunSpec) -> tuple[Any, ...]:
            if spec.agent.name != "lead":
                return (RunCallback(anyio.sleep_forever),) if self.worker_waits else (reply("worked: {task}"),)
            assert spec.callback
            assert spec.delegation
            self.homes.append(spec.callback)
            self.delegations.append(spec.delegation)
            self.begun.set()
            return RunCallback(self.go_on.wait), reply("led")

        return ScriptedEngine(script)

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[CallbackAddress]:
        """Yield the callback address of a lead that works during the block."""
        async with self.retinue, anyio.create_task_group() as group:
            plan = Plan(tasks=(Task(agent="lead", prompt="lead"),))
            group.start_soon(self.retinue.run_plan, plan, self.retinue.call("nested"))
            with anyio.fail_after(20):
                await self.begun.wait()
            yield self.homes[0]
            self.go_on.set()


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("r"))


class Caller:
    """A connection that can send anything."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._answers = BufferedByteReceiveStream(stream)

    async def ask(self, **order: Any) -> dict[str, Any]:
        await self._stream.send(json.dumps(order).encode() + b"\n")
        return await self.receive()

    async def receive(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self._answers.receive_until(b"\n", 2**26))
        return answer


@asynccontextmanager
async def calling(home: CallbackAddress, token: str | None = None) -> AsyncIterator[tuple[Caller, dict[str, Any]]]:
    """Open a connection and return it with the answer to its hello."""
    async with await anyio.connect_unix(home.address) as stream:
        caller = Caller(stream)
        yield caller, await caller.ask(type="hello", v=1, token=home.token.reveal() if token is None else token)


def work(**more: Any) -> dict[str, Any]:
    return {"type": "call", "tool": SPAWN, "call": "toolu_1", "arguments": {"agent": "explorer", "task": "x"}, **more}


WORK = {"agent": "explorer", "task": "x"}
BACKENDS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@BACKENDS
async def test_run_lists_its_delegation_tools_and_calls_them(stage):
    async with stage.leading() as home, calling(home) as (caller, welcome):
        assert welcome["type"] == "welcome"
        told = await caller.ask(type="tools")
        assert [tool["name"] for tool in told["tools"]] == [SPAWN, "agent_info"]
        assert told["tools"][0]["inputSchema"]["properties"]["mode"]["enum"] == ["single", "chain", "parallel"]
        answer = await caller.ask(**work())
        assert answer["type"] == "result"
        assert answer["result"]["content"] == [{"type": "text", "text": "worked: x"}]
        partial = await caller.ask(**work(partial=True))
        while partial["type"] == "partial":
            partial = await caller.receive()
        assert partial["result"]["content"] == [{"type": "text", "text": "worked: x"}]


async def test_a_forged_an_expired_and_a_foreign_token_are_declined(stage, tmp_path_factory):
    other = Stage(tmp_path_factory.mktemp("o"))
    async with stage.leading() as home, other.leading() as foreign, stage.retinue.events() as watcher:
        mine = home.token.reveal()
        for token in ("", "x", mine[:-1], mine + "0", mine.upper(), "0" * len(mine), "é", foreign.token.reveal()):
            async with calling(home, token) as (_, answer):
                assert answer == {"type": "declined", "message": INVALID_TOKEN}
        stage.go_on.set()
        await until_told(watcher, is_end)
        async with calling(home) as (_, answer):
            assert answer == {"type": "declined", "message": INVALID_TOKEN}


async def test_without_a_token_nothing_is_delegated(stage):
    async with stage.leading() as home, await anyio.connect_unix(home.address) as stream:
        caller = Caller(stream)
        assert (await caller.ask(type="hello", v=1))["type"] == "welcome"
        assert (await caller.ask(type="tools"))["type"] == "declined"
        assert (await caller.ask(**work()))["type"] == "declined"
        assert len(stage.retinue._orchestrator.active_run_ids) == 1


@pytest.mark.parametrize(
    "order",
    [
        {"type": "call", "tool": "bash", "call": "toolu_1", "arguments": {"command": "id"}},
        {"type": "call", "tool": SPAWN, "call": "", "arguments": {}},
        {"type": "call", "tool": SPAWN, "call": "a\nb", "arguments": {}},
        {"type": "call", "tool": SPAWN, "call": "x" * 5000, "arguments": {}},
        {"type": "call", "tool": 1},
        {"type": "cancel", "run": "x"},
        {"type": "watch"},
        {"type": "hello", "v": 1},
        {"type": "steer"},
    ],
)
async def test_invalid_message_is_declined_and_the_connection_stays_usable(stage, order):
    async with stage.leading() as home, calling(home) as (caller, _):
        assert (await caller.ask(**order))["type"] == "declined"
        assert (await caller.ask(**work()))["type"] == "result"


@pytest.mark.parametrize("arguments", [None, [], "x", {}, {"agent": 1}, {"mode": "all"}, {"tasks": []}])
async def test_bad_arguments_are_answered_by_the_tool_itself(stage, arguments):
    async with stage.leading() as home, calling(home) as (caller, _):
        answer = await caller.ask(**work(arguments=arguments))
        assert answer["result"]["isError"]
        assert answer["result"]["details"]["error"]["code"] == "invalid_input"


async def test_endlessly_nested_arguments_are_declined_without_a_logged_error(stage, caplog):
    deep = b'{"type":"call","tool":"spawn_subagent","call":"toolu_1","arguments":%b}\n' % (
        b"[" * 10**5 + b"]" * 10**5
    )
    async with stage.leading() as home, calling(home) as (caller, _):
        await caller._stream.send(deep)
        assert (await caller.receive())["type"] == "declined"
        assert (await caller.ask(**work()))["type"] == "result"
        bottomless: list[Any] = []
        for _ in range(3000):
            bottomless = [bottomless]
        deepest = {"agent": "explorer", "task": "x", "more": bottomless}
        notice = (
            "Ignored parameters: more. "
            "Supported parameters: mode, agent, task, tasks, outputSchema, isolation, sandbox; "
            "in tasks: agent, task, cwd, timeout, outputSchema, isolation, sandbox"
        )
        assert await stage.delegations[0].call(SPAWN, "toolu_2", deepest) == DelegationAnswer(
            f"worked: x\n\n{notice}"
        )
    assert not caplog.records


async def test_lone_surrogate_in_a_task_becomes_a_replacement_character(stage):
    task = {"agent": "explorer", "task": "half an emoji: \ud83d."}
    async with stage.leading() as home, calling(home) as (caller, _):
        answer = await caller.ask(**work(arguments=task))
        from_within = await stage.delegations[0].call(SPAWN, "toolu_2", task)
    assert answer["result"]["content"][0]["text"] == "worked: half an emoji: \ufffd."
    assert from_within == DelegationAnswer("worked: half an emoji: \ufffd.")


async def test_run_cannot_choose_its_lineage_or_authority(stage):
    sly = {"agent": "explorer", "task": "x", "depth": 0, "authority": None, "parentRun": None, "cwd": "/"}
    async with stage.leading() as home, stage.retinue.events() as watcher, calling(home) as (caller, _):
        await caller.ask(**work(arguments=sly, lineage={"depth": 0}, authority=["bash"]))
        (found,) = [(one.origin.depth, one.event.cwd) for one in watcher.drain() if isinstance(one.event, RunQueued)]
    assert found == (2, stage.retinue.cwd)


async def test_connections_of_a_run_are_limited_and_do_not_block_others(stage):
    async with stage.leading() as home:
        async with anyio.create_task_group() as group:

            async def hold(*, task_status):
                async with calling(home) as (_, answer):
                    task_status.started(answer)
                    await anyio.sleep_forever()

            found = [await group.start(hold) for _ in range(MAX_CALLS + 3)]
            assert [answer["type"] for answer in found] == ["welcome"] * MAX_CALLS + ["declined"] * 3
            assert found[-1]["message"] == TOO_MANY_CALLS
            async with calling(home, "nobody") as (_, answer):
                assert answer["message"] == INVALID_TOKEN
            group.cancel_scope.cancel()
        with anyio.fail_after(20):
            while (await _send_hello(home))["type"] != "welcome":
                pass


@pytest.mark.parametrize("said", [b"", b'{"type":"hello","v":1}\n'], ids=["who say nothing", "who only say hello"])
async def test_many_clients_do_not_block_the_runs(stage, said):
    async with stage.leading() as home:
        with ExitStack() as crowd:
            for _ in range(4 * MAX_CLIENTS):
                one = crowd.enter_context(socket(AF_UNIX))
                one.settimeout(20)
                await anyio.to_thread.run_sync(one.connect, home.address)
                one.sendall(said)
            async with calling(home) as (caller, _):
                assert (await caller.ask(**work()))["type"] == "result"


async def _send_hello(home: CallbackAddress) -> dict[str, Any]:
    async with calling(home) as (_, answer):
        return answer


@pytest.mark.parametrize("flood", [b"x" * (17 * 2**20), b'{"type":"tools"}\n' * 100_000], ids=["one line", "orders"])
async def test_flooding_connection_harms_only_itself(stage, flood):
    stage.worker_waits = True
    async with stage.leading() as home, stage.retinue.events() as watcher:
        with anyio.fail_after(30):
            async with calling(home) as (caller, _):
                await caller._stream.send(json.dumps(work()).encode() + b"\n")
                await until_told(watcher, lambda event: isinstance(event, RunStarted))
                with suppress(anyio.BrokenResourceError):  # it is cut off, or its output is ignored
                    await caller._stream.send(flood)
            assert ends([await until_told(watcher, is_end)]) == [(2, ErrorCode.ABORTED)]
            stage.worker_waits = False
            async with calling(home) as (caller, _):
                assert (await caller.ask(**work()))["type"] == "result"


@BACKENDS
async def test_connection_can_call_again_after_its_answer(stage):
    """Call from a thread right after an answer, before its sender knows that it was sent."""

    def ask(home: CallbackAddress) -> list[str]:
        with socket(AF_UNIX) as connection, connection.makefile("rb") as answers:
            connection.settimeout(20)
            connection.connect(home.address)
            said = [{"type": "hello", "v": 1, "token": home.token.reveal()}]
            said += [work(arguments={"agent": "explorer", "task": str(number)}) for number in range(200)]
            replies = []
            for one in said:
                connection.sendall(json.dumps(one).encode() + b"\n")
                replies.append(json.loads(answers.readline()))
            return [answer["result"]["content"][0]["text"] for answer in replies[1:]]

    async with stage.leading() as home:
        assert await anyio.to_thread.run_sync(ask, home) == [f"worked: {number}" for number in range(200)]


async def test_closed_connection_ends_its_call(stage):
    stage.worker_waits = True
    async with stage.leading() as home, stage.retinue.events() as watcher:
        async with await anyio.connect_unix(home.address) as stream:
            await stream.send(json.dumps({"type": "hello", "v": 1, "token": home.token.reveal()}).encode() + b"\n")
            await stream.send(json.dumps(work()).encode() + b"\n")
            await until_told(watcher, lambda event: isinstance(event, RunStarted))
        one = await until_told(watcher, is_end)
        assert ends([one]) == [(2, ErrorCode.ABORTED)]
        stage.worker_waits = False
        async with calling(home) as (caller, _):  # with the only slot there is
            assert (await caller.ask(**work()))["type"] == "result"


async def test_end_of_a_run_ends_its_calls_and_reports_it(stage):
    stage.worker_waits = True
    async with stage.leading() as home, stage.retinue.events() as watcher, calling(home) as (caller, _):
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                with pytest.raises(anyio.IncompleteRead):
                    await caller.ask(**work())

            group.start_soon(ask)
            await until_told(watcher, lambda event: isinstance(event, RunStarted))
            stage.go_on.set()
        ended = [await until_told(watcher, is_end) for _ in range(2)]
    assert ends(ended) == [(2, ErrorCode.ABORTED), (1, None)]


@pytest.mark.parametrize("order", [{"type": "tools"}, {"type": "agents"}, work()])
async def test_connection_of_an_ended_run_gets_no_more_replies(stage, order):
    async with stage.leading() as home, stage.retinue.events() as watcher, calling(home) as (caller, _):
        stage.go_on.set()
        await until_told(watcher, is_end)
        with pytest.raises(anyio.IncompleteRead):
            await caller.ask(**order)


class Faulty(MemoryStore):
    """A store that fails for every agent but the lead."""

    async def open_record(self, spec: RunSpec) -> MemoryRecord:
        if spec.agent.name != "lead":
            raise ZeroDivisionError(spec.agent.name)
        return await super().open_record(spec)


async def test_internal_error_is_answered_logged_and_ends_no_run(tmp_path_factory, caplog):
    stage = Stage(tmp_path_factory.mktemp("f"), Faulty())
    async with stage.leading() as home, stage.retinue.events() as watcher:
        async with calling(home) as (caller, _):
            assert await caller.ask(**work()) == {"type": "declined", "message": INTERNAL_ERROR}
            assert (await caller.ask(type="tools"))["type"] == "tools"
        from_within = await stage.delegations[0].call(SPAWN, "toolu_2", WORK)
        assert from_within == DelegationAnswer(INTERNAL_ERROR, is_error=True)
        stage.go_on.set()
        assert ends([await until_told(watcher, is_end)]) == [(1, None)]
    assert ["ZeroDivisionError" in record.exc_text for record in caplog.records] == [True, True]


async def test_calls_of_an_engine_in_this_process_are_limited_like_connections(stage):
    stage.worker_waits = True
    async with stage.leading(), stage.retinue.events() as watcher:
        async with anyio.create_task_group() as group:
            for number in range(MAX_CALLS):
                group.start_soon(stage.delegations[0].call, SPAWN, f"toolu_{number}", WORK)
            await until_told(watcher, lambda event: isinstance(event, RunStarted))
            answer = await stage.delegations[0].call(SPAWN, "toolu_x", WORK)
            group.cancel_scope.cancel()
        assert answer == DelegationAnswer(TOO_MANY_CALLS, is_error=True)
        stage.worker_waits = False
        assert await stage.delegations[0].call(SPAWN, "toolu_y", WORK) == DelegationAnswer("worked: x")


async def test_call_in_this_process_without_a_tool_or_with_an_endless_id_is_answered(stage):
    async with stage.leading():
        unknown = await stage.delegations[0].call("bash", "toolu_1", {})
        endless = await stage.delegations[0].call(SPAWN, "x" * 1025, WORK)
    assert unknown == DelegationAnswer("Unknown tool: bash. Tools: spawn_subagent, agent_info.", is_error=True)
    assert endless == DelegationAnswer("The id of a tool call may have at most 1024 characters.", is_error=True)


async def test_call_in_this_process_after_the_end_of_its_run_starts_nothing(stage):
    async with stage.leading(), stage.retinue.events() as watcher:
        stage.go_on.set()
        await until_told(watcher, is_end)
        answer = await stage.delegations[0].call(SPAWN, "toolu_1", WORK)
        assert answer == DelegationAnswer(RUN_ENDED, is_error=True)
        assert watcher.drain() == ()


async def test_partial_results_belong_to_the_calling_run_despite_equal_call_ids(stage):
    stage.worker_waits = True
    shown: list[ToolResult] = []

    async def show(result: ToolResult) -> None:
        shown.append(result)

    async with stage.retinue as retinue, retinue.events() as watcher, anyio.create_task_group() as group:
        spawn, call = retinue.toolset("nested").handlers[SPAWN], retinue.call("nested", parent_call="toolu_1")
        below = structs.replace(call, lineage=structs.replace(call.lineage, parent_run="a" * 32, depth=1))
        group.start_soon(spawn, {"mode": "chain", "tasks": [{"agent": "explorer", "task": "mine"}]}, call, show)
        await until_told(watcher, lambda event: isinstance(event, RunStarted))
        group.start_soon(spawn, {"agent": "explorer", "task": "theirs"}, below, None)
        await until_told(watcher, lambda event: isinstance(event, RunQueued) and event.task == "theirs")
        retinue.stop_all()
    assert {one["task"] for result in shown for one in result.details["results"]} == {"mine"}


@BACKENDS
async def test_concurrent_calls_share_the_slot_of_their_parent(stage):
    async with stage.leading() as home:
        answers: list[str] = []

        async def one(number: int) -> None:
            async with calling(home) as (caller, _):
                answer = await caller.ask(
                    **work(call="the same", arguments={"agent": "explorer", "task": f"{number}"})
                )
                answers.append(answer["result"]["content"][0]["text"])

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(one, number)
        assert sorted(answers) == [f"worked: {number}" for number in range(8)]
