"""Running plans: slots, order, chains, limits, stopping, stored and published events."""

import anyio
import pytest
from tests.support.retinue_factory import VIRTUAL_TIME, stage

from retinue.agents.agent import Agent
from retinue.engines.scripted import HangStep, RunCallback, WaitStep, call, reply
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.events import MessageEnded, RunEnded, RunQueued, RunStarted, Text, TextDelta
from retinue.model.tasks import FileSlice, Mode, Plan, Task
from retinue.sessions.store import SessionState

pytestmark = VIRTUAL_TIME


def tasks(count):
    return [("explorer", f"task {i}") for i in range(count)]


async def test_four_run_at_once_and_the_others_wait_their_turn(scratch_home):
    at_work, most = 0, 0

    async def enter():
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)

    async def leave():
        nonlocal at_work
        at_work -= 1

    async with stage(
        scratch_home, RunCallback(enter), WaitStep(10), RunCallback(leave), reply("{task} done")
    ) as retinue:
        start = anyio.current_time()
        results = await retinue.delegate(tasks(16))
        assert (most, anyio.current_time() - start) == (4, 40)
    assert [result.text for result in results] == [f"task {i} done" for i in range(16)]


async def test_waiting_for_a_slot_costs_no_timeout(scratch_home):
    async with stage(scratch_home, WaitStep(500), reply("ok")) as retinue:
        results = await retinue.delegate(tasks(12), timeout=510)
    assert [(result.failure, result.elapsed) for result in results] == [(None, 500)] * 12


async def test_results_are_in_task_order_regardless_of_end_order(scratch_home):
    def script(spec):
        return [WaitStep(10 - int(spec.task[-1])), reply(spec.task)]

    async with stage(scratch_home, script) as retinue:
        results = await retinue.delegate(tasks(4))
    assert [result.text for result in results] == ["task 0", "task 1", "task 2", "task 3"]


async def test_hung_task_does_not_delay_other_tasks(scratch_home):
    def script(spec):
        return [HangStep()] if spec.task == "task 2" else [WaitStep(1), reply("ok")]

    async with stage(scratch_home, script) as retinue:
        results = await retinue.delegate(tasks(8))
        listed = await retinue.sessions()
    assert [result.failure.code if result.failure else None for result in results] == [
        None, None, ErrorCode.TIMEOUT, None, None, None, None, None,
    ]  # fmt: skip
    assert sum(summary.latest.state is SessionState.COMPLETED for summary in listed) == 7


async def test_invalid_task_fails_alone(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        good, bad = await retinue.delegate([("explorer", "x"), ("nobody", "y")])
        stored = await retinue.sessions()
    assert good.failure is None
    assert bad.failure and bad.failure.code is ErrorCode.UNKNOWN_AGENT
    assert (bad.was_started, bad.run, bad.session) == (False, "", "")
    assert [one.session for one in stored] == [good.session]


async def test_invalid_task_of_a_host_fails_alone_and_stores_its_session(scratch_home):
    plan = Plan(tasks=(Task(agent="explorer", prompt="x"), Task(agent="nobody", prompt="y")), mode=Mode.PARALLEL)
    async with stage(scratch_home, reply("ok")) as retinue:
        good, bad = await retinue.run_plan(plan, retinue.call("fanout"))
        stored = await retinue.session(bad.spec.session)
    assert good.failure is None
    assert bad.failure and bad.failure.code is ErrorCode.UNKNOWN_AGENT
    assert stored and stored.latest.state is SessionState.ERROR


# -- chains ----------------------------------------------------------------------------------------


async def test_chain_step_gets_the_answer_of_the_previous_step(scratch_home):
    prompts = []

    def script(spec):
        prompts.append(spec.prompt)
        return [reply(f"answer {len(prompts)}")]

    steps = [("explorer", "find it"), ("reviewer", "Given {previous} review {task}"), ("tester", "test it")]
    async with stage(scratch_home, script) as retinue:
        results = await retinue.chain(steps)
    assert [result.text for result in results] == ["answer 1", "answer 2", "answer 3"]
    assert prompts[0] == "find it"
    assert "answer 1" in prompts[1] and prompts[1].endswith("review find it")
    assert prompts[2].startswith("test it\n\n") and "answer 2" in prompts[2]


async def test_placeholders_inside_an_answer_are_text(scratch_home):
    prompts = []

    def script(spec):
        prompts.append(spec.prompt)
        return [Text("print {task} and {previous}"), MessageEnded(stop_reason="stop")]

    async with stage(scratch_home, script) as retinue:
        await retinue.chain([("explorer", "secret plan"), ("explorer", "use {previous}")])
    assert "print {task} and {previous}" in prompts[1]
    assert "secret plan" not in prompts[1]


async def test_a_chain_stops_at_its_first_failure_and_keeps_what_came_before(scratch_home):
    def script(spec):
        return [HangStep()] if "two" in spec.prompt else [reply("one done")]

    async with stage(scratch_home, script) as retinue:
        results = await retinue.chain([("explorer", "one"), ("explorer", "two"), ("explorer", "three")])
    assert [(r.text, r.failure.code if r.failure else None) for r in results] == [
        ("one done", None),
        (results[1].text, ErrorCode.TIMEOUT),
    ]


async def test_chain_with_an_unusable_agent_is_refused_as_a_whole(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        (refused,) = await retinue.chain([("explorer", "one"), ("nobody", "two")])
        assert refused.failure
        assert refused.failure.message.startswith(
            "Chain not started: step 2 (nobody) cannot run. Unknown agent: nobody"
        )
        assert list(await retinue.sessions()) == []


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 17])
async def test_a_call_takes_one_to_sixteen_tasks(scratch_home, count):
    async with stage(scratch_home, reply("ok")) as retinue:
        plan = Plan(tasks=tuple(Task(agent=agent, prompt=task) for agent, task in tasks(count)), mode=Mode.PARALLEL)
        with pytest.raises(RefusedError, match=f"A call takes 1 to 16 tasks .* this call has {count}") as refused:
            await retinue.run_plan(plan, retinue.call("fanout"))
        assert refused.value.failure.code is ErrorCode.INVALID_INPUT
        assert list(await retinue.sessions()) == []


async def test_chain_step_reads_files_as_earlier_steps_left_them(scratch_home):
    prompts = []

    async def write():
        (scratch_home / "plan.md").write_text("The plan.")
        (scratch_home / "notes.md").write_text("New.")

    def script(spec):
        prompts.append(spec.prompt.partition("\n\nDo it.")[0])
        return RunCallback(write), reply("ok")

    (scratch_home / "notes.md").write_text("Old.")
    reader = Agent(name="reader", tools=("read",), default_reads=("notes.md",))
    steps = [Task(agent="reader", prompt="Do it.", files=(FileSlice(path="plan.md"),)) for _ in range(2)]
    async with stage(scratch_home, script, agents=[reader]) as retinue:
        await retinue.chain(steps)
    assert prompts == [
        "=== notes.md ===\nOld.\n\n[file not found: plan.md]",
        "=== notes.md ===\nNew.\n\n=== plan.md ===\nThe plan.",
    ]


async def test_second_of_two_concurrent_resumes_is_refused(scratch_home):
    key = f"sk-ant-api03-{'k' * 90}"
    async with stage(scratch_home, WaitStep(1), reply("ok")) as retinue:
        first = await retinue.run("explorer", "Look")
        results = []

        async def go_on():
            results.append(await retinue.run("explorer", f"Go on with {key}", session=first.session[:16]))

        async with anyio.create_task_group() as group:
            group.start_soon(go_on)
            group.start_soon(go_on)
        lost, done = results
        assert (lost.failure and lost.failure.code, done.failure) == (ErrorCode.SESSION_BUSY, None)
        assert lost.failure
        assert lost.failure.message == (
            f'Cannot resume: session "{first.session[:16]}" is still running. Wait for it to complete before resuming.'
        )
        assert [one.spec.task for one in results] == ["Go on with [ANTHROPIC_KEY_REDACTED]"] * 2
        assert (lost.spec.environment, lost.spec.history, lost.spec.prompt) == ({}, (), done.spec.prompt)
        again = await retinue.run("explorer", "Go on", session=first.session)
        assert again.failure is None


# -- stopping --------------------------------------------------------------------------------------


async def test_stopping_one_run_keeps_its_text_and_leaves_other_runs(scratch_home):
    async with stage(scratch_home, reply("first part", stop_reason="length"), WaitStep(100), reply("end")) as retinue:

        async def stop_the_first():
            async with retinue.events() as events:
                async for stamped in events:
                    if isinstance(stamped.event, RunStarted):
                        await anyio.sleep(50)
                        assert retinue.stop(stamped.origin.run)
                        return

        async with anyio.create_task_group() as group:
            group.start_soon(stop_the_first)
            await anyio.lowlevel.checkpoint()
            results = await retinue.delegate(tasks(2))
    stopped = [result for result in results if result.failure]
    assert [(r.failure and r.failure.code, r.exit_code, r.text, r.elapsed) for r in stopped] == [
        (ErrorCode.ABORTED, 130, "first part", 50)
    ]


async def test_stopping_everything_empties_the_queue_too(scratch_home):
    started = []

    def script(spec):
        started.append(spec.task)
        return [HangStep()]

    async with stage(scratch_home, script) as retinue:

        async def stop_soon():
            await anyio.sleep(5)
            assert retinue.stop_all() == 10

        async with anyio.create_task_group() as group:
            group.start_soon(stop_soon)
            results = await retinue.delegate(tasks(10))
        assert retinue.stop_all() == 0
    assert [result.failure.code if result.failure else None for result in results] == [ErrorCode.ABORTED] * 10
    assert len(started) == 4


async def test_stopping_a_run_that_ended_is_a_no_op(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        (result,) = await retinue.delegate(tasks(1))
        assert retinue.stop(result.spec.run) is False


async def test_a_cancelled_caller_leaves_ended_runs_behind(scratch_home):
    async with stage(scratch_home, reply("half", stop_reason="length"), HangStep()) as retinue:
        with anyio.move_on_after(10) as scope:
            await retinue.delegate(tasks(6))
        assert scope.cancelled_caught
        listed = await retinue.sessions()
        ended = [[s.event async for s in retinue.history(summary.session)][-1] for summary in listed]
    assert len(listed) == 6
    assert all(isinstance(end, RunEnded) and end.failure and end.failure.code is ErrorCode.ABORTED for end in ended)
    assert sorted(end.text for end in ended if isinstance(end, RunEnded)) == ["", "", *["half"] * 4]


async def test_slots_are_free_again_after_any_end(scratch_home):
    ends = [[HangStep()], [call("read", p=1)] * 9, [reply("ok")], []]

    def script(spec):
        return ends[int(spec.task[-1]) % 4]

    async with stage(scratch_home, script) as retinue:
        await retinue.delegate(tasks(16), timeout=5)
        with anyio.move_on_after(1):
            await retinue.delegate(tasks(3), timeout=500)
        results = await retinue.delegate([("explorer", "2")] * 4)
    assert [result.failure for result in results] == [None] * 4


# -- the record and the watchers -------------------------------------------------------------------


async def test_every_run_begins_queued_and_ends_once(scratch_home):
    async with stage(scratch_home, call("read", path="x", returns="y"), reply("ok")) as retinue:
        (result,) = await retinue.delegate(tasks(1))
        stored = [s async for s in retinue.history(result.spec.session)]
    assert [s.event.__struct_config__.tag for s in stored] == [
        "run_queued",
        "run_started",
        "attempt_started",
        "tool_called",
        "message_ended",
        "tool_returned",
        "text",
        "message_ended",
        "run_ended",
    ]
    assert [s.seq for s in stored] == list(range(1, 10))
    assert {(s.origin.run, s.origin.session, s.origin.depth) for s in stored} == {
        (result.spec.run, result.spec.session, 1)
    }


async def test_watchers_see_what_is_stored_in_order_and_the_deltas_between(scratch_home):
    async with stage(scratch_home, reply("hello world", deltas=4)) as retinue, retinue.events() as events:
        (result,) = await retinue.delegate(tasks(1))
        seen = list(events.drain())
        stored = [s async for s in retinue.history(result.spec.session)]
    assert [s for s in seen if not isinstance(s.event, TextDelta)] == stored
    shown = "".join(s.event.text for s in seen if isinstance(s.event, TextDelta))
    assert shown == "hello ", "the last word may still become a secret; the whole text follows as an event"
    assert [s.seq for s in seen] == sorted(s.seq for s in seen)


async def test_the_stored_prompt_is_the_callers(scratch_home):
    async with stage(scratch_home, reply("ok")) as retinue:
        results = await retinue.chain([("explorer", "one"), ("explorer", "two {previous}")])
        first = [s.event async for s in retinue.history(results[1].spec.session)][0]
    assert isinstance(first, RunQueued) and first.task == "two {previous}"


# -- sessions that go on ---------------------------------------------------------------------------


async def test_a_resumed_session_keeps_its_id_and_gets_its_history(scratch_home):
    histories = []

    def script(spec):
        histories.append([(message.role, message.text) for message in spec.history])
        return [call("read", path="x", returns="content"), reply(f"answer to {spec.task}")]

    async with stage(scratch_home, script) as retinue:
        first = await retinue.run("explorer", "one")
        second = await retinue.run("explorer", "two", session=first.spec.session[:8])
        summary = await retinue.session(second.spec.run)
    assert second.spec.session == first.spec.session
    assert second.spec.run != first.spec.run
    assert summary and (summary.session, summary.runs, summary.task) == (first.spec.session, 2, "two")
    assert histories == [
        [],
        [("user", "one"), ("assistant", ""), ("tool", "content"), ("assistant", "answer to one")],
    ]


@pytest.mark.parametrize(
    ("sessions", "code", "message"),
    [
        (["0123456789abcdef"], ErrorCode.SESSION_NOT_FOUND,
         'Cannot resume: session "0123456789abcdef" not found. The ID is incorrect, or the session was deleted.'),
        (["{known}", "{known}"], ErrorCode.CONFLICT, 'Cannot resume: session "{known}" is named by 2 tasks of this call.'),
    ],
)  # fmt: skip
async def test_bad_resumes_refuse_the_whole_call(scratch_home, sessions, code, message):
    async with stage(scratch_home, reply("ok")) as retinue:
        known = (await retinue.run("explorer", "one")).spec.session
        wanted = [Task(agent="explorer", prompt="x", session=s.replace("{known}", known[:16])) for s in sessions]
        results = await retinue.delegate([*wanted, ("explorer", "innocent")])
        assert {result.failure and result.failure.code for result in results} == {code}
        for result in results:
            assert result.failure
            assert result.failure.message.startswith(message.replace("{known}", known[:16]))
            assert (result.was_started, result.session, result.exit_code) == (False, "", 1)
        assert len(await retinue.sessions()) == 1


async def test_running_session_cannot_be_resumed(scratch_home):
    async with stage(scratch_home, WaitStep(10), reply("ok")) as retinue, retinue.events() as events:
        async with anyio.create_task_group() as group:
            group.start_soon(retinue.run, "explorer", "one")
            session = (await anext(events)).origin.session
            refused = await retinue.run("explorer", "two", session=session[:8])
        assert refused.failure == Failure(
            ErrorCode.SESSION_BUSY,
            f'Cannot resume: session "{session[:8]}" is still running. Wait for it to complete before resuming.',
        )
