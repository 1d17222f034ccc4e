"""Runs on pi that are told something while they work, on a pi that does as it is told."""

from contextlib import asynccontextmanager

import anyio
import pytest
from tests.support.fake_pi import action as do
from tests.support.pi_setup import OLD, ended, pi_stage, play, reported, until_told

from retinue import Agent
from retinue.model.errors import ErrorCode, RefusedError
from retinue.model.events import AttemptStarted, Notice, SteeringDelivered, Text, ToolCalled

pytestmark = pytest.mark.process

HALF = do("say", "half")


class Scene:
    def __init__(self, retinue, run):
        self.retinue, self.run, self.results = retinue, run, []

    @property
    def result(self):
        (result,) = self.results
        return result

    async def events(self, *kinds):
        return [s.event async for s in self.retinue.history(self.run) if isinstance(s.event, kinds)]


@asynccontextmanager
async def at_work(retinue, *deeds, since=Text, **options):
    """A run of an open Retinue, from its first event of this kind on."""
    scene = Scene(retinue, "")

    async def work():
        scene.results.append(await play(retinue, *deeds, ask="look", **options))

    async with anyio.create_task_group() as group:
        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            scene.run = (await until_told(events, lambda event: isinstance(event, since))).origin.run
        yield scene


async def refusal(work):
    with pytest.raises(RefusedError) as caught:
        await work
    return caught.value.failure


async def pid(retinue):
    return reported(await play(retinue, do("report")))["pid"]


async def test_what_is_said_reaches_the_agent_and_its_process_serves_the_next_run(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        async with at_work(retinue, HALF, do("hear"), do("report")) as scene:
            await retinue.steer(scene.run, "look into tests, too")
        assert reported(scene.result)["prompts"] == ["look", "look into tests, too"]
        first, steered, _ = await scene.events(Text, SteeringDelivered)
        assert (first, steered) == (Text("half"), SteeringDelivered("look into tests, too"))
        assert await pid(retinue) == before


async def test_what_looks_like_a_command_of_pis_is_only_text(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        at_work(retinue, HALF, do("hear"), do("report")) as scene,
    ):
        await retinue.steer(scene.run, "/retinue_configure {}")
    assert reported(scene.result)["prompts"] == ["look", "/retinue_configure {}"]
    assert await scene.events(SteeringDelivered) == [SteeringDelivered("/retinue_configure {}")]


async def test_texts_are_given_in_the_order_they_were_said(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        at_work(retinue, HALF, do("hear"), do("hear"), do("report")) as scene,
    ):
        await retinue.steer(scene.run, "x" * 300_000)
        await retinue.steer(scene.run, "two")
    assert reported(scene.result)["prompts"] == ["look", "x" * 300_000, "two"]
    assert [len(event.text) for event in await scene.events(SteeringDelivered)] == [300_000, 3]


async def test_what_is_said_while_pi_starts_waits_for_it(scratch_home):
    async with (
        pi_stage(scratch_home, do("pause", 0.3)) as retinue,
        at_work(retinue, do("hear"), do("report"), since=AttemptStarted) as scene,
    ):
        while True:
            try:
                await retinue.steer(scene.run, "early")
            except RefusedError:  # the engine has not been called yet
                await anyio.lowlevel.checkpoint()
            else:
                break
    assert reported(scene.result)["prompts"] == ["look", "early"]


async def test_what_pi_does_not_take_is_refused_in_its_words_and_the_run_goes_on(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        at_work(retinue, HALF, do("hear", refuse="The queue is full."), do("say", "done")) as scene,
    ):
        failure = await refusal(retinue.steer(scene.run, "more"))
    assert (failure.code, failure.message) == (ErrorCode.ENGINE, "pi did not take it: The queue is full.")
    assert (scene.result.text, scene.result.actual.notices) == ("done", ())


async def test_what_comes_as_pi_settles_is_refused_and_no_other_run_hears_of_it(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        async with at_work(retinue, HALF, do("hear", settle=True)) as scene:
            failure = await refusal(retinue.steer(scene.run, "too late"))
        assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "not_at_work")
        assert scene.result.text == "half"
        assert await pid(retinue) != before


async def test_what_pi_took_and_never_gave_its_agent_is_told_and_no_other_run_hears_of_it(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        async with at_work(retinue, HALF, do("hear", drop=True), do("pause", 0.2), do("say", "done")) as scene:
            await retinue.steer(scene.run, "more")
        assert await scene.events(SteeringDelivered) == []
        sentence = "The run ended before its agent was given what it was told: more"
        assert Notice("steer_missed", sentence) in await scene.events(Notice)
        assert await pid(retinue) != before


@pytest.mark.parametrize("end", [do("exit", 3), do("die", "KILL")])
async def test_who_speaks_to_a_pi_that_dies_is_told(scratch_home, end):
    async with (
        pi_stage(scratch_home) as retinue,
        at_work(retinue, HALF, do("pause", 0.2), end) as scene,
    ):
        failure = await refusal(retinue.steer(scene.run, "more"))
    assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "not_at_work")


async def test_who_speaks_to_a_pi_that_is_stopped_meanwhile_is_told(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        at_work(retinue, do("call", "read"), do("hang", deaf=True), since=ToolCalled) as scene,
    ):
        failures = []

        async def steer():
            failures.append(await refusal(retinue.steer(scene.run, "more")))

        async with anyio.create_task_group() as group:
            group.start_soon(steer)
            await anyio.lowlevel.checkpoint()
            retinue.stop(scene.run)
    assert [failure.reason for failure in failures] == ["not_at_work"]
    assert ended(scene.result)[0] is ErrorCode.ABORTED


async def test_whoever_leaves_while_he_speaks_leaves_no_half_line(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        at_work(retinue, HALF, do("pause", 0.3), do("hear"), do("hear"), do("report")) as scene,
    ):
        with anyio.move_on_after(0.1):
            await retinue.steer(scene.run, "x" * 300_000)
        await retinue.steer(scene.run, "two")
    assert reported(scene.result)["prompts"] == ["look", "x" * 300_000, "two"]


async def test_a_pi_that_takes_no_commands_takes_no_words(scratch_home):
    agent = Agent(name="own", extra_args=("--thinking", "low"))
    for options in ({"version": OLD}, {"agents": [agent]}):
        async with (
            pi_stage(scratch_home, **options) as retinue,
            at_work(
                retinue, HALF, do("pause", 0.3), do("say", "done"), agent="own" if "agents" in options else None
            ) as scene,
        ):
            failure = await refusal(retinue.steer(scene.run, "more"))
        assert failure.code is ErrorCode.UNSUPPORTED
        assert failure.message.startswith("This pi takes nothing while its agent works: it is older than 0.87")
        assert scene.result.text == "done"
        (scratch_home / "bin" / "package.json").unlink(missing_ok=True)


async def test_an_answer_is_no_end_while_pi_has_something_to_say_to_its_agent(scratch_home):
    """The time to say goodbye after an answer does not count for what follows a steer."""
    answer = (do("say", "early"), do("hear"), do("pause", 2.5), do("say", "better"))
    async with pi_stage(scratch_home) as retinue, at_work(retinue, *answer) as scene:
        await retinue.steer(scene.run, "better, please")
    assert (scene.result.text, scene.result.failure) == ("better", None)
