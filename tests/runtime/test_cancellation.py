"""Cancellation at any moment: a started run has exactly one end, as its last event, and holds no lease or slot."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from msgspec import structs
from tests.support.retinue_factory import VIRTUAL_TIME, scripted, stage

from retinue import Agent
from retinue.client import Retinue
from retinue.engines.base import engine_error
from retinue.engines.scripted import HangStep, RunCallback, ScriptedEngine, WaitStep, call, reply
from retinue.model.errors import ErrorCode, RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded
from retinue.model.results import RunResult
from retinue.model.tasks import Plan, Task
from retinue.sessions.memory import MemoryStore

SCRIPT = (reply("first", stop_reason="length"), call("read", path="x", returns="y"), WaitStep(0), reply("done"))


async def stored(retinue: Retinue) -> AsyncIterator[list[EventRecord]]:
    for summary in await retinue.sessions():
        yield [stamped async for stamped in retinue.history(summary.session)]


async def cancelled_after(turns: int, retinue: Retinue, work: Callable[..., Any]) -> bool:
    """Do the work, cancel it after so many loop iterations, and return whether it was still running."""
    async with anyio.create_task_group() as group:

        async def cancel() -> None:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

        group.start_soon(cancel)
        await work()
        group.cancel_scope.cancel()
        return False
    return True


@pytest.mark.parametrize("kind", ["memory", "files"])
async def test_cancelling_at_any_moment_leaves_one_end_and_no_lease(scratch_home, tmp_path, kind):
    outcomes = set()
    for turns in range(60):
        state = tmp_path / str(turns)
        store = MemoryStore() if kind == "memory" else None
        async with stage(scratch_home, *SCRIPT, store=store, state=state) as retinue:
            outcomes.add(await cancelled_after(turns, retinue, lambda r=retinue: r.delegate([("explorer", "x")] * 5)))
            async for events in stored(retinue):
                assert [isinstance(s.event, RunEnded) for s in events].count(True) == 1, f"after {turns} turns"
                assert isinstance(events[-1].event, RunEnded)
                assert [s.seq for s in events] == list(range(1, len(events) + 1))
                assert not await retinue._store.is_locked(events[0].origin.session)
    assert True in outcomes


@VIRTUAL_TIME
async def test_cancelling_at_any_moment_leaves_one_end_on_trio_too(scratch_home):
    for turns in range(60):
        async with stage(scratch_home, *SCRIPT) as retinue:
            await cancelled_after(turns, retinue, lambda r=retinue: r.delegate([("explorer", "x")] * 5))
            async for events in stored(retinue):
                assert [isinstance(s.event, RunEnded) for s in events].count(True) == 1, f"after {turns} turns"
                assert isinstance(events[-1].event, RunEnded)


async def test_published_events_equal_stored_events_after_a_cancelled_call(scratch_home, tmp_path):
    for turns in range(0, 60, 3):
        async with stage(scratch_home, *SCRIPT, store=None, state=tmp_path / str(turns)) as retinue:
            async with retinue.events(deltas=False) as watcher:
                await cancelled_after(turns, retinue, lambda r=retinue: r.run("explorer", "x"))
                seen = watcher.drain()
            async for events in stored(retinue):
                assert list(seen) == events, f"after {turns} turns"


@pytest.mark.parametrize("kind", ["memory", "files"])
async def test_leaving_the_block_ends_active_runs(scratch_home, tmp_path, kind):
    results: list[RunResult] = []
    store = MemoryStore() if kind == "memory" else None
    retinue = stage(scratch_home, reply("half", stop_reason="length"), HangStep(), store=store, state=tmp_path / "s")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:

            async def work() -> None:
                results.extend(await retinue.delegate([("explorer", "x")] * 6))

            async with retinue, retinue.events() as events:
                group.start_soon(work)
                async for stamped in events:
                    if stamped.event.__struct_config__.tag == "message_ended":
                        break
    assert [(r.failure and r.failure.code) for r in results] == [ErrorCode.ABORTED] * 6


@VIRTUAL_TIME
async def test_stop_all_prevents_the_remaining_steps_of_a_chain(scratch_home):
    steps = []

    def script(spec):
        steps.append(spec.task)

        async def stop() -> None:
            retinue.stop_all()

        return [reply("answered"), RunCallback(stop), HangStep()]

    async with stage(scratch_home, script) as retinue:
        results = await retinue.chain([("explorer", "one"), ("explorer", "two"), ("explorer", "three")])
    assert (steps, [r.text for r in results]) == (["one"], ["answered"])


async def test_cancelling_while_opening_closes_all_opened_parts(scratch_home, tmp_path):
    class Slow(MemoryStore):
        async def recover(self):
            await anyio.sleep_forever()
            return ()

    with anyio.move_on_after(0.01) as scope:
        async with stage(scratch_home, store=Slow()):
            pass
    assert scope.cancelled_caught


async def test_closed_retinue_runs_nothing_and_can_be_opened_again(scratch_home, tmp_path):
    retinue = stage(scratch_home, reply("ok"), store=None, state=tmp_path / "s")
    with pytest.raises(RuntimeError, match="Open this Retinue with `async with` first"):
        await retinue.run("explorer", "x")
    for _ in range(2):
        async with retinue:
            assert (await retinue.run("explorer", "x")).failure is None
    assert len(await retinue.sessions()) == 2


@VIRTUAL_TIME
@pytest.mark.parametrize("ending", ["timeout", "stop"])
async def test_engine_error_during_a_stop_does_not_replace_the_reason(scratch_home, ending):
    class Clumsy:
        async def run(self, spec, emit) -> None:
            try:
                if ending == "stop":
                    retinue.stop_all()
                await anyio.sleep_forever()
            finally:
                raise engine_error("the child would not go")

    table = scripted(ScriptedEngine())
    kind = table["scripted"]
    engines = {"scripted": structs.replace(kind, make=Clumsy)}
    async with stage(scratch_home, engines=engines) as retinue:
        result = await retinue.run("explorer", "x", idle_timeout=0)
    expected = {"timeout": (ErrorCode.TIMEOUT, 124), "stop": (ErrorCode.ABORTED, 130)}[ending]
    assert result.failure and (result.failure.code, result.exit_code) == expected


async def test_engine_that_cannot_be_created_fails_only_its_run(scratch_home):
    def broken():
        raise ImportError("no such module")

    kind = scripted(ScriptedEngine(reply("ok")))["scripted"]
    engines = {"scripted": kind, "broken": structs.replace(kind, name="broken", make=broken)}
    async with stage(scratch_home, engines=engines, agents=[Agent(name="a", engine="broken")]) as retinue:
        call = structs.replace(retinue.call("fanout"), settings={})
        tasks = (Task(agent="explorer", prompt="x"), Task(agent="a", prompt="x"))
        good, bad = await retinue.run_plan(Plan(tasks=tasks), call)
    assert good.failure is None
    assert bad.failure and (bad.failure.code, bad.failure.reason) == (ErrorCode.ENGINE, "crashed")


async def test_unreadable_record_keeps_the_original_failure(scratch_home):
    class Forgetful(MemoryStore):
        def events(self, session, *, run=None):
            raise RefusedError(engine_error("unreadable", code=ErrorCode.STORAGE).failure)

    async with stage(scratch_home, reply("just text"), store=Forgetful()) as retinue:
        plan = Plan(tasks=(Task(agent="explorer", prompt="x"),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested", finalize=True))
    assert result.failure and result.failure.code is ErrorCode.NOT_FINALIZED
