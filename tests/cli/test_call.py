"""Tests of `call` and `tools`: one JSON object on stdout in every case."""

from __future__ import annotations

import json
import os

import pytest

TASK = '{"agent": "explorer", "task": "look"}'
SCRIPTED = ("--engine", "scripted")


def decode_result(result):
    """Decode the one object on stdout."""
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def test_call_prints_only_the_tool_result_on_stdout(cli):
    result = cli("call", "subagent", TASK, "--toolset", "single", *SCRIPTED)
    found = decode_result(result)
    assert result.exit_code == 0
    assert list(found) == ["content", "details"]
    assert found["content"] == [{"type": "text", "text": "A scripted answer of explorer to: look"}]
    assert found["details"]["mode"] == "single"
    assert found["details"]["results"][0]["exitCode"] == 0


def test_call_reads_its_input_from_stdin_and_files(cli, place):
    (place / "input.json").write_text(TASK)
    assert decode_result(cli("call", "subagent", "-", *SCRIPTED, stdin=TASK))["details"]["results"]
    assert decode_result(cli("call", "subagent", "@input.json", *SCRIPTED))["details"]["results"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "{",
        "nonsense",
        "[1, 2",
        '{"agent": "\\ud800"}',
        "[" * 100_000,
        "@missing",
        "@pipe",
        "@latin",
        "\udcff",
        "@",
    ],
)
def test_unreadable_input_is_answered_as_an_invalid_call(cli, place, given):
    os.mkfifo(place / "pipe")
    (place / "latin").write_bytes(b"\xe9")
    result = cli("call", "subagent", given)
    found = decode_result(result)
    assert result.exit_code == 2
    assert found["details"]["error"]["code"] == "INVALID_INPUT"
    assert found["content"][0]["text"].startswith("The input of subagent is not a JSON object: ")


@pytest.mark.parametrize("given", ["{", "", "@missing"])
def test_refusal_of_the_call_comes_before_errors_of_its_input(cli, given):
    both = {"PI_SUBAGENT_DEPTH": "1", "RETINUE_ENABLED": "0"}
    deep, off = cli("call", "subagent", given, **both), cli("call", "subagent", given, RETINUE_ENABLED="0")
    assert decode_result(deep)["details"]["error"]["code"] == "SUBAGENT_DEPTH_EXCEEDED"
    assert decode_result(deep)["details"]["mode"] == "management"
    assert decode_result(off)["details"]["error"]["code"] == "SUBAGENTS_DISABLED"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "Missing argument 'TOOL'."),
        (("subagent", TASK, "extra"), "Got unexpected extra argument (extra)"),
        (("subagent", TASK, "--timeout", "0"), "Invalid value for '--timeout': '0' is out of range"),
        (("subagent", TASK, "--cwd", "missing"), "Invalid value for '--cwd': Directory 'missing' does not exist."),
        (("subagent", TASK, "--cwd", "file"), "Invalid value for '--cwd': Directory 'file' is a file."),
        (("--nothing",), "No such option '--nothing'."),
    ],
)
def test_usage_errors_of_call_are_answered_as_json(cli, place, arguments, text):
    (place / "file").touch()
    result = cli("call", *arguments)
    found = decode_result(result)
    assert result.exit_code == 2
    assert found["isError"] is True
    assert found["content"][0]["text"].startswith(text)
    assert text in result.stderr


def test_call_without_input_names_the_missing_input(cli):
    sentence = "The input of subagent is not a JSON object: no input: pass {…}, - or @FILE"
    assert decode_result(cli("call", "subagent"))["content"][0]["text"] == sentence


def test_call_in_a_deleted_directory_is_answered_as_json(process, place):
    gone = place / "gone"
    gone.mkdir()
    done = process.run("call", "subagent", TASK, preexec_fn=gone.rmdir, cwd=gone)
    assert done.returncode == 2
    assert decode_result(done)["content"][0]["text"].startswith("The current directory cannot be used")


@pytest.mark.parametrize(
    "junk",
    [
        {"RETINUE_TIMEOUT": "soon", "RETINUE_MAX_DEPTH": "very"},
        {"PI_SUBAGENT_DEPTH": "deep"},
        {"COLUMNS": "wide", "TERM": "\udcff"},
        {"RETINUE_STATE": "\udcff"},
    ],
)
def test_invalid_environment_variables_do_not_fail_a_call(cli, junk):
    assert decode_result(cli("call", "subagent", TASK, *SCRIPTED, **junk))["details"]["results"][0]["exitCode"] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("subagnt", "{}"), "Unknown tool: subagnt. Did you mean subagent? Tools of single: subagent"),
        (("subagent", "{}", "--toolset", "dual"), "Unknown toolset: dual. Toolsets: "),
    ],
)
def test_unknown_tool_or_toolset_is_answered_as_json(cli, arguments, text):
    result = cli("call", *arguments)
    found = decode_result(result)
    assert result.exit_code == 2
    assert found["isError"] is True
    assert found["content"][0]["text"].startswith(text)


@pytest.mark.parametrize(
    ("arguments", "script", "environ", "code", "error"),
    [
        ((TASK,), [{"say": "done"}], {}, 0, None),
        ((TASK,), [{"fail": "400"}], {}, 1, "SUBAGENT_FAILED"),
        ((TASK, "--timeout", "1"), [{"hang": True}], {}, 124, "SUBAGENT_TIMEOUT"),
        (('{"agent": "nobody", "task": "x"}',), [], {}, 2, "UNKNOWN_AGENT"),
        (('{"agent": "explorer"}',), [], {}, 2, "INVALID_INPUT"),
        ((TASK,), [], {"RETINUE_ENABLED": "0"}, 2, "SUBAGENTS_DISABLED"),
        ((TASK,), [], {"PI_SUBAGENT_DEPTH": "1"}, 2, "SUBAGENT_DEPTH_EXCEEDED"),
        ((TASK, "--engine", "none"), [], {}, 2, "SUBAGENT_FAILED"),
        ((TASK,), [{"say": "line\n" * 6000}], {}, 0, "SUBAGENT_OUTPUT_TRUNCATED"),
    ],
)
def test_exit_code_of_call_follows_the_result_of_the_run(cli, arguments, script, environ, code, error):
    engine = () if "--engine" in arguments else SCRIPTED
    result = cli("call", "subagent", *arguments, *engine, script=script, **environ)
    assert result.exit_code == code
    assert decode_result(result)["details"].get("error", {}).get("code") == error


def test_stream_prints_partial_results_as_lines_before_the_result(cli):
    script = [{"call": "ls", "args": {"path": "."}}, {"say": "all of it", "deltas": 3}]
    *partial, last = cli("call", "subagent", TASK, *SCRIPTED, "--stream", script=script).stdout.splitlines()
    assert partial
    assert all("streaming" in json.loads(line)["details"] for line in partial)
    assert json.loads(last)["details"]["results"]


def test_tools_prints_the_tools_a_host_would_register(cli):
    (tool,) = json.loads(cli("tools", "--toolset", "single", "--json").stdout)["tools"]
    assert list(tool) == ["name", "description", "inputSchema"]
    assert tool["name"] == "subagent"
    assert "- explorer: " in tool["description"]
    assert tool["inputSchema"]["required"] == ["agent", "task"]
    assert "subagent" in cli("tools").stdout


def test_tools_reports_that_no_tool_may_be_registered(cli):
    result = cli("tools", RETINUE_ENABLED="0")
    assert result.stdout == ""
    assert "retinue doctor" in result.stderr


@pytest.mark.parametrize(
    "given",
    [
        '{"agent": "explorer", "task": "one", "task": "two"}',
        '{"agent": "explorer", "task": "x", "more": [{"task": 1, "task": 1}]}',
    ],
)
def test_input_with_a_key_twice_is_refused_by_name(cli, given):
    result = cli("call", "subagent", given, *SCRIPTED)
    assert result.exit_code == 2
    message = "The input of subagent is not a JSON object: it has the key 'task' twice"
    assert decode_result(result)["content"] == [{"type": "text", "text": message}]


def test_plan_with_a_key_twice_is_refused_by_name(cli):
    result = cli("delegate", "-", *SCRIPTED, stdin='{"tasks": [{"agent": "explorer", "prompt": "a", "prompt": "b"}]}')
    assert result.exit_code == 2
    assert "stdin: invalid plan: it has the key 'prompt' twice\n" in result.stderr


def test_surface_is_accepted_as_the_former_name_of_toolset(cli):
    old, new = (cli("call", "subagnt", "{}", name, "fanout") for name in ("--surface", "--toolset"))
    assert (old.exit_code, old.stdout) == (new.exit_code, new.stdout)
    assert "Tools of fanout" in old.stdout
    assert "--surface" not in cli("call", "--help").stdout
