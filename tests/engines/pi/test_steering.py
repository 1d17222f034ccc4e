"""Steering of runs on a scripted pi."""

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


class SteeredRun:
    def __init__(self, retinue, run):
        self.retinue, self.run, self.results = retinue, run, []

    @property
    def result(self):
        (result,) = self.results
        return result

    async def events(self, *kinds):
        return [s.event async for s in self.retinue.history(self.run) if isinstance(s.event, kinds)]


@asynccontextmanager
async def open_run(retinue, *deeds, since=Text, **options):
    """Yield a run of an open Retinue once it has emitted its first event of this kind."""
    steered = SteeredRun(retinue, "")

    async def work():
        steered.results.append(await play(retinue, *deeds, ask="look", **options))

    async with anyio.create_task_group() as group:
        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            steered.run = (await until_told(events, lambda event: isinstance(event, since))).origin.run
        yield steered


async def refusal(work):
    with pytest.raises(RefusedError) as caught:
        await work
    return caught.value.failure


async def pid(retinue):
    return reported(await play(retinue, do("report")))["pid"]


async def test_steering_reaches_the_agent_and_the_process_is_reused(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        async with open_run(retinue, HALF, do("wait_for_steering"), do("report")) as steered:
            await retinue.steer(steered.run, "look into tests, too")
        assert reported(steered.result)["prompts"] == ["look", "look into tests, too"]
        first, steered, _ = await steered.events(Text, SteeringDelivered)
        assert (first, steered) == (Text("half"), SteeringDelivered("look into tests, too"))
        assert await pid(retinue) == before


async def test_steering_that_looks_like_a_pi_command_is_plain_text(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        open_run(retinue, HALF, do("wait_for_steering"), do("report")) as steered,
    ):
        await retinue.steer(steered.run, "/retinue_configure {}")
    assert reported(steered.result)["prompts"] == ["look", "/retinue_configure {}"]
    assert await steered.events(SteeringDelivered) == [SteeringDelivered("/retinue_configure {}")]


async def test_steering_messages_are_delivered_in_order(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        open_run(retinue, HALF, do("wait_for_steering"), do("wait_for_steering"), do("report")) as steered,
    ):
        await retinue.steer(steered.run, "x" * 300_000)
        await retinue.steer(steered.run, "two")
    assert reported(steered.result)["prompts"] == ["look", "x" * 300_000, "two"]
    assert [len(event.text) for event in await steered.events(SteeringDelivered)] == [300_000, 3]


async def test_steering_during_the_start_of_pi_waits(scratch_home):
    async with (
        pi_stage(scratch_home, do("pause", 0.3)) as retinue,
        open_run(retinue, do("wait_for_steering"), do("report"), since=AttemptStarted) as steered,
    ):
        while True:
            try:
                await retinue.steer(steered.run, "early")
            except RefusedError:  # the engine has not been called yet
                await anyio.lowlevel.checkpoint()
            else:
                break
    assert reported(steered.result)["prompts"] == ["look", "early"]


async def test_steering_refused_by_pi_is_refused_with_its_reason(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        open_run(retinue, HALF, do("wait_for_steering", refuse="The queue is full."), do("say", "done")) as steered,
    ):
        failure = await refusal(retinue.steer(steered.run, "more"))
    assert (failure.code, failure.message) == (ErrorCode.ENGINE, "pi did not accept the message: The queue is full.")
    assert (steered.result.text, steered.result.actual.notices) == ("done", ())


async def test_steering_at_the_end_of_a_run_is_refused_and_reaches_no_other_run(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        async with open_run(retinue, HALF, do("wait_for_steering", settle=True)) as steered:
            failure = await refusal(retinue.steer(steered.run, "too late"))
        assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "not_at_work")
        assert steered.result.text == "half"
        assert await pid(retinue) != before


async def test_undelivered_steering_is_reported_and_reaches_no_other_run(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        before = await pid(retinue)
        async with open_run(
            retinue, HALF, do("wait_for_steering", drop=True), do("pause", 0.2), do("say", "done")
        ) as steered:
            await retinue.steer(steered.run, "more")
        assert await steered.events(SteeringDelivered) == []
        sentence = "The run ended before the agent received this message: more"
        assert Notice("steer_missed", sentence) in await steered.events(Notice)
        assert await pid(retinue) != before


@pytest.mark.parametrize("end", [do("exit", 3), do("die", "KILL")])
async def test_steering_of_a_dying_pi_is_refused(scratch_home, end):
    async with (
        pi_stage(scratch_home) as retinue,
        open_run(retinue, HALF, do("pause", 0.2), end) as steered,
    ):
        failure = await refusal(retinue.steer(steered.run, "more"))
    assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "not_at_work")


async def test_steering_of_a_run_being_stopped_is_refused(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        open_run(retinue, do("call", "read"), do("hang", deaf=True), since=ToolCalled) as steered,
    ):
        failures = []

        async def steer():
            failures.append(await refusal(retinue.steer(steered.run, "more")))

        async with anyio.create_task_group() as group:
            group.start_soon(steer)
            await anyio.lowlevel.checkpoint()
            retinue.stop(steered.run)
    assert [failure.reason for failure in failures] == ["not_at_work"]
    assert ended(steered.result)[0] is ErrorCode.ABORTED


async def test_cancelled_steering_leaves_no_partial_line(scratch_home):
    async with (
        pi_stage(scratch_home) as retinue,
        open_run(
            retinue, HALF, do("pause", 0.3), do("wait_for_steering"), do("wait_for_steering"), do("report")
        ) as steered,
    ):
        with anyio.move_on_after(0.1):
            await retinue.steer(steered.run, "x" * 300_000)
        await retinue.steer(steered.run, "two")
    assert reported(steered.result)["prompts"] == ["look", "x" * 300_000, "two"]


async def test_pi_without_rpc_refuses_steering(scratch_home):
    agent = Agent(name="own", extra_args=("--thinking", "low"))
    for options in ({"version": OLD}, {"agents": [agent]}):
        async with (
            pi_stage(scratch_home, **options) as retinue,
            open_run(
                retinue, HALF, do("pause", 0.3), do("say", "done"), agent="own" if "agents" in options else None
            ) as steered,
        ):
            failure = await refusal(retinue.steer(steered.run, "more"))
        assert failure.code is ErrorCode.UNSUPPORTED
        assert failure.message.startswith("This pi cannot steer a running agent: it is older than 0.87")
        assert steered.result.text == "done"
        (scratch_home / "bin" / "package.json").unlink(missing_ok=True)


async def test_run_continues_after_an_answer_while_steering_is_pending(scratch_home):
    """The grace period after an answer does not count while steering is pending."""
    answer = (do("say", "early"), do("wait_for_steering"), do("pause", 2.5), do("say", "better"))
    async with pi_stage(scratch_home) as retinue, open_run(retinue, *answer) as steered:
        await retinue.steer(steered.run, "better, please")
    assert (steered.result.text, steered.result.failure) == ("better", None)
