"""A process that was suspended: the time is not the run's, and what its agent has written is read. Time is virtual."""

import math

import pytest
import trio
from tests.support.retinue_factory import VIRTUAL_TIME, stage
from trio.testing import MockClock

from retinue.engines.base import Completion
from retinue.engines.scripted import HangStep, RunCallback, WaitStep, call, reply
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import ToolCalled

pytestmark = VIRTUAL_TIME


def suspend(seconds: float) -> RunCallback:
    """Return a step during which the clock goes on and nothing runs."""

    async def jump() -> None:
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)

    return RunCallback(jump)


async def run(home, *script, **settings):
    async with stage(home, *script) as retinue:
        (result,) = await retinue.delegate([("explorer", "do it")], extend_timeout_debounce=0, **settings)
    return result


async def test_answer_that_was_written_during_a_suspension_past_the_timeout_completes_the_run(scratch_home):
    result = await run(scratch_home, WaitStep(10), suspend(3600), reply("in the pipe"), timeout=60)
    assert (result.failure, result.text) == (None, "in the pipe")


async def test_time_of_a_suspension_does_not_count_toward_the_timeout(scratch_home):
    result = await run(scratch_home, WaitStep(9.5), suspend(100.5), WaitStep(49), reply("made it"), timeout=60)
    assert (result.failure, result.elapsed) == (None, 159)
    assert result.actual.notices == (
        "Retinue itself could not run for 100s (suspended, or an overloaded machine); no timeout counts them.",
    )


async def test_hung_run_that_was_suspended_ends_after_its_timeout_without_the_suspension(scratch_home):
    result = await run(scratch_home, WaitStep(9.5), suspend(100.5), HangStep(), timeout=60)
    assert result.failure == Failure(
        ErrorCode.TIMEOUT,
        "Timed out after 60s. Consider resuming with a longer timeout. The run took 160s. "
        "Retinue itself could not run for 100s of them, which do not count.",
        detail={"timeout": 60.0, "elapsed": 160.0, "suspended": 100.0},
    )


async def test_idle_timeout_does_not_count_a_suspension(scratch_home):
    script = (WaitStep(10), suspend(500), WaitStep(170), reply("ok"))
    assert (await run(scratch_home, *script, idle_timeout=182, timeout=900)).failure is None


async def test_ceiling_moves_by_a_suspension(scratch_home):
    steps = [step for n in range(30) for step in (call("read", path=str(n)), WaitStep(29))]
    async with stage(scratch_home, WaitStep(10), suspend(1000), *steps, reply("ok")) as retinue:
        (result,) = await retinue.delegate([("explorer", "do it")], timeout=300, extend_timeout_debounce=30)
    assert result.failure is None


async def test_tool_that_hangs_after_a_suspension_gets_no_second_grace(scratch_home):
    script = (WaitStep(49.5), suspend(100.5), ToolCalled("c", "bash", {}), HangStep())
    async with stage(scratch_home, *script) as retinue:
        (result,) = await retinue.delegate([("explorer", "do it")], timeout=60, extend_timeout_debounce=30)
    assert result.failure
    assert (result.failure.code, result.elapsed) == (ErrorCode.TIMEOUT, 60 + 30 + 100)


async def test_engine_that_answered_before_a_suspension_may_still_return(scratch_home):
    script = (Completion.PENDING, reply("done"), Completion.REPORTED, suspend(100), WaitStep(1))
    result = await run(scratch_home, *script, timeout=60)
    assert (result.failure, result.text, len(result.actual.notices)) == (None, "done", 1)


async def test_engine_that_emits_without_end_is_stopped_at_its_deadline(scratch_home):
    steps = [step for n in range(2000) for step in (WaitStep(0.01), reply(str(n), stop_reason="length"))]
    result = await run(scratch_home, *steps, timeout=10)
    assert result.failure
    assert (result.failure.code, result.elapsed) == (ErrorCode.TIMEOUT, pytest.approx(10, abs=0.02))


@pytest.mark.parametrize("offset", [-1e-3, -1e-6, -1e-9, 0.0, 1e-9, 1e-6, 1e-3])
async def test_answer_within_a_millisecond_of_the_deadline_ends_the_run_once(scratch_home, offset):
    async with stage(scratch_home, WaitStep(60 + offset), reply("just now")) as retinue:
        (result,) = await retinue.delegate([("explorer", "do it")], timeout=60, extend_timeout_debounce=0)
        ends = [each async for each in retinue.history(result.session) if each.event.__class__.__name__ == "RunEnded"]
    assert len(ends) == 1
    code = result.failure.code if result.failure else None
    assert (code, result.text) == (None, "just now") or (offset >= 0 and code is ErrorCode.TIMEOUT)
    assert math.isclose(result.elapsed, 60, abs_tol=2e-3)
