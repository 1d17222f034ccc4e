"""Tests of `call`, `tools` and `events` with the toolset `nested`: answers, exit codes, ids of a host."""

from __future__ import annotations

import json

import pytest

NESTED = ("--toolset", "nested", "--engine", "scripted")
TASK = {"agent": "explorer", "task": "look"}


def call(cli, arguments, *options, script=None, tool="spawn_subagent", **environ):
    """Call a tool and return the exit code and the object on stdout."""
    result = cli("call", tool, json.dumps(arguments), *NESTED, *options, script=script, **environ)
    (line,) = result.stdout.splitlines()
    return result.exit_code, json.loads(line)


def read_events(cli, *arguments):
    return [json.loads(line) for line in cli("events", *arguments, "--toolset", "nested").stdout.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "step", "code"),
    [
        (TASK, {"say": "done"}, 0),
        (TASK, {"fail": "no"}, 1),
        ({"mode": "chain", "tasks": [TASK, TASK]}, {"say": "done"}, 0),
        ({"mode": "parallel", "tasks": [TASK, {"agent": "nobody", "task": "x"}]}, {"say": "done"}, 1),
        ({"agent": "nobody", "task": "x"}, {"say": "done"}, 2),
        ({"mode": "tree", **TASK}, {"say": "done"}, 2),
    ],
    ids=["single", "failed", "chain", "one of two", "unknown agent", "unknown mode"],
)
def test_exit_code_of_a_nested_call_follows_its_results(cli, arguments, step, code):
    assert call(cli, arguments, script=[step])[0] == code


def test_events_have_the_ids_given_by_the_host(cli):
    _, found = call(cli, TASK, "--root", "conv/7", "--tool-call", "toolu_9", script=[{"say": "done"}])
    (one,) = found["details"]["results"]
    ids = {"subagentId": one["subagentId"], "parentToolUseId": "toolu_9"}
    start = {"type": "subagentStart", **ids, "agent": "explorer", "prompt": "look", "rootConversationId": "conv/7"}
    complete = {"type": "subagentComplete", **ids, "result": "done", "isError": False}
    assert read_events(cli) == read_events(cli, "conv/7") == read_events(cli, one["subagentId"]) == [start, complete]


def test_events_of_two_calls_are_in_one_conversation(cli):
    for number in (1, 2):
        call(cli, TASK, "--root", "c1", "--tool-call", f"toolu_{number}")
    assert [event["parentToolUseId"] for event in read_events(cli, "c1")] == [
        "toolu_1",
        "toolu_1",
        "toolu_2",
        "toolu_2",
    ]


def test_calls_of_one_conversation_are_not_bounded_by_max_spawns(cli):
    assert [call(cli, TASK, "--root", "c1", RETINUE_MAX_SPAWNS="1")[0] for _ in range(3)] == [0, 0, 0]


def test_calls_by_an_agent_are_bounded_by_max_spawns(cli):
    in_an_agent = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1", "RETINUE_MAX_SPAWNS": "1"}
    two = {"mode": "parallel", "tasks": [TASK, TASK]}
    code, found = call(cli, two, "--root", "c1", **in_an_agent)
    assert (code, found["details"]["error"]["code"]) == (2, "spawn_limit")
    assert call(cli, TASK, "--root", "c1", **in_an_agent)[0] == 0


@pytest.mark.parametrize("option", ["--root", "--tool-call"])
@pytest.mark.parametrize("value", ["", " ", "a\nb", "\udcff"])
def test_unprintable_id_is_refused_as_json(cli, option, value):
    code, found = call(cli, TASK, option, value)
    assert (code, found["isError"]) == (2, True)
    assert "not printable" in found["content"][0]["text"]


def test_log_in_the_vault_has_the_same_lines_as_events(cli, place):
    (place / "vault").mkdir()
    call(cli, TASK, "--root", "c1", RETINUE_VAULT=str(place / "vault"))
    log = place / "vault" / ".orion" / "subagent-events" / "c1" / "events.jsonl"
    assert log.read_bytes() == cli("events", "c1", "--toolset", "nested").stdout_bytes


def test_agent_info_is_callable_from_the_command_line(cli):
    code, found = call(cli, {"agent": "explorer"}, tool="agent_info")
    assert (code, found["details"]["sourceLayer"]) == (0, "builtin")


def test_tools_prints_the_nested_tools(cli):
    tools = json.loads(cli("tools", "--toolset", "nested", "--json").stdout)["tools"]
    assert [tool["name"] for tool in tools] == ["spawn_subagent", "agent_info"]


def test_events_accepts_no_toolset_but_nested(cli):
    assert cli("events", "--toolset", "single").exit_code == 2
