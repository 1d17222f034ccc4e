"""Opening and closing a `Retinue`: by any task on asyncio, by the same task on trio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.support.retinue_factory import stage

from retinue.client import Retinue
from retinue.engines.scripted import HangStep, Step, reply
from retinue.model.errors import ErrorCode
from retinue.model.events import RunStarted
from retinue.model.results import RunResult

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def stored(home: Path, *script: Step) -> Retinue:
    """A Retinue with files, tasks and a socket of its own, as programs use it."""
    return stage(home, *script, store=None, state=home / "state")


async def tasks_left() -> int:
    """Return how many asyncio tasks there are beside this one and the one that waits for it."""
    await asyncio.sleep(0)
    return len(asyncio.all_tasks())


async def test_three_tasks_can_open_use_and_close_one_retinue(scratch_home):
    retinue, before = stored(scratch_home, reply("ok")), await tasks_left()
    await asyncio.create_task(retinue.open())
    result = await asyncio.create_task(retinue.run("explorer", "Look"))
    await asyncio.create_task(retinue.close())
    assert (result.failure, result.text, await tasks_left()) == (None, "ok", before)
    with pytest.raises(RuntimeError, match="Open this Retinue"):
        await retinue.run("explorer", "Look")


def test_a_fixture_whose_parts_run_in_tasks_of_their_own_works(scratch_home):
    """Run set-up, test and teardown as three tasks, as pytest-asyncio runs an async generator fixture."""

    async def fixture() -> AsyncIterator[Retinue]:
        async with stored(scratch_home, reply("ok")) as retinue:
            yield retinue

    async def next_of(generator: AsyncIterator[Retinue]) -> Retinue:
        return await anext(generator)

    with asyncio.Runner() as runner:
        generator = fixture()
        retinue = runner.run(next_of(generator))
        assert runner.run(retinue.run("explorer", "Look")).text == "ok"
        with pytest.raises(StopAsyncIteration):
            runner.run(next_of(generator))
        assert asyncio.all_tasks(runner.get_loop()) == set()


def test_notebook_cells_open_use_and_close_two_retinues(scratch_home, tmp_path):
    first, second = stored(scratch_home, reply("first")), stored(tmp_path, reply("second"))
    with asyncio.Runner() as runner:
        for retinue in (first, second):
            runner.run(retinue.open())
        texts = [runner.run(retinue.run("explorer", "Look")).text for retinue in (first, second)]
        runner.run(first.close())
        texts.append(runner.run(second.run("explorer", "Look")).text)
        runner.run(second.close())
        assert asyncio.all_tasks(runner.get_loop()) == set()
    assert texts == ["first", "second", "second"]


async def test_closing_in_another_task_stops_active_runs(scratch_home):
    retinue = stored(scratch_home, HangStep())
    await asyncio.create_task(retinue.open())
    async with retinue.events(deltas=False) as events:
        running: asyncio.Task[RunResult] = asyncio.create_task(retinue.run("explorer", "Look"))
        async for record in events:
            if isinstance(record.event, RunStarted):
                break
    await asyncio.create_task(retinue.close())
    result = await running
    assert result.failure
    assert result.failure.code is ErrorCode.ABORTED


@BOTH
async def test_exception_in_the_block_is_raised_unchanged(scratch_home):
    with pytest.raises(KeyError):
        async with stored(scratch_home, reply("ok")):
            raise KeyError("mine")


@BOTH
async def test_cancelled_block_is_closed_and_leaves_no_task(scratch_home):
    retinue = stored(scratch_home, reply("ok"))
    with anyio.CancelScope() as scope:
        async with retinue:
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    async with retinue:
        assert (await retinue.run("explorer", "Look")).text == "ok"


async def test_a_task_that_is_cancelled_while_it_opens_leaves_nothing_open(scratch_home):
    retinue, before = stored(scratch_home, reply("ok")), await tasks_left()
    for steps in range(6):
        opening = asyncio.create_task(retinue.open())
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait({opening})
        await retinue.close()
        assert await tasks_left() == before


async def test_a_task_that_is_cancelled_while_it_closes_closes_all_the_same(scratch_home):
    retinue, before = stored(scratch_home, reply("ok")), await tasks_left()
    await asyncio.create_task(retinue.open())
    closing = asyncio.create_task(retinue.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    assert await tasks_left() == before


def test_end_of_the_event_loop_closes_an_open_retinue(scratch_home):
    retinue = stored(scratch_home, reply("ok"))
    asyncio.run(retinue.open())
    with pytest.raises(RuntimeError, match="Open this Retinue"):
        asyncio.run(retinue.run("explorer", "Look"))
    asyncio.run(retinue.close())
    assert list((scratch_home / "state" / "leases").glob("*")) == []


@BOTH
async def test_opening_an_open_retinue_raises_and_leaves_it_open(scratch_home):
    async with stored(scratch_home, reply("ok")) as retinue:
        with pytest.raises(RuntimeError, match="This Retinue is already open"):
            await retinue.open()
        assert (await retinue.run("explorer", "Look")).text == "ok"


@BOTH
async def test_exception_while_opening_is_raised_unchanged(scratch_home):
    class BrokenError(Exception):
        pass

    class BrokenStore:
        async def recover(self) -> None:
            raise BrokenError

    with pytest.raises(BrokenError):
        async with stage(scratch_home, store=BrokenStore()):
            pass


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_closing_in_another_task_on_trio_raises(scratch_home):
    raised: list[str] = []

    async def close() -> None:
        try:
            await retinue.close()
        except RuntimeError as error:
            raised.append(str(error))

    async with stored(scratch_home, reply("ok")) as retinue:
        async with anyio.create_task_group() as group:
            group.start_soon(close)
        assert (await retinue.run("explorer", "Look")).text == "ok"
    (sentence,) = raised
    assert sentence == (
        "This Retinue was opened by another task and is still open. On trio, close it in the task that opened it; "
        "on asyncio any task may."
    )


@BOTH
async def test_closing_a_closed_retinue_does_nothing(scratch_home):
    retinue = stored(scratch_home, reply("ok"))
    await retinue.close()
    async with retinue:
        await retinue.close()
    await retinue.close()
