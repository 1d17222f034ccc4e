"""`retinue bridge` as an extension starts it: a process, its stdin and its stdout."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process

PATIENCE = 30.0
TASK = {"agent": "explorer", "task": "look"}
HANGS = [{"call": "read", "args": {"path": "a.py"}}, {"event": {"type": "text", "text": "half"}}, {"hang": True}]
AGENT = "---\nname: {name}\ndescription: One of the project's own.\ntools: read\n---\nYou look.\n"


class Extension:
    """The other end of a bridge."""

    def __init__(self, place: Path, *arguments: str, program: tuple[str, ...], script: Any, environ: dict[str, str]):
        if script is not None:
            environ["RETINUE_SCRIPT"] = str(place / "script.json")
            (place / "script.json").write_text(json.dumps({"steps": script}))
        self.process = subprocess.Popen(
            [sys.executable, *program, "bridge", *arguments],
            cwd=place,
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # One that says nothing more must not hold up the tests.
        self._patience = threading.Timer(PATIENCE, self.process.kill)
        self._patience.start()

    def say(self, *messages: dict[str, Any]) -> None:
        self.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def call(self, id_: str = "1", tool: str = "subagent", arguments: Any = TASK, **more: Any) -> None:
        self.say({"type": "call", "id": id_, "tool": tool, "arguments": arguments, **more})

    def heard(self) -> dict[str, Any]:
        """The next message that answers or shows something."""
        while (message := self.line())["type"] in {"hello", "ended"}:
            pass
        return message

    def line(self) -> dict[str, Any]:
        assert self.process.stdout
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def until(self, kind: str) -> list[dict[str, Any]]:
        """All messages up to the first of this type, that included."""
        said = [self.heard()]
        while said[-1]["type"] != kind:
            said.append(self.heard())
        return said

    def leave(self) -> tuple[bytes, bytes]:
        """Closes stdin and waits for the end; what was still said on stdout and on stderr."""
        return self.process.communicate(timeout=PATIENCE)

    def end(self) -> None:
        self._patience.cancel()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]


@pytest.fixture
def extension(tmp_path):
    started: list[Extension] = []

    def start(
        *arguments: str,
        surface: str = "single",
        engine: str = "scripted",
        program: tuple[str, ...] = ("-m", "retinue"),
        script: Any = None,
        **environ: str,
    ) -> Extension:
        chosen = ("--surface", surface, "--engine", engine, *arguments)
        started.append(Extension(tmp_path, *chosen, program=program, script=script, environ=environ))
        return started[-1]

    yield start
    for each in started:
        each.end()


def retinue(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "retinue", *arguments], capture_output=True, check=False, timeout=PATIENCE
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def text_of(answer: dict[str, Any]) -> str:
    (block,) = answer["result"]["content"]
    return str(block["text"])


def test_it_says_hello_and_which_tools_there_are(extension):
    bridge = extension(surface="fanout")
    bridge.say({"type": "tools", "id": "t"})
    hello = bridge.line()
    assert {name: hello[name] for name in ("type", "protocol", "surface")} == {
        "type": "hello",
        "protocol": 1,
        "surface": "fanout",
    }
    (known,) = retinue("tools", "--surface", "fanout", "--json")
    assert bridge.heard() == {"type": "tools", "id": "t", **known}
    assert bridge.leave()[0] == b""
    assert bridge.process.returncode == 0


def test_with_the_tools_comes_the_policy_where_the_user_wants_it(extension):
    bridge = extension("--policy")
    bridge.say({"type": "tools", "id": "t"})
    bridge.line()
    (known,) = retinue("tools", "--policy", "--json")
    assert bridge.heard()["policy"] == known["policy"]
    assert known["policy"].startswith("Delegate focused work")


def test_a_call_is_answered_with_the_result_of_the_tool(extension):
    bridge = extension()
    bridge.call()
    answer = bridge.heard()
    assert (answer["type"], answer["id"]) == ("result", "1")
    assert text_of(answer) == "A scripted answer of explorer to: look"
    assert answer["result"]["details"]["mode"] == "single"
    assert "isError" not in answer["result"]


def test_partial_results_come_first_where_they_are_asked_for(extension):
    bridge = extension(surface="fanout", script=[{"event": {"type": "text", "text": "half"}}, {"say": "whole"}])
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    *partials, result = bridge.until("result")
    assert {(message["type"], message["id"]) for message in partials} <= {("partial", "a")}
    assert all(message["result"]["details"]["windows"][0]["name"] == "n" for message in partials)
    assert result["result"]["details"]["globalStatus"] == "done"


def test_a_call_in_flight_shows_what_it_does_and_holds_up_no_other(extension):
    bridge = extension(surface="fanout", script=HANGS)
    bridge.call("long", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    bridge.until("partial")
    bridge.call("short", "list_subagent_profiles", {})
    assert [m["id"] for m in bridge.until("result") if m["type"] == "result"] == ["short"]


def test_a_cancelled_call_answers_with_what_its_runs_had(extension):
    bridge = extension(surface="fanout", script=HANGS)
    tasks = [{"name": f"n{number}", "prompt": "p"} for number in range(6)]
    bridge.call("a", "delegate_to_subagents", {"tasks": tasks}, partials=True)
    while "half" not in str(bridge.heard()["result"]["details"]["windows"]):
        pass
    bridge.say({"type": "cancel", "id": "a"})
    details = bridge.until("result")[-1]["result"]["details"]
    assert [window["status"] for window in details["windows"]] == ["error"] * 6, "those that waited, too"
    assert details["windows"][0]["lines"][-1] == "half"
    bridge.call("b", "get_subagent_output", {"sessionId": details["sessionIds"][0]})
    assert text_of(bridge.heard()) == "half"


@pytest.mark.parametrize(
    ("surface", "tool", "words"),
    [("single", "subagent", "was cancelled by user"), ("nested", "spawn_subagent", "Stopped before it was done")],
)
def test_a_call_that_is_cancelled_before_anything_began_ends_as_well(extension, surface, tool, words):
    bridge = extension(surface=surface, script=HANGS)
    call = {"type": "call", "id": "1", "tool": tool, "arguments": TASK}
    bridge.say(call, {"type": "cancel", "id": "1"}, {"type": "cancel", "id": "nobody"})
    assert words in text_of(bridge.heard())


def test_when_the_extension_leaves_everything_ends(extension):
    bridge = extension("--root", "c1", script=HANGS)
    bridge.call(toolCall="t1", partials=True)
    bridge.until("partial")
    out, err = bridge.leave()
    assert (bridge.process.returncode, err) == (0, b"")
    assert b'"type":"result"' not in out, "nobody waits for it"
    events = retinue("events", "c1")
    assert (events[0]["type"], events[-1]["type"]) == ("run_queued", "run_ended")
    assert events[-1]["failure"]["code"] == "aborted"


def test_an_extension_that_only_stops_reading_has_left_as_well(extension):
    bridge = extension("--root", "c1", script=HANGS)
    bridge.call(partials=True)
    bridge.until("partial")
    assert bridge.process.stdout
    bridge.process.stdout.close()
    assert bridge.process.wait(PATIENCE) == 0
    assert bridge.process.stderr
    assert bridge.process.stderr.read() == b""
    assert retinue("events", "c1")[-1]["failure"]["code"] == "aborted"


def test_events_carry_the_ids_of_the_host(extension):
    bridge = extension("--root", "conversation-7")
    bridge.call(toolCall="call_1|fc_2")
    bridge.heard()
    found = {(event["root"], event["parentToolUseId"]) for event in retinue("events", "conversation-7")}
    assert found == {("conversation-7", "call_1|fc_2")}


def test_a_conversation_that_is_opened_again_makes_more_calls_than_max_spawns(extension):
    answers = []
    for _ in range(3):
        bridge = extension("--root", "c1", RETINUE_MAX_SPAWNS="1")
        bridge.call()
        answers.append(text_of(bridge.heard()))
        bridge.leave()
    assert answers == ["A scripted answer of explorer to: look"] * 3


def test_a_call_is_made_from_the_directory_it_names(extension, tmp_path):
    agents = tmp_path / "elsewhere" / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "local.md").write_text(AGENT.format(name="local"))
    bridge = extension()
    bridge.say({"type": "tools", "id": "here"}, {"type": "tools", "id": "there", "cwd": str(tmp_path / "elsewhere")})
    here, there = bridge.heard(), bridge.heard()
    assert "- local:" not in here["tools"][0]["description"]
    assert "- local:" in there["tools"][0]["description"]
    bridge.call(arguments={"agent": "local", "task": "x"}, cwd="elsewhere")
    assert text_of(bridge.heard()) == "A scripted answer of local to: x"
    bridge.call(arguments={"agent": "local", "task": "x"})
    assert text_of(bridge.heard()).startswith("Unknown agent: local")


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
def test_what_means_nothing_is_refused_and_the_next_call_is_answered(extension, line, id_):
    bridge = extension()
    bridge.write(line + b"\n")
    refusal = bridge.heard()
    assert (refusal["type"], refusal.get("id")) == ("refused", id_)
    bridge.call()
    assert bridge.heard()["type"] == "result"


def test_an_id_in_flight_is_not_taken_twice(extension):
    bridge = extension(script=HANGS)
    bridge.call("1")
    bridge.call("1")
    assert bridge.heard() == {
        "type": "refused",
        "id": "1",
        "message": "A call of the id 1 is in flight. Nothing was started.",
    }


def test_a_call_with_half_a_character_in_it_is_answered(extension):
    bridge = extension()
    bridge.call(arguments={"agent": "explorer", "task": "look \ud83d"})
    assert text_of(bridge.heard()) == "A scripted answer of explorer to: look \ufffd"


def test_arguments_that_are_no_object_are_the_tools_own_business(extension):
    bridge = extension()
    bridge.call(arguments=[1])
    assert text_of(bridge.heard()) == "The input of subagent must be an object with agent and task"


def test_stdout_carries_the_protocol_and_nothing_else(extension):
    """Whatever prints in the process or below it while it serves, on the stream or on the descriptor."""
    noisy = """
import os, sys, warnings
from retinue.frontends.cli.main import main
from retinue.surfaces.single import Single
quiet = Single.subagent
async def loud(self, *given):
    print("noise of a library", flush=True)
    os.write(1, b"noise of an extension\\n")
    os.system("echo noise of a child; cat")
    warnings.warn("noise of Python")
    return await quiet(self, *given)
Single.subagent = loud
main(sys.argv[1:])
"""
    bridge = extension(program=("-c", noisy))
    bridge.call()
    assert text_of(bridge.heard()) == "A scripted answer of explorer to: look"
    out, err = bridge.leave()
    assert (out, bridge.process.returncode) == (b"", 0)
    assert err.count(b"noise of") >= 4


def test_a_reader_who_does_not_read_holds_up_nothing(extension):
    flood = [{"event": {"type": "text", "text": "x" * 60_000}}] * 40
    bridge = extension("--root", "c1", surface="fanout", script=[*flood, {"say": "done"}])
    bridge.call(tool="delegate_to_subagents", arguments={"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    while "run_ended" not in [event["type"] for event in retinue("events", "c1")]:
        assert bridge.process.poll() is None
    assert bridge.process.stdin
    bridge.process.stdin.close()
    assert bridge.process.wait(PATIENCE) == 0


def test_a_signal_ends_it_and_its_runs(extension):
    bridge = extension("--root", "c1", script=HANGS)
    bridge.call(partials=True)
    bridge.until("partial")
    bridge.process.send_signal(signal.SIGTERM)
    assert bridge.process.wait(PATIENCE) == 130
    assert retinue("events", "c1")[-1]["failure"]["code"] == "aborted"


def test_rules_are_not_taken_for_an_agent_unless_they_are_asked_for(extension):
    bridge = extension(engine="auto", PATH="/nowhere")
    bridge.call()
    answer = bridge.heard()["result"]
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    asked = extension(engine="offline")
    asked.call()
    assert "Rule-based search" in text_of(asked.heard())


def test_an_unknown_surface_is_refused_with_the_known_ones(extension):
    bridge = extension(surface="fanuot")
    out, err = bridge.leave()
    assert (bridge.process.returncode, out) == (2, b"")
    assert b"Did you mean fanout?" in err


# -- what a host draws and remembers ---------------------------------------------------------------


def drawn(lines: list[list[list[str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_a_result_is_drawn_as_the_windows_of_its_runs(extension):
    script = [{"call": "ls", "args": {"path": "src"}, "returns": "a.py\nb.py\nlib/"}, {"say": "one\ntwo"}]
    bridge = extension(surface="fanout", script=script)
    tasks = [{"name": "first", "prompt": "p"}, {"name": "second", "prompt": "p", "profile": "nobody"}]
    bridge.call("a", "delegate_to_subagents", {"tasks": tasks})
    answer = bridge.until("result")[-1]
    header, *lines = drawn(answer["view"]["lines"])
    assert header == "Sub-agents: 1 done, 1 error"
    assert lines[0].startswith("✓ first (scripted) • 1 tools • ")
    assert lines[1:5] == ["  ls → src", "    2 files, 1 dir", "  one", "  two"]
    assert lines[5].startswith("✗ second • nobody")
    assert lines[6].startswith("  Unknown agent: nobody.")
    assert lines[7] == f"Sessions: {', '.join(answer['result']['details']['sessionIds'])}"
    styles = {style for line in answer["view"]["lines"] for _, style in line}
    assert styles == {"name", "good", "muted", "error", ""}
    assert drawn(answer["view"]["expanded"]) == [header, *lines]


def test_a_call_without_runs_is_not_drawn(extension):
    bridge = extension(surface="fanout")
    bridge.call("a", "list_subagent_profiles", {})
    assert "view" not in bridge.heard()


def test_time_passes_in_the_picture_of_a_run_that_says_nothing(extension):
    bridge = extension(surface="fanout", script=HANGS)
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]}, partials=True)
    while not re.search(r"• [1-9]\d*s/600s", drawn(bridge.heard()["view"]["lines"])[1]):
        pass


def test_each_run_is_told_for_remembering_as_soon_as_it_has_ended(extension, tmp_path):
    script = {"agents": {"explorer": [{"say": "done"}], "tester": HANGS}}
    (tmp_path / "both.json").write_text(json.dumps(script))
    bridge = extension(surface="fanout", RETINUE_SCRIPT=str(tmp_path / "both.json"))
    tasks = [{"name": f"by {name}", "prompt": "look", "profile": name} for name in ("explorer", "tester")]
    bridge.call("a", "delegate_to_subagents", {"tasks": tasks})
    _, ended = bridge.line(), bridge.line()
    session = ended["session"]
    assert (ended["type"], ended["id"]) == ("ended", "a")
    assert session.pop("startedAt") > 1e12
    assert len(session.pop("sessionId")) == 16
    assert session == {
        "taskName": "by explorer",
        "prompt": "look",
        "cwd": str(tmp_path),
        "profileName": "explorer",
        "status": "completed",
        "messages": [],
        "exitCode": 0,
        "model": "scripted",
        "stopReason": "stop",
        "errorMessage": None,
    }
    bridge.say({"type": "cancel", "id": "a"})
    again, result = bridge.line(), bridge.line()
    assert (again["session"]["status"], again["session"]["exitCode"]) == ("error", 130)
    assert again["session"]["errorMessage"].startswith("Stopped before it was done")
    assert result["type"] == "result"
