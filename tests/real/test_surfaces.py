"""The tools of the seeds on the real programs: their example calls, finalized answers, sessions that go on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.real.programs import Step
from tests.support.model_server import script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]


@pytest.fixture
def call(program, calling):
    return calling(program)


@pytest.fixture
def finalizes(program):
    def step(result: str = "found it", status: str = "SUCCESS", **more: Any) -> Step:
        made: Step = program.uses("subagent_finalize", status=status, result=result, **more)
        return made

    return step


async def test_the_example_call_of_single_answers(call, program, server, project):
    steps = [program.reads(project / "a.txt"), {"text": "In a.txt:1."}]
    task = f"Find where authentication is wired. {script64(steps)}"
    status, lines = await call({"agent": "explorer", "task": task}, "single", "--stream")
    answer = lines[-1]
    assert (status, answer["content"]) == (0, [{"type": "text", "text": "In a.txt:1."}])
    (result,) = answer["details"]["results"]
    assert (result["agent"], result["exitCode"]) == ("explorer", 0)
    assert Path(result["sessionFile"]).is_file()
    assert len(lines) > 1, "partial results come first"
    assert set(server.requests[0].tools) == program.tools("read", "grep", "find", "ls")


async def test_a_failing_provider_is_an_answer_of_single(call):
    status, (answer,) = await call(
        {"agent": "explorer", "task": script64([{"fail": {"status": 401, "times": -1}}])}, "single"
    )
    assert status == 1
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    assert "401" in answer["content"][0]["text"]


async def test_a_finalized_result_is_the_answer_and_its_session_goes_on(call, finalizes, program, server):
    status, (answer,) = await call({"agent": "scout", "task": f"Remember 1234. {script64([finalizes()])}"}, "sticky")
    assert status == 0
    text, session = answer["content"][0]["text"], answer["details"]["sessionId"]
    assert text == f"**Status:** SUCCESS  \n**Session ID:** `{session}`\n\n---\n\nfound it"
    assert answer["details"] == {"sessionId": session, "finalized": {"status": "SUCCESS", "result": "found it"}}
    (request,) = server.requests
    assert set(request.tools) == program.tools("read", "bash", "subagent_finalize")
    assert program.has_prompt(request.system, "You are the scout.")

    again = {"agent": "scout", "task": f"Keep going. {script64([finalizes('1234')])}", "sessionId": session}
    status, (answer,) = await call(again, "sticky")
    assert (status, answer["details"]["sessionId"]) == (0, session)
    assert len(server.requests) == 2, "a finalized run asks the model no more"
    said = server.requests[-1].messages
    assert "Remember 1234." in next(message.text for message in said if message.role == "user")
    assert "finalized" in [message.text for message in said if message.role == "tool"][-1]


async def test_a_wrong_finalize_call_is_told_which_field_is_wrong_inside_the_child(call, finalizes, server):
    steps = [finalizes(" "), finalizes("", status="ERROR"), finalizes("good")]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert (status, answer["details"]["finalized"]["result"]) == (0, "good")
    told = [request.messages[-1].text for request in server.requests[1:]]
    assert told == ["SUCCESS requires a non-empty result", "ERROR requires a non-empty error"]


async def test_an_answer_without_finalization_is_corrected_in_the_same_session(call, finalizes, server):
    def decide(request):
        turns = sum(message.role == "assistant" for message in request.messages)
        return finalizes("at last") if turns == 2 else {"text": f"Plain text {turns}."}

    server.script = decide
    status, (answer,) = await call({"agent": "scout", "task": "Look."}, "sticky")
    assert (status, answer["details"]["finalized"]) == (0, {"status": "SUCCESS", "result": "at last"})
    # Claude Code puts a checksum of each request before the prompt.
    prompts = {re.sub("cc_version=[^;]*", "", request.system) for request in server.requests}
    assert len(prompts) == 1, "the prompt stays as it is"
    assert re.search("without a valid call of subagent_finalize", server.requests[-1].messages[-1].text)


async def test_an_agent_that_never_finalizes_fails_with_the_text_it_has(call, server):
    server.script = [{"text": "Only text."}]
    status, (answer,) = await call({"agent": "scout", "task": "Look."}, "sticky")
    assert (status, answer["isError"]) == (1, True)
    assert answer["details"]["error"]["code"] == "not_finalized"
    assert "Only text." in answer["content"][0]["text"]
    assert len(server.requests) == 3


async def test_an_agent_may_say_that_it_failed(call, finalizes):
    steps = [finalizes("half of it", status="ERROR", error="no access")]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert status == 1
    assert "isError" not in answer
    assert answer["content"][0]["text"].endswith("no access\n\nPartial findings:\n\nhalf of it")


async def test_the_finalize_tool_is_unknown_where_nobody_asked_for_it(call, finalizes, program, server):
    steps: list[Step] = [{"tools": [{**finalizes("x"), "force": True}]}, {"text": "Plain."}]
    status, (answer,) = await call({"agent": "explorer", "task": script64(steps)}, "single")
    assert (status, answer["content"][0]["text"]) == (0, "Plain.")
    assert not program.tools("subagent_finalize") & set(server.requests[0].tools)
