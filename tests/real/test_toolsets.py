"""Toolsets on the real programs: example calls, finalized answers, continued sessions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.real.programs import Step
from tests.support.model_server import script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]


@pytest.fixture
def call(program, make_caller):
    return make_caller(program)


@pytest.fixture
def finalize_step(program):
    def step(result: str = "found it", status: str = "SUCCESS", **more: Any) -> Step:
        finalization: Step = program.tool_step("subagent_finalize", status=status, result=result, **more)
        return finalization

    return step


async def test_example_call_of_single_returns_the_answer(call, program, server, project):
    steps = [program.read_step(project / "a.txt"), {"text": "In a.txt:1."}]
    task = f"Find where authentication is wired. {script64(steps)}"
    status, lines = await call({"agent": "explorer", "task": task}, "single", "--stream")
    answer = lines[-1]
    assert (status, answer["content"]) == (0, [{"type": "text", "text": "In a.txt:1."}])
    (result,) = answer["details"]["results"]
    assert (result["agent"], result["exitCode"]) == ("explorer", 0)
    assert Path(result["sessionFile"]).is_file()
    assert len(lines) > 1, "partial results come first"
    assert set(server.requests[0].tools) == program.tools("read", "grep", "find", "ls")


async def test_provider_failure_is_an_error_result_of_single(call):
    status, (answer,) = await call(
        {"agent": "explorer", "task": script64([{"fail": {"status": 401, "times": -1}}])}, "single"
    )
    assert status == 1
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    assert "401" in answer["content"][0]["text"]


async def test_finalized_result_is_the_answer_and_its_session_continues(call, finalize_step, program, server):
    status, (answer,) = await call(
        {"agent": "scout", "task": f"Remember 1234. {script64([finalize_step()])}"}, "sticky"
    )
    assert status == 0
    text, session = answer["content"][0]["text"], answer["details"]["sessionId"]
    assert text == f"**Status:** SUCCESS  \n**Session ID:** `{session}`\n\n---\n\nfound it"
    assert answer["details"] == {"sessionId": session, "finalized": {"status": "SUCCESS", "result": "found it"}}
    (request,) = server.requests
    assert set(request.tools) == program.tools("read", "bash", "subagent_finalize")
    assert program.has_prompt(request.system, "You are the scout.")

    again = {"agent": "scout", "task": f"Keep going. {script64([finalize_step('1234')])}", "sessionId": session}
    status, (answer,) = await call(again, "sticky")
    assert (status, answer["details"]["sessionId"]) == (0, session)
    assert len(server.requests) == 2, "a finalized run asks the model no more"
    messages = server.requests[-1].messages
    assert "Remember 1234." in next(message.text for message in messages if message.role == "user")
    assert "finalized" in [message.text for message in messages if message.role == "tool"][-1]


async def test_invalid_finalize_call_names_the_wrong_field_inside_the_child(call, finalize_step, server):
    steps = [finalize_step(" "), finalize_step("", status="ERROR"), finalize_step("good")]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert (status, answer["details"]["finalized"]["result"]) == (0, "good")
    told = [request.messages[-1].text for request in server.requests[1:]]
    assert told == ["SUCCESS requires a non-empty result", "ERROR requires a non-empty error"]


async def test_answer_without_finalization_is_corrected_in_the_same_session(call, finalize_step, server):
    def decide(request):
        turns = sum(message.role == "assistant" for message in request.messages)
        return finalize_step("at last") if turns == 2 else {"text": f"Plain text {turns}."}

    server.script = decide
    status, (answer,) = await call({"agent": "scout", "task": "Look."}, "sticky")
    assert (status, answer["details"]["finalized"]) == (0, {"status": "SUCCESS", "result": "at last"})
    # Claude Code puts a checksum of each request before the prompt.
    prompts = {re.sub("cc_version=[^;]*", "", request.system) for request in server.requests}
    assert len(prompts) == 1, "the prompt stays as it is"
    assert re.search("without a valid call of subagent_finalize", server.requests[-1].messages[-1].text)


async def test_agent_that_never_finalizes_fails_with_its_text(call, server):
    server.script = [{"text": "Only text."}]
    status, (answer,) = await call({"agent": "scout", "task": "Look."}, "sticky")
    assert (status, answer["isError"]) == (1, True)
    assert answer["details"]["error"]["code"] == "not_finalized"
    assert "Only text." in answer["content"][0]["text"]
    assert len(server.requests) == 3


async def test_agent_can_finalize_with_an_error(call, finalize_step):
    steps = [finalize_step("half of it", status="ERROR", error="no access")]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert status == 1
    assert "isError" not in answer
    assert answer["content"][0]["text"].endswith("no access\n\nPartial findings:\n\nhalf of it")


async def test_finalize_tool_is_unknown_unless_requested(call, finalize_step, program, server):
    steps: list[Step] = [{"tools": [{**finalize_step("x"), "force": True}]}, {"text": "Plain."}]
    status, (answer,) = await call({"agent": "explorer", "task": script64(steps)}, "single")
    assert (status, answer["content"][0]["text"]) == (0, "Plain.")
    assert not program.tools("subagent_finalize") & set(server.requests[0].tools)
