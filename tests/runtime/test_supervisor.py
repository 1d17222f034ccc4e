"""One run under its guards, checked by its result. Time is virtual."""

import errno
import os

from tests.support.retinue_factory import VIRTUAL_TIME, stage

from retinue.engines.base import engine_error
from retinue.engines.scripted import FailEngine, HangStep, RunCallback, WaitStep, call, fail, reply
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Notice, OutputBytesCounted, ProcessEnded, Text, TextDelta, ToolCalled, ToolReturned
from retinue.model.results import AnswerStatus, ProcessEnd

pytestmark = VIRTUAL_TIME


async def run(home, *script, **settings):
    async with stage(home, *script) as retinue:
        (result,) = await retinue.delegate([("explorer", "do it")], **settings)
    return result


async def test_a_good_answer_completes_the_run(scratch_home):
    result = await run(scratch_home, reply("all done"))
    assert (result.failure, result.exit_code, result.text, result.answer) == (None, 0, "all done", AnswerStatus.FINAL)


async def test_hung_run_ends_at_its_timeout_and_keeps_its_text(scratch_home):
    result = await run(scratch_home, call("read", path="x"), Text("half an answer"), HangStep())
    assert result.failure == Failure(
        ErrorCode.TIMEOUT,
        "Timed out after 600s. Consider resuming with a longer timeout. The run took 630s.",
        detail={"timeout": 600.0, "elapsed": 630.0},
    )
    assert (result.exit_code, result.elapsed) == (124, 630)
    assert (result.text, result.answer) == ("half an answer", AnswerStatus.PARTIAL)


async def test_tool_calls_after_the_timeout_extend_it(scratch_home):
    script = (WaitStep(590), call("read", p=1), WaitStep(35), call("read", p=2), WaitStep(25), reply("made it"))
    result = await run(scratch_home, *script)
    assert (result.failure, result.elapsed) == (None, 650)


async def test_run_with_endless_tool_calls_ends_at_the_ceiling(scratch_home):
    drip = [step for i in range(1000) for step in (WaitStep(29), call("read", p=i))]
    result = await run(scratch_home, *drip)
    assert result.failure and (result.failure.code, result.failure.reason) == (ErrorCode.TIMEOUT, "ceiling")
    assert result.elapsed == 2400


async def test_an_answer_a_moment_before_the_deadline_counts(scratch_home):
    result = await run(scratch_home, WaitStep(629.999), reply("just in time"))
    assert (result.failure, result.text) == (None, "just in time")


async def test_silence_ends_a_run_only_while_no_tool_runs(scratch_home):
    working = (ToolCalled("c", "bash", {}), WaitStep(500), ToolReturned("c", "bash"), WaitStep(170), reply("ok"))
    assert (await run(scratch_home, *working, idle_timeout=180, timeout=900)).failure is None
    silent = await run(scratch_home, reply("thinking", stop_reason="length"), HangStep(), idle_timeout=180)
    assert silent.failure and silent.failure.code is ErrorCode.IDLE_TIMEOUT
    assert (silent.elapsed, silent.exit_code) == (180, 124)


async def test_deltas_reset_the_idle_timeout(scratch_home):
    deltas = [step for _ in range(5) for step in (WaitStep(100), TextDelta("x"))]
    result = await run(scratch_home, *deltas, reply("ok"), idle_timeout=180, timeout=900)
    assert (result.failure, result.elapsed) == (None, 500)


async def test_a_loop_stops_the_run_at_the_fifth_call(scratch_home):
    result = await run(scratch_home, *[call("grep", pattern="x", returns="y")] * 50)
    assert result.failure and result.failure.code is ErrorCode.LOOP
    assert result.failure.message == "Loop detected: sub-agent is repeating the same tool calls"
    assert result.actual.tools_used == {"grep": 5}


async def test_a_budget_stops_the_run(scratch_home):
    steps = [call("read", path=str(i)) for i in range(10)]
    result = await run(scratch_home, *steps, reply("done"), max_turns=3)
    assert result.failure and result.failure.code is ErrorCode.BUDGET
    assert (result.usage.turns, result.exit_code) == (3, 1)


async def test_a_flood_stops_the_run(scratch_home):
    flood = [OutputBytesCounted(stdout=2**20, raw=2**20)] * 100
    result = await run(scratch_home, *flood, reply("never seen"))
    assert result.failure == Failure(
        ErrorCode.OUTPUT_LIMIT,
        "Subagent child output exceeded stdout hard limit (67108864 bytes) and was stopped.",
        reason="stdout",
    )


async def test_run_that_answers_and_never_exits_completes(scratch_home):
    result = await run(scratch_home, reply("the answer"), HangStep())
    assert (result.failure, result.exit_code, result.text) == (None, 0, "the answer")
    assert result.elapsed == 2
    assert result.actual.notices == ("The agent answered, but its engine did not return within 2s and was ended.",)


async def test_run_continues_if_the_agent_works_after_an_answer(scratch_home):
    result = await run(scratch_home, reply("first"), call("read", path="x"), WaitStep(100), reply("second"))
    assert (result.failure, result.text, result.elapsed) == (None, "second", 100)


async def test_an_engine_that_returns_without_an_answer_has_failed(scratch_home):
    result = await run(scratch_home, call("read", path="x"))
    assert result.failure and (result.failure.code, result.failure.reason) == (ErrorCode.ENGINE, "no_final_message")
    assert result.answer is AnswerStatus.DIAGNOSIS


async def test_a_provider_failure_is_a_failed_run_with_its_reason(scratch_home):
    result = await run(scratch_home, fail("401 invalid x-api-key"))
    assert result.failure and (result.failure.code, result.failure.reason) == (ErrorCode.PROVIDER, "auth")


async def test_provider_failures_do_not_count_as_turns(scratch_home):
    retried = await run(scratch_home, fail("500 no"), fail("500 no"), reply("made it"), max_turns=2)
    assert (retried.failure, retried.text, retried.usage.turns) == (None, "made it", 1)
    failed = await run(scratch_home, *[fail("500 no")] * 8, max_turns=2)
    assert failed.failure
    assert (failed.failure.code, failed.usage.turns) == (ErrorCode.PROVIDER, 0)


async def test_an_engine_failure_is_a_failed_run(scratch_home):
    gone = engine_error("pi was not found", code=ErrorCode.SPAWN_FAILED)
    result = await run(scratch_home, FailEngine(gone))
    assert result.failure == Failure(ErrorCode.SPAWN_FAILED, "pi was not found")


async def test_an_engine_that_crashes_fails_its_run_and_no_other(scratch_home):
    async def crash():
        raise RuntimeError("boom")

    def script(spec):
        return [RunCallback(crash)] if spec.task == "bad" else [WaitStep(5), reply("fine")]

    async with stage(scratch_home, script) as retinue:
        bad, good = await retinue.delegate([("explorer", "bad"), ("explorer", "good")])
    assert bad.failure and (bad.failure.code, bad.failure.reason) == (ErrorCode.ENGINE, "crashed")
    assert "RuntimeError: boom" in bad.failure.message
    assert (good.failure, good.text) == (None, "fine")


async def test_engine_without_free_descriptors_reports_the_shortage(scratch_home):
    async def crash():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "module.py")

    result = await run(scratch_home, RunCallback(crash))
    assert result.failure == Failure(
        ErrorCode.SPAWN_FAILED,
        "The scripted engine could not continue: Too many open files (EMFILE). Too many files are open in this process: "
        "run fewer agents at once, or raise `ulimit -n`. The run's partial output was kept.",
        "spawn_failed",
    )


async def test_result_has_the_end_of_the_process(scratch_home):
    result = await run(scratch_home, reply("good"), ProcessEnded(ProcessEnd(code=3)))
    assert (result.failure, result.exit_code, result.actual.process) == (None, 0, ProcessEnd(code=3))


async def test_first_failure_is_the_reported_one(scratch_home):
    script = [*[call("grep", p=1)] * 5, FailEngine(engine_error("echo of the kill"))]
    result = await run(scratch_home, *script)
    assert result.failure and result.failure.code is ErrorCode.LOOP


async def test_notices_do_not_end_a_run(scratch_home):
    result = await run(scratch_home, Notice("provider_retry", "retrying in 2 s"), reply("ok"))
    assert (result.failure, result.actual.notices) == (None, ("retrying in 2 s",))
