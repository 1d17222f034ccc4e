"""Steering and extending runs while they work."""

from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec import structs
from tests.support.retinue_factory import VIRTUAL_TIME, stage

from retinue.engines.base import EngineInfo
from retinue.engines.scripted import (
    CAPABILITIES,
    HangStep,
    RunCallback,
    ScriptedEngine,
    WaitForSteering,
    WaitStep,
    call,
    fail,
    finalize,
    reply,
)
from retinue.model.errors import ErrorCode, RefusedError
from retinue.model.events import DeadlineExtended, Notice, RunQueued, SteeringDelivered, Text, Thinking
from retinue.model.results import Finalization, RunResult
from retinue.model.runs import Message
from retinue.model.tasks import Plan, Task
from retinue.runtime.active_run import STEERING_NOT_DELIVERED
from retinue.runtime.attempts import FINALIZE_REMINDER
from retinue.runtime.progress import CallProgress, SteeringItem
from retinue.runtime.run_registry import MAX_EXTENSION, MAX_STEERING_CHARS, MAX_STEERING_MESSAGES
from retinue.sessions.messages import load_messages
from retinue.transcripts.text import TextTranscript

AT_WORK = Thinking("at work")


class Scene:
    """A run with its result and its events."""

    def __init__(self, retinue, run):
        self.retinue = retinue
        self.run = run
        self.results = []

    @property
    def result(self):
        (result,) = self.results
        return result

    async def events(self, *kinds):
        return [s.event async for s in self.retinue.history(self.run) if isinstance(s.event, kinds or object)]


@asynccontextmanager
async def at_work(home, *script, **options):
    """Start a run and wait until its script works."""
    task = Task(agent="explorer", prompt="look", timeout=options.pop("timeout", None))
    finalize = options.pop("finalize", False)
    async with stage(home, *script, **options) as retinue, anyio.create_task_group() as group:
        scene = Scene(retinue, "")

        async def work():
            scene.results += await retinue.run_plan(Plan(tasks=(task,)), retinue.call("single", finalize=finalize))

        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            async for stamped in events:
                if isinstance(stamped.event, Thinking | Text):
                    scene.run = stamped.origin.run
                    break
        yield scene


async def refusal(work):
    with pytest.raises(RefusedError) as caught:
        await work
    return caught.value.failure


# -- steering --------------------------------------------------------------------------------------


async def test_steering_message_is_delivered_recorded_and_answered(scratch_home):
    async with at_work(scratch_home, AT_WORK, WaitForSteering(), reply("I was told: {steer}")) as scene:
        await scene.retinue.steer(scene.run, "look into tests, too")
    assert scene.result.text == "I was told: look into tests, too"
    events = await scene.events(Thinking, Text, SteeringDelivered)
    assert events == [AT_WORK, SteeringDelivered("look into tests, too"), Text("I was told: look into tests, too")]


async def test_steering_before_the_answer_makes_the_run_continue_after_it(scratch_home):
    """An answer does not end a run while a steering message is open: the grace period does not start."""
    heard = anyio.Event()
    script = (reply("early answer"), RunCallback(heard.wait), reply("better answer"))
    async with at_work(scratch_home, *script) as scene:
        await scene.retinue.steer(scene.run, "more")
        heard.set()
    assert (scene.result.text, scene.result.failure) == ("better answer", None)


@VIRTUAL_TIME
async def test_run_that_works_on_a_steering_message_is_not_ended_by_its_earlier_answer(scratch_home):
    async with at_work(
        scratch_home, reply("early answer"), WaitForSteering(), WaitStep(60), reply("better answer")
    ) as scene:
        await scene.retinue.steer(scene.run, "more")
    assert (scene.result.text, scene.result.elapsed) == ("better answer", 60)


async def test_secrets_in_steering_are_redacted_in_the_record_and_not_for_the_agent(scratch_home):
    key = "sk-ant-api03-" + "a" * 40
    heard = []
    engine = ScriptedEngine(AT_WORK, WaitForSteering(), reply("done"))

    class Listening:
        run = staticmethod(engine.run)

        async def steer(self, run, text):
            heard.append(text)
            return await engine.steer(run, text)

    kind = EngineInfo(name="scripted", capabilities=CAPABILITIES, make=Listening, not_installed_reason=lambda: None)
    async with at_work(scratch_home, engines={"scripted": kind}) as scene:
        await scene.retinue.steer(scene.run, f"use {key}")
    assert heard == [f"use {key}"]
    (steered,) = await scene.events(SteeringDelivered)
    assert "a" * 40 not in steered.text
    assert scene.result.actual.masks == 1


async def test_control_characters_are_removed_from_steering(scratch_home):
    async with at_work(scratch_home, AT_WORK, WaitForSteering(), reply("{steer}")) as scene:
        await scene.retinue.steer(scene.run, "  \x1b[31mred\x1b[0m\x00 and \ud800 half  ")
    assert scene.result.text == "red and \ufffd half"


@pytest.mark.parametrize("text", ["", "  \n", "\x00\x07", "\x1b[2J"])
async def test_empty_steering_is_refused(scratch_home, text):
    async with at_work(scratch_home, AT_WORK, WaitForSteering(), reply("{steer}")) as scene:
        failure = await refusal(scene.retinue.steer(scene.run, text))
        assert failure.code is ErrorCode.INVALID_INPUT
        assert failure.message == "The message is empty: write what the agent should know"
        await scene.retinue.steer(scene.run, "go on")
    assert scene.result.text == "go on"


async def test_a_text_longer_than_a_task_may_be_is_refused(scratch_home):
    async with at_work(
        scratch_home, AT_WORK, WaitForSteering(), reply("{steer}"), settings={"max_task_bytes": 10}
    ) as scene:
        failure = await refusal(scene.retinue.steer(scene.run, "ö" * 6))
        assert failure.code is ErrorCode.INVALID_INPUT
        assert failure.message.startswith("The text has 12 bytes; the limit is 10 (max_task_bytes).")
        await scene.retinue.steer(scene.run, "ö" * 5)
    assert scene.result.text == "ö" * 5


async def test_steering_of_one_run_is_limited_in_number_and_size(scratch_home):
    async with at_work(
        scratch_home, AT_WORK, RunCallback(anyio.sleep_forever), settings={"max_task_bytes": 2**30}
    ) as scene:
        await scene.retinue.steer(scene.run, "x" * (MAX_STEERING_CHARS - 1))
        failure = await refusal(scene.retinue.steer(scene.run, "yy"))
        assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "told_enough")
        await scene.retinue.steer(scene.run, "y")
        scene.retinue.stop_all()
    async with at_work(scratch_home, AT_WORK, RunCallback(anyio.sleep_forever)) as scene:
        for _ in range(MAX_STEERING_MESSAGES):
            await scene.retinue.steer(scene.run, "x")
        assert (await refusal(scene.retinue.steer(scene.run, "x"))).reason == "told_enough"
        scene.retinue.stop_all()


async def test_steering_an_unsteerable_engine_names_the_steerable_ones(scratch_home):
    go_on = anyio.Event()
    deaf = EngineInfo(
        name="scripted",
        capabilities=structs.replace(CAPABILITIES, steers=False),
        make=lambda: ScriptedEngine(AT_WORK, RunCallback(go_on.wait), reply("done")),
        not_installed_reason=lambda: None,
    )
    other = structs.replace(deaf, name="hearing", capabilities=CAPABILITIES)
    async with at_work(scratch_home, engines={"scripted": deaf, "hearing": other}) as scene:
        failure = await refusal(scene.retinue.steer(scene.run, "more"))
        go_on.set()
    assert failure.code is ErrorCode.UNSUPPORTED
    assert "The scripted engine cannot steer a running agent" in failure.message
    assert "Engines that can: hearing." in failure.message
    assert (scene.result.text, scene.result.actual.notices) == ("done", ())


async def test_ended_queued_or_unknown_runs_cannot_be_steered_or_extended(scratch_home):
    go_on = anyio.Event()
    async with stage(scratch_home, AT_WORK, RunCallback(go_on.wait), reply("done")) as retinue:
        async with anyio.create_task_group() as group, retinue.events(deltas=False) as events:
            two = [Task(agent="explorer", prompt="x"), Task(agent="explorer", prompt="y")]
            group.start_soon(lambda: retinue.delegate(two, max_concurrency=1))
            queued = []
            async for stamped in events:
                if isinstance(stamped.event, RunQueued):
                    queued.append(stamped.origin.run)
                if isinstance(stamped.event, Thinking) and len(queued) == 2:
                    waiting = next(run for run in queued if run != stamped.origin.run)
                    break
            steered = await refusal(retinue.steer(waiting, "more"))
            extended = await refusal(retinue.extend(waiting, 60))
            go_on.set()
        assert (steered.code, steered.reason) == (extended.code, extended.reason) == (ErrorCode.CONFLICT, "queued")
        assert steered.message == (
            f"Run {waiting[:8]} is queued: its agent has not started, and the message was not sent. Try again when "
            "the run has started."
        )
        for work in (retinue.steer(waiting, "more"), retinue.extend(waiting, 60)):
            failure = await refusal(work)
            assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "ended")
            assert failure.message == f"Run {waiting[:8]} has ended. Resume its session to continue."
        for work in (retinue.steer("f" * 32, "more"), retinue.extend("../..", 60)):
            failure = await refusal(work)
            assert failure.code is ErrorCode.SESSION_NOT_FOUND


async def test_steering_that_comes_too_late_is_reported_in_the_result(scratch_home):
    told = anyio.Event()
    async with at_work(scratch_home, AT_WORK, RunCallback(told.wait)) as scene:
        await scene.retinue.steer(scene.run, "too\nlate")
        told.set()
    assert await scene.events(SteeringDelivered) == []
    sentence = "The run ended before the agent received this message: too late"
    assert await scene.events(Notice) == [Notice("steer_missed", sentence)]
    assert scene.result.actual.notices == (sentence,)


async def test_steering_at_any_moment_is_refused_delivered_or_reported(scratch_home):
    script = (
        call("read", path="x"),
        WaitStep(0),
        WaitStep(0),
        reply("early"),
        WaitStep(0),
        WaitStep(0),
        reply("done"),
        WaitStep(0),
    )
    outcomes = set()
    for turns in range(40):
        async with stage(scratch_home, *script) as retinue, anyio.create_task_group() as group:
            results: list[RunResult] = []

            async def work(retinue=retinue, results=results):
                results.append(await retinue.run("explorer", "look"))

            async with retinue.events(deltas=False) as events:
                group.start_soon(work)
                run = (await anext(events)).origin.run
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            try:
                await retinue.steer(run, "more")
            except RefusedError as refused:
                expected = f"refused: {refused.failure.reason}"
            else:
                expected = "taken"
            while not results:
                await anyio.lowlevel.checkpoint()
            told = [s.event async for s in retinue.history(run) if isinstance(s.event, SteeringDelivered | Notice)]
        assert len(told) == (expected == "taken"), f"{expected} after {turns} turns, but {told}"
        outcomes |= {expected, *(type(event).__name__ for event in told)}
    assert {"taken", "SteeringDelivered", "refused: ended"} <= outcomes


@VIRTUAL_TIME
async def test_steering_of_a_failed_attempt_is_in_the_prompt_of_the_next(scratch_home):
    told, prompts = anyio.Event(), []
    scripts = ScriptedEngine.from_scripts(
        [AT_WORK, WaitForSteering(), fail("529 overloaded_error: Overloaded"), RunCallback(told.wait)],
        [reply("second try")],
    )

    def note_spec(spec):
        prompts.append(spec.prompt)
        return scripts.script_for(spec)

    async with at_work(scratch_home, note_spec) as scene:
        await scene.retinue.steer(scene.run, "heard")
        await scene.retinue.steer(scene.run, "not heard")
        told.set()
    assert prompts == ["look", "look\n\nheard\n\nnot heard"]
    assert await scene.events(SteeringDelivered) == [SteeringDelivered("heard"), SteeringDelivered("not heard")]
    assert scene.result.text == "second try"


@VIRTUAL_TIME
async def test_steering_is_in_a_prompt_only_once(scratch_home):
    told, prompts = [anyio.Event(), anyio.Event()], []
    failed = (fail("529 overloaded_error: Overloaded"),)
    scripts = ScriptedEngine.from_scripts(
        [AT_WORK, RunCallback(told[0].wait), *failed],
        [AT_WORK, RunCallback(told[1].wait), *failed],
        [reply("third try")],
    )

    def note_spec(spec):
        prompts.append(spec.prompt)
        return scripts.script_for(spec)

    async with at_work(scratch_home, note_spec, settings={"retry_attempts": 3}) as scene:
        for number, event in enumerate(told, 1):
            await anyio.sleep(10)  # longer than the pause before an attempt
            await scene.retinue.steer(scene.run, f"text {number}")
            event.set()
    assert prompts == ["look", "look\n\ntext 1", "look\n\ntext 1\n\ntext 2"]
    assert scene.result.text == "third try"


@VIRTUAL_TIME
async def test_finalize_correction_includes_undelivered_steering(scratch_home):
    told, prompts = anyio.Event(), []
    scripts = ScriptedEngine.from_scripts([reply("no finalization"), RunCallback(told.wait)], [finalize("final")])

    def note_spec(spec):
        prompts.append(spec.prompt)
        return scripts.script_for(spec)

    async with at_work(scratch_home, note_spec, finalize=True) as scene:
        await scene.retinue.steer(scene.run, "not heard")
        told.set()
    assert prompts == ["look", f"{FINALIZE_REMINDER}\n\nnot heard"]
    assert await scene.events(SteeringDelivered) == [SteeringDelivered("not heard")]
    assert scene.result.finalized == Finalization("SUCCESS", "final")


async def test_session_history_has_steering_where_it_was_delivered(scratch_home):
    script = (
        AT_WORK,
        call("read", path="a", returns="A"),
        WaitForSteering(),
        call("read", path="b", returns="B"),
        reply("done"),
    )
    async with at_work(scratch_home, *script) as scene:
        await scene.retinue.steer(scene.run, "read b, too")
        while not scene.results:
            await anyio.lowlevel.checkpoint()
        messages = await load_messages(scene.retinue._store, scene.run)
        transcript = TextTranscript()
        lines = [line async for s in scene.retinue.history(scene.run) for line in transcript.render(s)]
    roles = [message.role for message in messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "tool", "assistant"]
    assert messages[3] == Message(role="user", text="read b, too")
    assert "[steered]: read b, too" in lines


# -- extending -------------------------------------------------------------------------------------


@VIRTUAL_TIME
async def test_timeout_after_an_extension_names_the_new_limit_and_how_long_the_run_took(scratch_home):
    async with at_work(
        scratch_home, AT_WORK, HangStep(), timeout=100, settings={"extend_timeout_debounce": 30}
    ) as scene:
        await anyio.sleep(60)
        await scene.retinue.extend(scene.run, 50)
    message = "Timed out after 150s. Consider resuming with a longer timeout. The run took 180s."
    assert (scene.result.elapsed, scene.result.failure.message) == (180, message)


@VIRTUAL_TIME
async def test_extended_run_ends_that_much_later(scratch_home):
    async with at_work(scratch_home, AT_WORK, HangStep(), timeout=100) as scene:
        await anyio.sleep(60)
        assert await scene.retinue.extend(scene.run, 50) == 150
        assert await scene.retinue.extend(scene.run, 10.5) == 160.5
    assert scene.result.elapsed == 160.5
    assert scene.result.failure.code is ErrorCode.TIMEOUT
    assert scene.result.failure.message == "Timed out after 160.5s. Consider resuming with a longer timeout."
    assert await scene.events(DeadlineExtended) == [DeadlineExtended(50, 150), DeadlineExtended(10.5, 160.5)]
    limits = scene.result.actual.limits
    assert (limits.timeout, limits.ceiling) == (160.5, 160.5)


@VIRTUAL_TIME
async def test_run_that_needs_its_extension_completes(scratch_home):
    async with at_work(scratch_home, AT_WORK, WaitStep(170), reply("made it"), timeout=100) as scene:
        await scene.retinue.extend(scene.run, 150)
    assert (scene.result.failure, scene.result.text, scene.result.elapsed) == (None, "made it", 170)


@VIRTUAL_TIME
async def test_extension_does_not_change_the_idle_timeout(scratch_home):
    async with at_work(scratch_home, AT_WORK, HangStep(), timeout=100, settings={"idle_timeout": 30}) as scene:
        await scene.retinue.extend(scene.run, 1000)
    assert (scene.result.failure.code, scene.result.elapsed) == (ErrorCode.IDLE_TIMEOUT, 30)


@VIRTUAL_TIME
async def test_extension_does_not_prolong_the_grace_of_an_answered_run(scratch_home):
    async with at_work(scratch_home, AT_WORK, reply("done"), HangStep()) as scene:
        await anyio.sleep(1)
        await scene.retinue.extend(scene.run, 1000)
    assert (scene.result.text, scene.result.elapsed) == ("done", 2)


@VIRTUAL_TIME
async def test_stopping_run_cannot_be_extended(scratch_home):
    async def linger():
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)

    async with at_work(scratch_home, AT_WORK, RunCallback(linger), reply("done"), timeout=1) as scene:
        await anyio.sleep(2)
        failure = await refusal(scene.retinue.extend(scene.run, 60))
    assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "ending")
    assert await scene.events(DeadlineExtended) == []


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), -float("inf"), MAX_EXTENSION + 1, 10**400])
async def test_extension_must_be_positive_and_at_most_a_day(scratch_home, seconds):
    async with at_work(scratch_home, AT_WORK, WaitForSteering(), reply("done")) as scene:
        failure = await refusal(scene.retinue.extend(scene.run, seconds))
        assert (failure.code, failure.message) == (
            ErrorCode.INVALID_INPUT,
            "An extension must be more than 0 and at most 86400 seconds",
        )
        assert await scene.retinue.extend(scene.run, MAX_EXTENSION) == 900 + MAX_EXTENSION
        await scene.retinue.steer(scene.run, "go on")
    assert [event.timeout for event in await scene.events(DeadlineExtended)] == [900 + MAX_EXTENSION]


async def test_progress_shows_steering_and_the_extended_timeout(scratch_home):
    progress = CallProgress()
    async with at_work(scratch_home, AT_WORK, WaitForSteering(), reply("done")) as scene:
        await scene.retinue.extend(scene.run, 100)
        await scene.retinue.steer(scene.run, "more")
    async for stamped in scene.retinue.history(scene.run):
        progress = progress.apply(stamped)
    view = progress.runs[scene.run]
    assert view.timeout == 1000
    assert SteeringItem("more") in view.items


async def test_fanout_window_shows_steering(scratch_home):
    answers = []
    async with (
        stage(scratch_home, AT_WORK, WaitForSteering(), reply("done")) as retinue,
        anyio.create_task_group() as group,
    ):
        call_fanout = retinue.toolset("fanout").handlers["delegate_to_subagents"]

        async def work():
            tasks = {"tasks": [{"name": "a", "prompt": "look"}]}
            answers.append(await call_fanout(tasks, retinue.call("fanout"), None))

        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            async for stamped in events:
                if isinstance(stamped.event, Thinking):
                    break
        await retinue.steer(stamped.origin.run, "mind the gap")
    (answer,) = answers
    assert "» mind the gap" in str(answer.details)


# -- others ----------------------------------------------------------------------------------------


async def test_only_the_run_that_is_named_is_steered_and_extended(scratch_home):
    begun = []
    script = (AT_WORK, WaitForSteering(), reply("{task}: {steer}"))
    async with stage(scratch_home, *script) as retinue, anyio.create_task_group() as group:
        results: list[RunResult] = []

        async def work():
            results.extend(await retinue.delegate([("explorer", "one"), ("explorer", "two")]))

        async with retinue.events(deltas=False) as events:
            group.start_soon(work)
            async for stamped in events:
                if isinstance(stamped.event, Thinking):
                    begun.append(stamped.origin.run)
                if len(begun) == 2:
                    break
        for run in begun:
            await retinue.steer(run, run)
            await retinue.extend(run, 1 + begun.index(run))
    assert sorted(result.text for result in results) == sorted(
        f"{result.spec.task}: {result.spec.run}" for result in results
    )
    assert {result.actual.limits.timeout for result in results} == {601, 602}


class Slow:
    """An engine that delivers a steering message long before it accepts it."""

    def __init__(self, *script):
        self._engine = ScriptedEngine(*script)
        self.has_answered = anyio.Event()
        self.swallows = False
        self.run = self._engine.run

    async def steer(self, run, text):
        failure = None if self.swallows else await self._engine.steer(run, text)
        await self.has_answered.wait()
        return failure


def slow(engine):
    kind = EngineInfo(
        name="scripted", capabilities=CAPABILITIES, make=lambda: engine, not_installed_reason=lambda: None
    )
    return {"engines": {"scripted": kind}}


async def gives_up(scene, text):
    with anyio.CancelScope() as scope:
        scope.cancel()
        await scene.retinue.steer(scene.run, text)
    assert scope.cancelled_caught


async def test_cancelled_steering_does_not_drop_other_messages(scratch_home):
    told = anyio.Event()
    engine = Slow(AT_WORK, WaitForSteering(), RunCallback(told.wait))
    async with at_work(scratch_home, **slow(engine)) as scene:
        await gives_up(scene, "first")
        while not await scene.events(SteeringDelivered):
            await anyio.lowlevel.checkpoint()
        engine.has_answered.set()
        await scene.retinue.steer(scene.run, "second")
        told.set()
    assert await scene.events(SteeringDelivered) == [SteeringDelivered("first")]
    assert [notice.message for notice in await scene.events(Notice)] == [STEERING_NOT_DELIVERED.format("second")]


@VIRTUAL_TIME
async def test_delivered_steering_is_in_the_next_prompt_though_its_caller_is_gone(scratch_home):
    prompts = []
    scripts = ScriptedEngine.from_scripts(
        [AT_WORK, WaitForSteering(), fail("529 overloaded_error: Overloaded")], [reply("done")]
    )

    def note_spec(spec):
        prompts.append(spec.prompt)
        return scripts.script_for(spec)

    engine = Slow(note_spec)
    async with at_work(scratch_home, **slow(engine)) as scene:
        await gives_up(scene, "heard")
    assert prompts == ["look", "look\n\nheard"]


async def test_concurrent_steering_shares_one_limit(scratch_home):
    engine, outcomes = Slow(AT_WORK, RunCallback(anyio.sleep_forever)), []

    async def send_messages(scene):
        try:
            await scene.retinue.steer(scene.run, "x")
        except RefusedError as refused:
            outcomes.append(refused.failure.reason)

    async with at_work(scratch_home, **slow(engine)) as scene, anyio.create_task_group() as group:
        for _ in range(MAX_STEERING_MESSAGES + 3):
            group.start_soon(send_messages, scene)
        await anyio.wait_all_tasks_blocked()
        engine.has_answered.set()
        await anyio.wait_all_tasks_blocked()
        scene.retinue.stop_all()
    assert outcomes == ["told_enough"] * 3


async def test_undelivered_steering_is_reported_though_the_caller_is_gone(scratch_home):
    async with stage(scratch_home, AT_WORK, HangStep()) as retinue:
        async with anyio.create_task_group() as group, retinue.events(deltas=False) as events:
            group.start_soon(retinue.run, "explorer", "look")
            async for stamped in events:
                if isinstance(stamped.event, Thinking):
                    break
            run = stamped.origin.run
            await retinue.steer(run, "mind the gap")
            group.cancel_scope.cancel()
        notices = [s.event.message async for s in retinue.history(run) if isinstance(s.event, Notice)]
    assert notices == [STEERING_NOT_DELIVERED.format("mind the gap")]


@pytest.mark.parametrize(
    "text",
    [
        "x " * 95 + "ghp_" + "Q0" * 18,
        "x " * 75 + "-----BEGIN PRIVATE KEY-----\n" + f"{'Q0' * 32}\n" * 6 + "-----END PRIVATE KEY-----",
    ],
    ids=["a token", "a key of several lines"],
)
async def test_secret_in_undelivered_steering_is_redacted_before_shortening(scratch_home, text):
    told = anyio.Event()
    async with at_work(scratch_home, AT_WORK, RunCallback(told.wait)) as scene:
        await scene.retinue.steer(scene.run, text)
        told.set()
    (notice,) = scene.result.actual.notices
    (written,) = await scene.events(Notice)
    assert written.message == notice
    assert "Q0" not in notice


async def test_a_run_is_named_by_its_first_digits_too(scratch_home):
    async with at_work(scratch_home, AT_WORK, WaitForSteering(), reply("{steer}")) as scene:
        assert await scene.retinue.extend(scene.run[:8], 100) == 1000
        await scene.retinue.steer(scene.run[:8], "more")
    assert scene.result.text == "more"


async def test_steering_accepted_after_the_end_is_refused(scratch_home):
    told, failures = anyio.Event(), []
    engine = Slow(AT_WORK, RunCallback(told.wait), reply("done"))
    async with at_work(scratch_home, **slow(engine)) as scene, anyio.create_task_group() as group:

        async def send_messages():
            failures.append(await refusal(scene.retinue.steer(scene.run, "more")))

        engine.swallows = True
        group.start_soon(send_messages)
        await anyio.wait_all_tasks_blocked()
        told.set()
        while not scene.results:
            await anyio.lowlevel.checkpoint()
        engine.has_answered.set()
    (failure,) = failures
    assert (failure.code, failure.reason) == (ErrorCode.CONFLICT, "not_at_work")


async def test_reworded_steering_counts_as_delivered(scratch_home):
    go_on = anyio.Event()
    engine = Slow(AT_WORK, RunCallback(go_on.wait), SteeringDelivered("MORE, please"), reply("done"))
    engine.swallows = True
    engine.has_answered.set()
    async with at_work(scratch_home, **slow(engine)) as scene:
        await scene.retinue.steer(scene.run, "more")
        go_on.set()
    assert scene.result.actual.notices == ()
