"""Tests of `call` and `tools` with the toolset `sticky`: answers, exit codes, sessions across processes."""

from __future__ import annotations

import json

import pytest

STICKY = ("--toolset", "sticky", "--engine", "scripted")


def call(cli, *, script=None, **arguments):
    """Call the tool and return the exit code and the object on stdout."""
    result = cli(
        "call", "subagent", json.dumps({"agent": "explorer", "task": "look", **arguments}), *STICKY, script=script
    )
    (line,) = result.stdout.splitlines()
    return result.exit_code, json.loads(line)


@pytest.mark.parametrize(
    ("step", "code"),
    [({"finalize": "done"}, 0), ({"finalize": "", "error": "no"}, 1), ({"say": "done"}, 1), ({"fail": "no"}, 1)],
    ids=["success", "the agent's error", "not finalized", "failed"],
)
def test_exit_code_of_a_sticky_call_follows_its_result(cli, step, code):
    assert call(cli, script=[step])[0] == code


def test_refused_sticky_call_exits_with_2(cli):
    code, found = call(cli, agent="nobody")
    assert (code, found["isError"], found["details"]["error"]["code"]) == (2, True, "unknown_agent")


def test_sticky_session_continues_in_another_process_of_its_directory_only(cli, place, monkeypatch):
    session = call(cli)[1]["details"]["sessionId"]
    code, found = call(cli, sessionId=session)
    assert (code, found["details"]["sessionId"]) == (0, session)
    (place / "elsewhere").mkdir()
    monkeypatch.chdir(place / "elsewhere")
    code, found = call(cli, sessionId=session)
    assert (code, found["details"]["error"]["code"]) == (2, "session_not_found")
    assert f'but to agent "explorer" in {place}. ' in found["content"][0]["text"]


def test_tools_prints_the_sticky_tool(cli):
    (tool,) = json.loads(cli("tools", "--toolset", "sticky", "--json").stdout)["tools"]
    assert (tool["name"], list(tool["inputSchema"]["properties"])) == ("subagent", ["agent", "task", "sessionId"])
