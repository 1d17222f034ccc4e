"""The last turn on the api engine: whatever runs out, the agent is asked for its answer, and the answer is kept."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.engines.api.conftest import LOOK, MODELS, open_retinue
from tests.support.model_server import ScriptedCall, ScriptedTurn

from retinue.model.errors import ErrorCode
from retinue.model.results import AnswerStatus
from retinue.model.tasks import Plan, Task

LIMITS = [
    {"max_turns": 3},
    {"max_tokens": 9000},
    {"max_conversation_turns": 3},
    {"max_conversation_tokens": 9000},
]
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
FINALIZE = ScriptedCall(tool="subagent_finalize", args={"status": "SUCCESS", "result": {"count": 3}})
ANSWER = ScriptedTurn(text="It says hello.")
WRITE = ScriptedCall(tool="write", args={"path": "b.txt", "content": "b"})


class LastTurn:
    """A script of an agent that works until it is asked for its answer, and then plays the given turns."""

    def __init__(self, *turns: ScriptedTurn) -> None:
        self.turns = list(turns)
        self.is_last = False

    def __call__(self, request: Any) -> ScriptedTurn:
        text = request.messages[-1].text
        self.is_last = self.is_last or "Give your final answer now" in text or "Call subagent_finalize now" in text
        return self.turns.pop(0) if self.is_last else LOOK


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: next(iter(limit)))
async def test_answer_is_final_with_a_notice(model, limit, scratch_home):
    async with open_retinue(LastTurn(ANSWER), scratch_home, model, looping_tool_count=0) as (retinue, _):
        result = await retinue.run("reader", "Go.", **limit)
    assert (result.failure, result.text, result.answer) == (None, "It says hello.", AnswerStatus.FINAL)
    assert result.actual.notices[-1].startswith("The agent was asked for its final answer early.")


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: next(iter(limit)))
async def test_structured_answer_of_the_last_turn_is_kept(model, limit, scratch_home):
    script = LastTurn(ScriptedTurn(tools=(FINALIZE,)))
    async with open_retinue(script, scratch_home, model, looping_tool_count=0) as (retinue, _):
        result = await retinue.run("reader", "Go.", output=SCHEMA, **limit)
    assert (result.failure, result.structured) == (None, {"count": 3})


async def test_other_calls_of_the_last_turn_are_refused_and_the_agent_may_still_finalize(scratch_home):
    script = LastTurn(LOOK, ScriptedTurn(tools=(FINALIZE,)))
    async with open_retinue(script, scratch_home, MODELS["anthropic"], looping_tool_count=0) as (retinue, server):
        result = await retinue.run("reader", "Go.", output=SCHEMA, max_tokens=9000)
        refused = server.requests[-1].messages[-1].text
    assert (result.failure, result.structured) == (None, {"count": 3})
    assert refused == "Unknown tool: read. Available tools: subagent_finalize"


async def test_calls_beside_the_finalize_call_of_the_last_turn_are_executed(scratch_home):
    script = LastTurn(ScriptedTurn(tools=(WRITE, FINALIZE)))
    async with open_retinue(script, scratch_home, MODELS["anthropic"], allow_write=True) as (retinue, _):
        result = await retinue.run("writer", "Go.", output=SCHEMA, max_turns=2)
    assert (result.failure, (scratch_home / "b.txt").read_text()) == (None, "b")


async def test_text_in_the_place_of_a_demanded_finalize_call_is_kept_with_the_failure(model, scratch_home):
    async with open_retinue(LastTurn(ANSWER), scratch_home, model) as (retinue, _):
        result = await retinue.run("reader", "Go.", output=SCHEMA, max_turns=2)
    assert result.failure
    assert (result.failure.code, result.text) == (ErrorCode.NOT_FINALIZED, "It says hello.")


@pytest.mark.parametrize(("at", "delivered"), [(1, True), (2, False)], ids=["before", "during"])
async def test_steering_is_delivered_before_the_last_prompt_and_not_after_it(model, at, delivered, scratch_home):
    async with open_retinue([], scratch_home, model) as (retinue, server), anyio.create_task_group() as group:

        def steer(_: Any) -> ScriptedTurn:
            if len(server.requests) == at:
                group.start_soon(retinue.steer, retinue._orchestrator.active_run_ids[0], "Mind the gap.")
            return LOOK if len(server.requests) == 1 else ANSWER

        server.script = steer
        result = await retinue.run("reader", "Go.", max_turns=2)
        texts = [message.text for message in server.requests[-1].messages]
    assert (result.failure, result.text) == (None, "It says hello.")
    assert any("Mind the gap." in text for text in texts) is delivered
    assert any("Mind the gap." in notice for notice in result.actual.notices) is not delivered


async def test_child_runs_in_flight_are_stopped_in_time_for_the_answer(scratch_home):
    def script(request: Any) -> ScriptedTurn:
        if "Hang" in request.messages[-1].text:
            return ScriptedTurn(text="One two", hang=True)
        if "Give your final answer now" in request.messages[-1].text:
            return ANSWER
        tasks = [{"agent": "plain", "task": "Hang."}] * 2
        return ScriptedTurn(tool="spawn_subagent", args={"mode": "parallel", "tasks": tasks})

    async with open_retinue(script, scratch_home, MODELS["gemini"]) as (retinue, _):
        call = retinue.call("nested", timeout=1.0)
        (result,) = await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Go."),)), call)
        assert retinue._orchestrator.active_run_ids == ()
    assert (result.failure, result.text) == (None, "It says hello.")
    assert "The time of 1s is nearly over." in result.actual.notices[-1]
