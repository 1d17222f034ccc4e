"""Steering of runs on a scripted Claude Code."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.claude_setup import claude_stage, deeds
from tests.support.pi_setup import until_told

from retinue.model.errors import ErrorCode, RefusedError
from retinue.model.events import Notice, SteeringDelivered, Text, ToolCalled

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


class SteeredRun:
    def __init__(self, retinue):
        self.retinue, self.run, self.results = retinue, "", []

    @property
    def result(self):
        (result,) = self.results
        return result

    async def events(self, *kinds):
        return [s.event async for s in self.retinue.history(self.run) if isinstance(s.event, kinds)]


@asynccontextmanager
async def open_run(home, *given):
    """Yield a run after its first tool call."""
    async with claude_stage(home) as retinue, anyio.create_task_group() as group:
        steered = SteeredRun(retinue)

        async def work():
            steered.results.append(await retinue.run("explorer", deeds(*given)))

        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            steered.run = (await until_told(events, lambda event: isinstance(event, ToolCalled))).origin.run
        yield steered


async def refusal(work):
    with pytest.raises(RefusedError) as caught:
        await work
    return caught.value.failure


async def test_steering_reaches_the_agent(scratch_home):
    async with open_run(scratch_home, {"call": "Read"}, {"hear": "now"}, {"say": "I heard: {heard}"}) as steered:
        await steered.retinue.steer(steered.run, "mind the gap")
    assert (steered.result.text, steered.result.actual.notices) == ("I heard: mind the gap", ())
    assert await steered.events(SteeringDelivered, Text) == [
        SteeringDelivered("mind the gap"),
        Text("I heard: mind the gap"),
    ]


async def test_steering_after_the_last_turn_starts_another(scratch_home):
    script = ({"call": "Read"}, {"say": "early"}, {"hear": "late"}, {"pause": 2.5}, {"say": "I heard: {heard}"})
    async with open_run(scratch_home, *script) as steered:
        await steered.retinue.steer(steered.run, "better, please")
    assert (steered.result.failure, steered.result.text) == (None, "I heard: better, please")
    assert await steered.events(SteeringDelivered, Text) == [
        Text("early"),
        SteeringDelivered("better, please"),
        Text("I heard: better, please"),
    ]


async def test_undelivered_steering_is_reported_with_the_result(scratch_home):
    async with open_run(scratch_home, {"call": "Read"}, {"hear": "drop"}, {"pause": 0.2}, {"say": "done"}) as steered:
        await steered.retinue.steer(steered.run, "mind the gap")
    assert (steered.result.failure, steered.result.text) == (None, "done")
    notices = [event.code for event in await steered.events(Notice)]
    assert "steer_missed" in notices


async def test_steering_of_a_dying_process_is_refused(scratch_home):
    async with open_run(scratch_home, {"call": "Read"}, {"pause": 0.2}, {"exit": 3}) as steered:
        failure = await refusal(steered.retinue.steer(steered.run, "mind the gap"))
    assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "not_at_work")


async def test_steering_of_a_run_being_stopped_is_refused(scratch_home):
    reasons = set()

    async def steer(steered):
        reasons.add((await refusal(steered.retinue.steer(steered.run, "mind the gap"))).reason)

    script = ({"stay": True}, {"call": "Read"}, {"hang": True})
    async with open_run(scratch_home, *script) as steered, anyio.create_task_group() as group:
        steered.retinue.stop(steered.run)
        while not steered.results:
            group.start_soon(steer, steered)
            await anyio.sleep(0.05)
    assert steered.result.failure.code is ErrorCode.ABORTED
    assert "not_at_work" in reasons
    assert reasons <= {"not_at_work", "ended"}, "the last of them may come when it has ended"
