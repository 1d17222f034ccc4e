"""The tools of the seeds on the real pi: their example calls, finalized answers, sessions that go on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

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
FINALIZE = "subagent_finalize"


def finalizes(result="found it", status="SUCCESS", **more) -> dict[str, Any]:
    return {"tool": FINALIZE, "args": {"status": status, "result": result, **more}}


@pytest.fixture
def call(pi, server, project, tmp_path):
    """Makes a tool call as a program does: `retinue call`, in a process of its own."""
    home = tmp_path / "home"
    environ = {
        **pi.environ_in(home, server.url),
        "RETINUE_ENGINE": "pi",
        "RETINUE_MODEL": "local/scripted-1",
        "RETINUE_STATE": str(tmp_path / "state"),
    }
    folder = home / "agent" / "subagents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text(SCOUT)

    async def made(arguments: dict[str, Any], surface: str, *options: str, tool: str = "subagent", **more: str):
        done = await anyio.run_process(
            [
                sys.executable,
                "-m",
                "retinue",
                "call",
                tool,
                json.dumps(arguments),
                "--surface",
                surface,
                *options,
            ],
            cwd=project,
            env={**environ, **more},
            stdin=subprocess.DEVNULL,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, lines

    return made


async def test_the_example_call_of_single_answers_on_pi(call, server):
    task = f"Find where authentication is wired. {script64([{'tool': 'read', 'args': {'path': 'a.txt'}}, {'text': 'In a.txt:1.'}])}"
    status, lines = await call({"agent": "explorer", "task": task}, "single", "--stream")
    answer = lines[-1]
    assert (status, answer["content"]) == (0, [{"type": "text", "text": "In a.txt:1."}])
    (result,) = answer["details"]["results"]
    assert (result["agent"], result["exitCode"]) == ("explorer", 0)
    assert Path(result["sessionFile"]).is_file()
    assert len(lines) > 1, "partial results come first"
    assert set(server.requests[0].tools) == {"read", "grep", "find", "ls"}


async def test_a_failing_provider_is_an_answer_of_single(call):
    status, (answer,) = await call(
        {"agent": "explorer", "task": script64([{"fail": {"status": 401, "times": -1}}])}, "single"
    )
    assert status == 1
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    assert "401" in answer["content"][0]["text"]


async def test_a_finalized_result_is_the_answer_and_its_session_goes_on(call, server, project, tmp_path):
    status, (answer,) = await call({"agent": "scout", "task": f"Remember 1234. {script64([finalizes()])}"}, "sticky")
    assert status == 0
    text, session = answer["content"][0]["text"], answer["details"]["sessionId"]
    assert text == f"**Status:** SUCCESS  \n**Session ID:** `{session}`\n\n---\n\nfound it"
    assert answer["details"] == {"sessionId": session, "finalized": {"status": "SUCCESS", "result": "found it"}}
    (request,) = server.requests
    assert set(request.tools) == {"read", "bash", FINALIZE}
    assert request.system.startswith("You are the scout.")
    folder = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:16]
    file = tmp_path / "home" / ".pi" / "subagent-sessions" / folder / f"scout_{session}.jsonl"
    before = file.read_text()
    assert "Remember 1234." in before

    again = {"agent": "scout", "task": f"Keep going. {script64([finalizes('1234')])}", "sessionId": session}
    status, (answer,) = await call(again, "sticky")
    assert (status, answer["details"]["sessionId"]) == (0, session)
    assert file.read_text().startswith(before)
    assert any("Remember 1234." in message.text for message in server.requests[-1].messages)


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
    assert len({request.system for request in server.requests}) == 1, "the prompt stays as it is"
    assert re.search("without a valid call of subagent_finalize", server.requests[-1].messages[-1].text)


async def test_an_agent_that_never_finalizes_fails_with_the_text_it_has(call, server):
    server.script = [{"text": "Only text."}]
    status, (answer,) = await call({"agent": "scout", "task": "Look."}, "sticky")
    assert (status, answer["isError"]) == (1, True)
    assert answer["details"]["error"]["code"] == "not_finalized"
    assert "Only text." in answer["content"][0]["text"]
    assert len(server.requests) == 3


async def test_an_agent_may_say_that_it_failed(call):
    steps = [finalizes("half of it", status="ERROR", error="no access")]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert status == 1
    assert "isError" not in answer
    assert answer["content"][0]["text"].endswith("no access\n\nPartial findings:\n\nhalf of it")


async def test_the_finalize_tool_is_unknown_where_nobody_asked_for_it(call, server):
    steps: list[dict[str, Any]] = [
        {"tools": [{"tool": FINALIZE, "args": {"status": "SUCCESS", "result": "x"}, "force": True}]},
        {"text": "Plain."},
    ]
    status, (answer,) = await call({"agent": "explorer", "task": script64(steps)}, "single")
    assert (status, answer["content"][0]["text"]) == (0, "Plain.")
    assert FINALIZE not in server.requests[0].tools


# -- fanout ----------------------------------------------------------------------------------------


@pytest.fixture
def delegate(call):
    """A call of `delegate_to_subagents`: its exit code and its answer."""

    async def made(*tasks: dict[str, Any], **environ: str):
        status, (answer,) = await call({"tasks": tasks}, "fanout", tool="delegate_to_subagents", **environ)
        return status, answer

    return made


async def test_tasks_of_fanout_run_at_once_on_pi_with_files_and_profiles(delegate, call, server):
    read = script64([{"tool": "read", "args": {"path": "a.txt"}}, {"text": "It is XYZZY."}])
    status, answer = await delegate(
        {"name": "plain", "prompt": f"Find the word. {read}"},
        {"name": "with", "prompt": script64([{"text": "Seen."}]), "profile": "scout", "files": ["a.txt", "nope"]},
        {"name": "bad", "prompt": "x", "profile": "nobody"},
    )
    assert status == 1
    plain, scout, bad = answer["content"][0]["text"].splitlines()
    assert re.fullmatch(r"✓ plain: completed \(session: [0-9a-f]{16}\)", plain)
    assert scout.endswith(" (profile: scout, custom-system-prompt, tools=[read, bash])")
    assert bad.startswith('✗ bad: error — Unknown profile: "nobody". Available profiles: scout (session: ')
    told = {request.prompt.partition("<<")[0] or request.prompt: request for request in server.requests}
    by_scout = next(request for request in told.values() if request.system.startswith("You are the scout."))
    assert "=== a.txt ===\nthe secret word is XYZZY\n\n[file not found: nope]\n\n" in by_scout.prompt
    assert set(by_scout.tools) == {"read", "bash"}
    by_none = next(request for request in told.values() if request is not by_scout)
    assert "inside pi" in by_none.system
    session = answer["details"]["sessionIds"][0]
    _, (whole,) = await call({"sessionId": session}, "fanout", tool="get_subagent_session")
    assert whole["content"][0]["text"].splitlines() == [
        '→ read: {"path":"a.txt"}',
        "[tool result]: the secret word is XYZZY",
        "",
        "It is XYZZY.",
    ]


async def test_a_session_of_fanout_goes_on_as_text_and_where_it_is_set_in_pis_own(delegate, server):
    _, answer = await delegate({"name": "a", "prompt": f"Remember 1234. {script64([{'text': 'I will.'}])}"})
    (session,) = answer["details"]["sessionIds"]
    status, _ = await delegate({"name": "b", "prompt": script64([{"text": "It is 1234."}]), "resume": session})
    assert status == 0
    users = [message.text for message in server.requests[-1].messages if message.role == "user"]
    assert len(users) == 1, "nothing of pi's own session"
    assert users[0].startswith("Previously:\n\n--- Run 1 (completed, 2 messages) ---\nUser: Remember 1234.")
    assert "\nAssistant: I will.\n\nInstructions:\n\n" in users[0]

    again = {"name": "c", "prompt": script64([{"text": "Still."}]), "resume": session}
    status, _ = await delegate(again, RETINUE_RESUME="native")
    assert status == 0
    users = [message.text for message in server.requests[-1].messages if message.role == "user"]
    assert len(users) == 2, "pi's own session goes on"
    assert "Previously:" not in users[-1]
