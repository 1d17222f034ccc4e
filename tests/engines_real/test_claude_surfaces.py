"""The tools of the seeds on the real Claude Code: their example calls, finalized answers, sessions that go on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.engines_real.claude_install import claude_environ, need_claude

from retinue.testing.model_server import script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

SCOUT = """\
---
name: scout
description: Fast codebase reconnaissance
approved_tools:
  - read
  - bash
---

You are the scout.
"""
FINALIZE = "mcp__retinue__subagent_finalize"


def finalizes(result="found it", status="SUCCESS", **more) -> dict[str, Any]:
    return {"tool": FINALIZE, "args": {"status": status, "result": result, **more}}


@pytest.fixture(autouse=True, scope="module")
def claude():
    need_claude()


@pytest.fixture
def call(server, project, tmp_path):
    """Makes a tool call as a program does: `retinue call`, in a process of its own."""
    home = tmp_path / "home"
    environ = {
        **claude_environ(home, server.url),
        "RETINUE_ENGINE": "claude",
        "RETINUE_MODEL": "scripted-1",
        "RETINUE_STATE": str(tmp_path / "state"),
    }
    folder = home / ".pi" / "agent" / "subagents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text(SCOUT)

    async def made(arguments: dict[str, Any], surface: str, *options: str):
        command = ["call", "subagent", json.dumps(arguments), "--surface", surface, *options]
        done = await anyio.run_process(
            [sys.executable, "-m", "retinue", *command],
            cwd=project,
            env=environ,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    return made


async def test_the_example_call_of_single_answers_on_claude(call, server, project):
    look: dict[str, Any] = {"tool": "Read", "args": {"file_path": str(project / "a.txt")}}
    steps = [look, {"text": "In a.txt:1."}]
    task = f"Find where authentication is wired. {script64(steps)}"
    status, lines = await call({"agent": "explorer", "task": task}, "single", "--stream")
    answer = lines[-1]
    assert (status, answer["content"]) == (0, [{"type": "text", "text": "In a.txt:1."}])
    (result,) = answer["details"]["results"]
    assert (result["agent"], result["exitCode"]) == ("explorer", 0)
    assert Path(result["sessionFile"]).is_file()
    assert len(lines) > 1, "partial results come first"
    assert set(server.requests[0].tools) == {"Read", "Grep", "Glob", "mcp__retinue__ls"}


async def test_a_failing_provider_is_an_answer_of_single(call):
    status, (answer,) = await call(
        {"agent": "explorer", "task": script64([{"fail": {"status": 401, "times": -1}}])}, "single"
    )
    assert status == 1
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    assert "401" in answer["content"][0]["text"]


async def test_a_finalized_result_is_the_answer_and_its_session_goes_on(call, server):
    status, (answer,) = await call({"agent": "scout", "task": f"Remember 1234. {script64([finalizes()])}"}, "sticky")
    assert status == 0
    text, session = answer["content"][0]["text"], answer["details"]["sessionId"]
    assert text == f"**Status:** SUCCESS  \n**Session ID:** `{session}`\n\n---\n\nfound it"
    assert answer["details"] == {"sessionId": session, "finalized": {"status": "SUCCESS", "result": "found it"}}
    (request,) = server.requests
    assert set(request.tools) == {"Read", "Bash", FINALIZE}
    assert request.system.endswith("You are the scout.")

    again = {"agent": "scout", "task": f"Keep going. {script64([finalizes('1234')])}", "sessionId": session}
    status, (answer,) = await call(again, "sticky")
    assert (status, answer["details"]["sessionId"]) == (0, session)
    assert len(server.requests) == 2, "a finalized run asks the model no more"
    said = server.requests[-1].messages
    assert "Remember 1234." in said[0].text
    assert "finalized" in [message.text for message in said if message.role == "tool"][-1]


async def test_a_wrong_finalize_call_is_told_which_field_is_wrong_inside_the_child(call, server):
    steps = [finalizes(" "), finalizes("", status="ERROR"), finalizes("good")]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert (status, answer["details"]["finalized"]["result"]) == (0, "good")
    told = [request.messages[-1].text for request in server.requests[1:]]
    assert told == ["SUCCESS requires a non-empty result", "ERROR requires a non-empty error"]


async def test_an_answer_without_finalization_is_corrected_in_the_same_session(call, server):
    def decide(request):
        turns = sum(message.role == "assistant" for message in request.messages)
        return finalizes("at last") if turns == 2 else {"text": f"Plain text {turns}."}

    server.script = decide
    status, (answer,) = await call({"agent": "scout", "task": "Look."}, "sticky")
    assert (status, answer["details"]["finalized"]) == (0, {"status": "SUCCESS", "result": "at last"})
    assert len({re.sub("cc_version=[^;]*", "", request.system) for request in server.requests}) == 1
    assert re.search("without a valid call of subagent_finalize", server.requests[-1].messages[-1].text)


async def test_an_agent_may_say_that_it_failed(call):
    steps = [finalizes("half of it", status="ERROR", error="no access")]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert status == 1
    assert "isError" not in answer
    assert answer["content"][0]["text"].endswith("no access\n\nPartial findings:\n\nhalf of it")


async def test_the_finalize_tool_is_unknown_where_nobody_asked_for_it(call, server):
    asks = {"tool": FINALIZE, "args": {"status": "SUCCESS", "result": "x"}, "force": True}
    status, (answer,) = await call(
        {"agent": "explorer", "task": script64([{"tools": [asks]}, {"text": "Plain."}])}, "single"
    )
    assert (status, answer["content"][0]["text"]) == (0, "Plain.")
    assert FINALIZE not in server.requests[0].tools
