"""The end of a run: at its engine's own report, else at its last complete message. Time is virtual."""

import anyio
import pytest
from tests.support.retinue_factory import VIRTUAL_TIME, scripted, stage

from retinue.engines.base import Completion, engine_error
from retinue.engines.scripted import HangStep, ScriptedEngine, WaitStep, call, finalize, reply
from retinue.model.errors import ErrorCode
from retinue.model.events import Finalized, MessageEnded, Notice, Text, TextDelta, ToolCalled, ToolReturned
from retinue.model.results import Finalization
from retinue.model.tool_names import FINALIZE_TOOL

pytestmark = VIRTUAL_TIME

LINGERED = "The agent answered, but its engine did not return within 2s and was ended."
PENDING, REPORTED = Completion.PENDING, Completion.REPORTED


async def run(home, *script, engine=None, **settings):
    async with stage(home, engines=scripted(engine or ScriptedEngine(*script))) as retinue:
        (result,) = await retinue.delegate([("explorer", "do it")], **settings)
    return result


def outcome(result):
    code = result.failure.code if result.failure else None
    return code, result.text, result.elapsed, result.actual.notices


# -- engines that report completion themselves -----------------------------------------------------


@pytest.mark.parametrize("pause", [1.5, 2.0, 2.1, 4.0, 300.0])
async def test_agent_that_continues_after_a_complete_message_returns_its_last_answer(scratch_home, pause):
    result = await run(scratch_home, PENDING, reply("first"), WaitStep(pause), reply("second", deltas=2), REPORTED)
    assert outcome(result) == (None, "second", pause, ())


async def test_engine_that_hangs_after_its_report_is_stopped_two_seconds_after_the_report(scratch_home):
    result = await run(scratch_home, PENDING, reply("the answer"), WaitStep(50), REPORTED, HangStep())
    assert outcome(result) == (None, "the answer", 52, (LINGERED,))


async def test_notices_after_the_report_do_not_prolong_the_grace(scratch_home):
    notices = [step for number in range(9) for step in (WaitStep(1), Notice("noise", f"notice {number}"))]
    result = await run(scratch_home, PENDING, reply("the answer"), REPORTED, *notices)
    assert (result.failure, result.text, result.elapsed) == (None, "the answer", 2)


async def test_engine_that_never_reports_is_stopped_by_the_idle_guard_and_the_answer_is_kept(scratch_home):
    result = await run(scratch_home, PENDING, reply("the answer"), HangStep(), idle_timeout=180)
    idle = (
        "Nothing happened for 180s while no tool was running; the run was stopped and its partial output was kept. "
        "Resume the session, or raise idle_timeout."
    )
    assert outcome(result) == (None, "the answer", 180, (idle,))


async def test_engine_that_never_reports_is_stopped_by_the_timeout_and_the_answer_is_kept(scratch_home):
    result = await run(scratch_home, PENDING, reply("the answer"), HangStep(), timeout=60, extend_timeout_debounce=0)
    notice = "Timed out after 60s. Consider resuming with a longer timeout."
    assert outcome(result) == (None, "the answer", 60, (notice,))


async def test_completion_is_not_in_the_record_of_a_run(scratch_home):
    async with stage(scratch_home, PENDING, reply("the answer"), REPORTED) as retinue, retinue.events() as watcher:
        result = await retinue.run("explorer", "do it")
        events = []
        async for stamped in watcher:
            events.append(stamped.event.__struct_config__.tag)
            if events[-1] == "run_ended":
                break
    assert result.failure is None
    assert events == ["run_queued", "run_started", "attempt_started", "text", "message_ended", "run_ended"]


# -- open tool calls -------------------------------------------------------------------------------

SIBLINGS = (
    ToolCalled("build", "bash", {"command": "make"}),
    ToolCalled("end", FINALIZE_TOOL, {"status": "SUCCESS", "result": "built"}),
    MessageEnded(stop_reason="tool_use"),
    ToolReturned("end", FINALIZE_TOOL, "finalized"),
    Finalized(Finalization("SUCCESS", "built")),
)


async def test_grace_does_not_run_while_a_tool_call_is_open(scratch_home):
    result = await run(scratch_home, *SIBLINGS, WaitStep(100), ToolReturned("build", "bash", "ok"), WaitStep(1))
    assert outcome(result) == (None, "built", 101, ())


async def test_grace_starts_when_the_last_open_tool_call_returns(scratch_home):
    result = await run(scratch_home, *SIBLINGS, WaitStep(100), ToolReturned("build", "bash", "ok"), HangStep())
    assert outcome(result) == (None, "built", 102, (LINGERED,))


async def test_tool_call_that_stays_open_after_the_answer_is_bounded_by_the_timeout(scratch_home):
    result = await run(scratch_home, *SIBLINGS, HangStep(), timeout=60, extend_timeout_debounce=0)
    notice = "Timed out after 60s. Consider resuming with a longer timeout."
    assert outcome(result) == (None, "built", 60, (notice,))


# -- engines that do not report --------------------------------------------------------------------


async def test_grace_counts_from_the_last_complete_message(scratch_home):
    result = await run(scratch_home, reply("first"), WaitStep(1.5), reply("second"), HangStep())
    assert outcome(result) == (None, "second", 3.5, (LINGERED,))


async def test_finalized_run_without_open_calls_is_ended_after_the_grace(scratch_home):
    result = await run(scratch_home, call("bash", command="make"), finalize("built"), HangStep())
    assert outcome(result) == (None, "built", 2, (LINGERED,))


# -- the reason a run was stopped ------------------------------------------------------------------


class Stopping:
    """Plays steps, hangs, and does one thing more while it is being stopped."""

    def __init__(self, *steps, emits=None, raises=None):
        self._steps, self._emits, self._raises = steps, emits, raises

    async def run(self, spec, emit):
        for step in self._steps:
            await emit(step)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                if self._emits:
                    await emit(self._emits)
            if self._raises:
                raise self._raises


ANSWER = (Text("the answer"), MessageEnded(stop_reason="stop"))


async def test_text_that_arrives_while_a_finished_engine_is_stopped_is_no_timeout(scratch_home):
    engine = Stopping(*ANSWER, emits=TextDelta("more"))
    result = await run(scratch_home, engine=engine)
    assert outcome(result) == (None, "the answer", 2, (LINGERED,))


async def test_engine_error_while_a_finished_engine_is_stopped_is_no_timeout(scratch_home):
    engine = Stopping(*ANSWER, raises=engine_error("echo of the kill"))
    result = await run(scratch_home, engine=engine)
    assert outcome(result) == (None, "the answer", 2, (LINGERED,))


async def test_event_while_an_idle_run_is_stopped_does_not_turn_the_reason_into_a_timeout(scratch_home):
    engine = Stopping(Text("half"), emits=Notice("noise", "ended"))
    result = await run(scratch_home, engine=engine, idle_timeout=400)
    assert (result.failure.code, result.elapsed) == (ErrorCode.IDLE_TIMEOUT, 400)
