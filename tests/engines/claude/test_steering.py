"""Runs on Claude Code that are told something while they work, on one that does as it is told."""

from __future__ import annotations

from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.claude_setup import claude_stage, deeds
from tests.support.pi_setup import until_told

from retinue.model.errors import ErrorCode, RefusedError
from retinue.model.events import Notice, SteeringDelivered, Text, ToolCalled

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


class Scene:
    def __init__(self, retinue):
        self.retinue, self.run, self.results = retinue, "", []

    @property
    def result(self):
        (result,) = self.results
        return result

    async def events(self, *kinds):
        return [s.event async for s in self.retinue.history(self.run) if isinstance(s.event, kinds)]


@asynccontextmanager
async def at_work(home, *given):
    """A run from its first tool call on."""
    async with claude_stage(home) as retinue, anyio.create_task_group() as group:
        scene = Scene(retinue)

        async def work():
            scene.results.append(await retinue.run("explorer", deeds(*given)))

        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            scene.run = (await until_told(events, lambda event: isinstance(event, ToolCalled))).origin.run
        yield scene


async def refusal(work):
    with pytest.raises(RefusedError) as caught:
        await work
    return caught.value.failure


async def test_what_is_said_reaches_the_agent(scratch_home):
    async with at_work(scratch_home, {"call": "Read"}, {"hear": "now"}, {"say": "I heard: {heard}"}) as scene:
        await scene.retinue.steer(scene.run, "mind the gap")
    assert (scene.result.text, scene.result.actual.notices) == ("I heard: mind the gap", ())
    assert await scene.events(SteeringDelivered, Text) == [
        SteeringDelivered("mind the gap"),
        Text("I heard: mind the gap"),
    ]


async def test_what_is_said_too_late_for_a_turn_begins_another(scratch_home):
    script = ({"call": "Read"}, {"say": "early"}, {"hear": "late"}, {"pause": 2.5}, {"say": "I heard: {heard}"})
    async with at_work(scratch_home, *script) as scene:
        await scene.retinue.steer(scene.run, "better, please")
    assert (scene.result.failure, scene.result.text) == (None, "I heard: better, please")
    assert await scene.events(SteeringDelivered, Text) == [
        Text("early"),
        SteeringDelivered("better, please"),
        Text("I heard: better, please"),
    ]


async def test_what_the_agent_was_never_given_is_told_with_the_result(scratch_home):
    async with at_work(scratch_home, {"call": "Read"}, {"hear": "drop"}, {"pause": 0.2}, {"say": "done"}) as scene:
        await scene.retinue.steer(scene.run, "mind the gap")
    assert (scene.result.failure, scene.result.text) == (None, "done")
    notices = [event.code for event in await scene.events(Notice)]
    assert "steer_missed" in notices


async def test_who_speaks_to_one_that_dies_is_told(scratch_home):
    async with at_work(scratch_home, {"call": "Read"}, {"pause": 0.2}, {"exit": 3}) as scene:
        failure = await refusal(scene.retinue.steer(scene.run, "mind the gap"))
    assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "not_at_work")


async def test_who_speaks_to_one_that_is_being_stopped_is_told(scratch_home):
    reasons = set()

    async def speak(scene):
        reasons.add((await refusal(scene.retinue.steer(scene.run, "mind the gap"))).reason)

    script = ({"stay": True}, {"call": "Read"}, {"hang": True})
    async with at_work(scratch_home, *script) as scene, anyio.create_task_group() as group:
        scene.retinue.stop(scene.run)
        while not scene.results:
            group.start_soon(speak, scene)
            await anyio.sleep(0.05)
    assert scene.result.failure.code is ErrorCode.ABORTED
    assert "not_at_work" in reasons
    assert reasons <= {"not_at_work", "ended"}, "the last of them may come when it has ended"
