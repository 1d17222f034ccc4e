"""`retinue bridge` as a process with pipes, as an extension starts it."""

from __future__ import annotations

import json
import re
import signal

import pytest
from tests.support.bridge_extension import HANGS, INTERRUPTED, TASK, TIMEOUT, result_text, run_retinue

pytestmark = pytest.mark.process

SHEET = "\n".join(f"line {number}" for number in range(400))
AGENT = "---\nname: {name}\ndescription: One of the project's own.\ntools: read\n---\nYou look.\n"


def test_bridge_sends_hello_and_lists_its_tools(extension):
    bridge = extension(toolset="fanout")
    bridge.send({"type": "tools", "id": "t"})
    hello = bridge.read_message()
    assert {name: hello[name] for name in ("type", "protocol", "surface")} == {
        "type": "hello",
        "protocol": 1,
        "surface": "fanout",
    }
    (known,) = run_retinue("tools", "--toolset", "fanout", "--json")
    assert bridge.receive() == {"type": "tools", "id": "t", **known}
    assert bridge.close()[0] == b""
    assert bridge.process.returncode == 0


def test_tool_list_includes_the_policy_if_enabled(extension):
    bridge = extension("--policy")
    bridge.send({"type": "tools", "id": "t"})
    bridge.read_message()
    (known,) = run_retinue("tools", "--policy", "--json")
    assert bridge.receive()["policy"] == known["policy"]
    assert known["policy"].startswith("Delegate focused work")


def test_call_is_answered_with_the_result_of_the_tool(extension):
    bridge = extension()
    bridge.call()
    answer = bridge.receive()
    assert (answer["type"], answer["id"]) == ("result", "1")
    assert result_text(answer) == "A scripted answer of explorer to: look"
    assert answer["result"]["details"]["mode"] == "single"
    assert "isError" not in answer["result"]


def test_partial_results_precede_the_result_if_requested(extension):
    bridge = extension(toolset="fanout", script=[{"event": {"type": "text", "text": "half"}}, {"say": "whole"}])
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    *partials, result = bridge.receive_until("result")
    assert {(message["type"], message["id"]) for message in partials} <= {("partial", "a")}
    assert all(message["result"]["details"]["windows"][0]["name"] == "n" for message in partials)
    assert result["result"]["details"]["globalStatus"] == "done"


def test_call_in_progress_sends_partials_and_delays_no_other_call(extension):
    bridge = extension(toolset="fanout", script=HANGS)
    bridge.call("long", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    bridge.receive_until("partial")
    bridge.call("short", "list_subagent_profiles", {})
    assert [m["id"] for m in bridge.receive_until("result") if m["type"] == "result"] == ["short"]


def test_cancelled_call_returns_the_output_of_its_runs_so_far(extension):
    bridge = extension(toolset="fanout", script=HANGS)
    tasks = [{"name": f"n{number}", "prompt": "p"} for number in range(6)]
    bridge.call("a", "delegate_to_subagents", {"tasks": tasks}, partials=True)
    while "half" not in str(bridge.receive()["result"]["details"]["windows"]):
        pass
    bridge.send({"type": "cancel", "id": "a"})
    details = bridge.receive_until("result")[-1]["result"]["details"]
    assert [window["status"] for window in details["windows"]] == ["error"] * 6, "queued runs are cancelled, too"
    assert details["windows"][0]["lines"][-1] == "half"
    bridge.call("b", "get_subagent_output", {"sessionId": details["sessionIds"][0]})
    assert result_text(bridge.receive()) == "half"


@pytest.mark.parametrize(
    ("toolset", "tool", "message"),
    [("single", "subagent", "was cancelled by user"), ("nested", "spawn_subagent", "Cancelled before it completed")],
)
def test_call_cancelled_before_its_run_started_is_answered(extension, toolset, tool, message):
    bridge = extension(toolset=toolset, script=HANGS)
    call = {"type": "call", "id": "1", "tool": tool, "arguments": TASK}
    bridge.send(call, {"type": "cancel", "id": "1"}, {"type": "cancel", "id": "nobody"})
    assert message in result_text(bridge.receive())


def test_runs_are_interrupted_when_the_extension_closes_stdin_without_shutdown(extension):
    bridge = extension("--root", "c1", script=HANGS)
    bridge.call(toolCall="t1", partials=True)
    bridge.receive_until("partial")
    out, err = bridge.close()
    assert (bridge.process.returncode, err) == (0, b"")
    assert b'"type":"result"' not in out, "the extension is gone"
    events = run_retinue("events", "c1")
    assert (events[0]["type"], events[-1]["type"]) == ("run_queued", "run_ended")
    assert events[-1]["failure"] == INTERRUPTED


def test_runs_are_interrupted_when_the_extension_stops_reading(extension):
    bridge = extension("--root", "c1", script=HANGS)
    bridge.call(partials=True)
    bridge.receive_until("partial")
    assert bridge.process.stdout
    bridge.process.stdout.close()
    assert bridge.process.wait(TIMEOUT) == 0
    assert bridge.process.stderr
    assert bridge.process.stderr.read() == b""
    assert run_retinue("events", "c1")[-1]["failure"] == INTERRUPTED


def test_events_have_the_root_and_call_ids_of_the_host(extension):
    bridge = extension("--root", "conversation-7")
    bridge.call(toolCall="call_1|fc_2")
    bridge.receive()
    found = {(event["root"], event["parentToolUseId"]) for event in run_retinue("events", "conversation-7")}
    assert found == {("conversation-7", "call_1|fc_2")}


def test_reopened_conversation_makes_more_calls_than_max_spawns(extension):
    answers = []
    for _ in range(3):
        bridge = extension("--root", "c1", RETINUE_MAX_SPAWNS="1")
        bridge.call()
        answers.append(result_text(bridge.receive()))
        bridge.close()
    assert answers == ["A scripted answer of explorer to: look"] * 3


def test_call_uses_the_directory_it_names(extension, tmp_path):
    agents = tmp_path / "elsewhere" / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "local.md").write_text(AGENT.format(name="local"))
    bridge = extension()
    bridge.send({"type": "tools", "id": "here"}, {"type": "tools", "id": "there", "cwd": str(tmp_path / "elsewhere")})
    here, there = bridge.receive(), bridge.receive()
    assert "- local:" not in here["tools"][0]["description"]
    assert "- local:" in there["tools"][0]["description"]
    bridge.call(arguments={"agent": "local", "task": "x"}, cwd="elsewhere")
    assert result_text(bridge.receive()) == "A scripted answer of local to: x"
    bridge.call(arguments={"agent": "local", "task": "x"})
    assert result_text(bridge.receive()).startswith("Unknown agent: local")


@pytest.mark.parametrize(
    ("line", "id_"),
    [
        (b"nonsense", None),
        (b"[]", None),
        (b'{"type":"dance","id":"7"}', "7"),
        (b'{"type":"call","id":"7"}', "7"),
        (b'{"type":"call","id":"7","tool":"dance","arguments":{}}', "7"),
        (b'{"type":"call","id":"7","tool":"subagent","arguments":{},"toolCall":"\\u0000"}', "7"),
        (b'{"type":"call","id":"7","tool":"subagent","arguments":{},"cwd":"\\u0000"}', "7"),
        (b'{"type":"tools","id":"7","cwd":"\\u0000"}', "7"),
        (b"[" * 100_000, None),
        (b'{"type":"tools","id":"\xff"', None),
    ],
)
def test_invalid_line_is_refused_and_the_next_call_is_answered(extension, line, id_):
    bridge = extension()
    bridge.write(line + b"\n")
    refusal = bridge.receive()
    assert (refusal["type"], refusal.get("id")) == ("refused", id_)
    bridge.call()
    assert bridge.receive()["type"] == "result"


def test_line_beyond_the_limit_is_skipped_and_the_next_call_answered(extension):
    bridge = extension()
    limit = bridge.read_message()["maxLineBytes"]
    bridge.write(b'{"type":"call","id":"long","tool":"subagent","arguments":"' + b"x" * limit + b'"}\n')
    bridge.call("short")
    assert (answer := bridge.receive())["id"] == "short"
    assert result_text(answer) == "A scripted answer of explorer to: look"
    _, errors = bridge.close()
    assert (
        errors == b"A message of more than 4 MiB was skipped and will not be answered. Put long texts into a file "
        b"and name the file.\n"
    )


def test_incomplete_line_at_the_end_of_stdin_is_ignored(extension):
    bridge = extension()
    bridge.call()
    bridge.receive()
    bridge.write(b'{"type":"call","id":"2","tool":"subagent","argum')
    assert bridge.close() == (b"", b"")
    assert bridge.process.returncode == 0


def test_thousand_calls_through_one_bridge_are_all_answered(extension):
    """The limit on runs that agents start does not count calls of the host."""
    bridge = extension()
    answered: set[str] = set()
    for start in range(0, 1_000, 100):
        for number in range(start, start + 100):
            bridge.call(str(number), arguments={"agent": "explorer", "task": f"look {number}"})
        for _ in range(100):
            answer = bridge.receive()
            assert result_text(answer) == f"A scripted answer of explorer to: look {answer['id']}"
            answered.add(answer["id"])
    assert answered == {str(number) for number in range(1_000)}


def test_second_call_with_an_id_in_use_is_refused(extension):
    bridge = extension(script=HANGS)
    bridge.call("1")
    bridge.call("1")
    assert bridge.receive() == {
        "type": "refused",
        "id": "1",
        "message": "A call with the id 1 is already in progress. Nothing was started.",
    }


def test_call_with_a_lone_surrogate_is_answered(extension):
    bridge = extension()
    bridge.call(arguments={"agent": "explorer", "task": "look \ud83d"})
    assert result_text(bridge.receive()) == "A scripted answer of explorer to: look \ufffd"


def test_arguments_that_are_no_object_are_answered_by_the_tool(extension):
    bridge = extension()
    bridge.call(arguments=[1])
    assert result_text(bridge.receive()) == "The input of subagent must be an object with agent and task"


def test_stdout_of_the_bridge_has_only_protocol_messages(extension):
    """Output of libraries and child processes goes to stderr, from the stream and from the descriptor."""
    noisy = """
import os, sys, warnings
from retinue.cli.main import main
from retinue.toolsets.single import SingleToolset
quiet = SingleToolset.run_subagent
async def loud(self, *given):
    print("noise of a library", flush=True)
    os.write(1, b"noise of an extension\\n")
    os.system("echo noise of a child; cat")
    warnings.warn("noise of Python")
    return await quiet(self, *given)
SingleToolset.run_subagent = loud
main(sys.argv[1:])
"""
    bridge = extension(program=("-c", noisy))
    bridge.call()
    assert result_text(bridge.receive()) == "A scripted answer of explorer to: look"
    out, err = bridge.close()
    assert (out, bridge.process.returncode) == (b"", 0)
    assert err.count(b"noise of") >= 4


def test_extension_that_does_not_read_delays_no_run(extension):
    flood = [{"event": {"type": "text", "text": "x" * 60_000}}] * 40
    bridge = extension("--root", "c1", toolset="fanout", script=[*flood, {"say": "done"}])
    bridge.call(tool="delegate_to_subagents", arguments={"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    while "run_ended" not in [event["type"] for event in run_retinue("events", "c1")]:
        assert bridge.process.poll() is None
    assert bridge.process.stdin
    bridge.process.stdin.close()
    assert bridge.process.wait(TIMEOUT) == 0


def test_signal_ends_the_bridge_and_its_runs(extension):
    bridge = extension("--root", "c1", script=HANGS)
    bridge.call(partials=True)
    bridge.receive_until("partial")
    bridge.process.send_signal(signal.SIGTERM)
    assert bridge.process.wait(TIMEOUT) == 130
    assert run_retinue("events", "c1")[-1]["failure"]["code"] == "aborted", "a signal asks the runs to stop"


def test_runs_are_interrupted_when_the_terminal_of_the_host_is_closed(extension):
    bridge = extension("--root", "c1", script=HANGS)
    bridge.call(partials=True)
    bridge.receive_until("partial")
    bridge.process.send_signal(signal.SIGHUP)
    assert bridge.process.wait(TIMEOUT) == 130
    assert run_retinue("events", "c1")[-1]["failure"] == INTERRUPTED


def test_offline_engine_answers_only_if_selected_explicitly(extension):
    bridge = extension(engine="auto", PATH="/nowhere")
    bridge.call()
    answer = bridge.receive()["result"]
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    asked = extension(engine="offline")
    asked.call()
    assert "Rule-based search" in result_text(asked.receive())


def test_unknown_toolset_is_refused_with_a_suggestion(extension):
    bridge = extension(toolset="fanuot")
    out, err = bridge.close()
    assert (bridge.process.returncode, out) == (2, b"")
    assert b"Did you mean fanout?" in err


# -- views and session data ---------------------------------------------------------------


def plain_lines(lines: list[list[list[str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_result_has_a_view_with_the_windows_of_its_runs(extension):
    script = [{"call": "ls", "args": {"path": "src"}, "returns": "a.py\nb.py\nlib/"}, {"say": "one\ntwo"}]
    bridge = extension(toolset="fanout", script=script)
    tasks = [{"name": "first", "prompt": "p"}, {"name": "second", "prompt": "p", "profile": "nobody"}]
    bridge.call("a", "delegate_to_subagents", {"tasks": tasks})
    answer = bridge.receive_until("result")[-1]
    header, *lines = plain_lines(answer["view"]["lines"])
    assert header == "Sub-agents: 1 done, 1 error"
    assert lines[0].startswith("✓ first (scripted) • 1 tools • ")
    assert lines[1:5] == ["  ls → src", "    2 files, 1 dir", "  one", "  two"]
    assert lines[5].startswith("✗ second • nobody")
    assert lines[6] == '  Unknown profile: "nobody". Available profiles: (none)'
    assert lines[7] == f"Sessions: {', '.join(answer['result']['details']['sessionIds'])}"
    styles = {style for line in answer["view"]["lines"] for _, style in line}
    assert styles == {"name", "good", "muted", "error", ""}
    assert plain_lines(answer["view"]["expanded"]) == [header, *lines]
    assert answer["view"]["maxLines"] == 15
    assert answer["view"]["bodies"] == [
        {"start": 2, "end": 6, "earlier": 0},
        {"start": 7, "end": 7, "earlier": 0},
    ]


def test_view_limits_lines_per_run_and_expands_all_of_them(extension):
    bridge = extension("--max-concurrency", "16", toolset="fanout", script=[{"say": SHEET}])
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": f"n{i}", "prompt": "p"} for i in range(16)]})
    view = bridge.receive_until("result")[-1]["view"]
    lines = plain_lines(view["lines"])
    assert [lines[body["start"] : body["end"]] for body in view["bodies"]] == [
        [f"  line {number}" for number in range(385, 400)]
    ] * 16
    assert {body["earlier"] for body in view["bodies"]} == {385}
    assert plain_lines(view["expanded"]).count("  line 0") == 16


def test_long_line_of_a_view_is_sent_completely(extension):
    words = " ".join(f"word{number}" for number in range(1000))
    bridge = extension(toolset="fanout", script=[{"say": words}])
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]})
    view = bridge.receive_until("result")[-1]["view"]
    assert f"  {words}" in plain_lines(view["lines"])
    assert f"  {words}" in plain_lines(view["expanded"])


def test_session_data_has_the_failure_text_of_the_toolset(extension):
    bridge = extension(toolset="fanout")
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p", "profile": "nobody"}]})
    while (message := bridge.read_message())["type"] != "ended":
        pass
    assert message["session"]["errorMessage"] == 'Unknown profile: "nobody". Available profiles: (none)'


@pytest.mark.parametrize(
    ("toolset", "sentence", "footer"),
    [
        ("single", "Subagent execution was cancelled by user.", r"(?!)"),
        (
            "sticky",
            "Cancelled before it completed; its partial output was kept. Resume the session to continue.",
            r"Session: \S{36}",
        ),
    ],
)
def test_view_of_a_cancelled_run_has_the_failure_text_of_the_toolset(extension, toolset, sentence, footer):
    bridge = extension(toolset=toolset, script=HANGS)
    bridge.call(partials=True)
    while "half" not in json.dumps(bridge.receive()):
        pass
    bridge.send({"type": "cancel", "id": "1"})
    lines = plain_lines(bridge.receive_until("result")[-1]["view"]["lines"])
    assert f"  {sentence}" in lines
    assert [line for line in lines if line.startswith("Session")] == [
        line for line in lines if re.fullmatch(footer, line)
    ]


def test_call_without_runs_has_no_view(extension):
    bridge = extension(toolset="fanout")
    bridge.call("a", "list_subagent_profiles", {})
    assert "view" not in bridge.receive()


def test_view_of_a_silent_run_shows_elapsed_seconds(extension):
    bridge = extension(toolset="fanout", script=HANGS)
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    while not re.search(r"• [1-9]\d*s/600s", plain_lines(bridge.receive()["view"]["lines"])[1]):
        pass
