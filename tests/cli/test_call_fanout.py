"""Tests of `call` and `tools` with the toolset `fanout`: answers, exit codes, sessions across processes."""

from __future__ import annotations

import json

import pytest

FANOUT = ("--toolset", "fanout", "--engine", "scripted")


def call(cli, tool, arguments, *options, **how):
    """Call a tool and return the exit code and the objects on stdout."""
    result = cli("call", tool, json.dumps(arguments), *FANOUT, *options, **how)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def delegate(cli, *options, script=None, **task):
    tasks = [{"name": "a", "prompt": "look", **task}, {"name": "b", "prompt": "look"}]
    return call(cli, "delegate_to_subagents", {"tasks": tasks}, *options, script=script)


@pytest.mark.parametrize(
    ("step", "task", "code"),
    [
        ({"say": "done"}, {}, 0),
        ({"fail": "no"}, {}, 1),
        ({"say": "done"}, {"profile": "nobody"}, 1),
        ({"say": "done"}, {"resume": "0123456789abcdef"}, 2),
        ({"say": "done"}, {"timeout": 0}, 2),
    ],
    ids=["all completed", "failed", "an unknown profile", "refused", "no time"],
)
def test_exit_code_of_a_fanout_call_follows_its_results(cli, step, task, code):
    found, (answer,) = delegate(cli, script=[step], **task)
    assert found == code
    assert answer.get("isError", False) is (code == 2)


def test_fanout_results_and_sessions_are_available_in_other_processes(cli):
    _, (answer,) = delegate(cli, script=[{"say": "The answer."}])
    session, _ = answer["details"]["sessionIds"]
    _, (output,) = call(cli, "get_subagent_output", {"sessionId": session})
    assert output["content"] == [{"type": "text", "text": "The answer."}]
    code, (resumed,) = delegate(cli, script=[{"say": "More."}], resume=session)
    assert (code, resumed["details"]["sessionIds"][0]) == (0, session)
    _, (whole,) = call(cli, "get_subagent_session", {"sessionId": session})
    assert whole["content"][0]["text"] == (
        "=== Run 1/2 (completed) ===\nThe answer.\n---\n=== Run 2/2 (completed) ===\nMore."
    )


def test_fanout_stream_prints_partial_results_first(cli):
    _, (first, *_, last) = delegate(cli, "--stream", script=[{"wait": 0.1}, {"say": "done"}])
    assert first["content"][0]["text"] == "2 running"
    assert last["content"][0]["text"].startswith("✓ a: completed (session: ")


def test_tools_prints_the_fanout_tools(cli):
    tools = json.loads(cli("tools", "--toolset", "fanout", "--json").stdout)["tools"]
    assert [tool["name"] for tool in tools] == [
        "delegate_to_subagents",
        "get_subagent_output",
        "get_subagent_session",
        "list_subagent_profiles",
    ]


def test_delegate_takes_the_tasks_of_fanout_and_prints_the_answers(cli, place):
    (place / "tasks.json").write_text(json.dumps({"tasks": [{"name": "a", "prompt": "one"}]}))
    first = json.loads(cli("delegate", "tasks.json", "--json", *FANOUT[2:]).stdout)
    (place / "tasks.json").write_text(
        json.dumps({"tasks": [{"name": "b", "prompt": "two", "resume": first["results"][0]["session"][:16]}]})
    )
    again = cli("delegate", "tasks.json", *FANOUT[2:], script=[{"say": "Went on with {task}."}])
    assert (again.exit_code, "Went on with two." in again.stdout) == (0, True)


def test_offline_engine_resumes_with_the_prompt_of_the_user(cli, place):
    (place / "src").mkdir()
    (place / "src" / "bus.py").write_text('"""The event bus."""\n\n\nclass EventBus:\n    pass\n')
    (place / "src" / "app.py").write_text("from src.bus import EventBus\n\nEventBus()\n")
    offline = ("--toolset", "fanout", "--engine", "offline")

    def ask(prompt: str, **task: str) -> tuple[str, str]:
        given = json.dumps({"tasks": [{"name": "a", "prompt": prompt, "profile": "explorer", **task}]})
        answer = json.loads(cli("call", "delegate_to_subagents", given, *offline).stdout)
        (session,) = answer["details"]["sessionIds"]
        output = json.loads(cli("call", "get_subagent_output", json.dumps({"sessionId": session}), *offline).stdout)
        return session, output["content"][0]["text"]

    session, _ = ask("Where is the event bus?")
    _, text = ask("And who uses it?", resume=session)
    assert "Searched for: `uses`, `event`, `bus`" in text


def test_ignored_setting_of_a_project_is_a_notice_of_the_run(cli, place):
    (place / ".git").mkdir()
    (place / ".pi").mkdir()
    file = place / ".pi" / "settings.json"
    file.write_text('{"subagents": {"looping_tool_count": 0}}')
    _, (answer,) = delegate(cli, script=[{"say": "Here it is."}])
    report = json.loads(cli("sessions", "show", answer["details"]["sessionIds"][0], "--json").stdout)["report"]
    assert report["notices"] == [f"{file}: looping_tool_count = 0 would raise a limit (5); ignored"]
    assert report["limits"]["loopCount"] == 5
