"""The session data that the bridge sends for the log of a host, and the restore of sessions from such data."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pytest
from tests.support.bridge_extension import HANGS, INTERRUPTED, Extension, result_text, run_retinue

from retinue.config.directories import state_folder
from retinue.ipc.messages import SessionData
from retinue.model.events import MessageEnded, RunEnded, Text, ToolCalled, ToolReturned
from retinue.model.results import AnswerStatus
from retinue.servers.bridge.session_data import (
    MAX_CALL_BYTES,
    MAX_TASK_BYTES,
    MessageLog,
    count_encoded_bytes,
    to_past_run,
)

pytestmark = pytest.mark.process

WORKS = [{"call": "read", "args": {"path": "a.py"}, "returns": "x = 1"}, {"say": "It is XYZZY."}]
MESSAGES: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": [{"type": "toolCall", "id": "1", "name": "read", "arguments": {"path": "a.py"}}],
    },
    {
        "role": "toolResult",
        "toolCallId": "1",
        "toolName": "read",
        "content": [{"type": "text", "text": "x = 1"}],
        "isError": False,
    },
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "It is XYZZY."}],
        "model": "scripted",
        "stopReason": "stop",
    },
]


def delegate(bridge: Extension, id_: str = "a", *names: str, **task: Any) -> None:
    tasks = [{"name": name, "prompt": "look", **task} for name in names or ("n",)]
    bridge.call(id_, "delegate_to_subagents", {"tasks": tasks})


def sessions_until_result(bridge: Extension) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the data of the `started` and `ended` messages, and the result."""
    found = []
    while (message := bridge.read_message())["type"] != "result":
        if message["type"] in {"started", "ended"}:
            assert message["type"] == ("started" if message["session"]["status"] == "running" else "ended")
            found.append(message["session"])
    return found, message


def test_session_data_is_sent_at_start_and_with_messages_at_end(extension, tmp_path):
    bridge = extension(toolset="fanout", script=WORKS)
    delegate(bridge, profile="explorer")
    (started, ended), _ = sessions_until_result(bridge)
    for data in (started, ended):
        assert data.pop("startedAt") > 1e12
        assert len(data.pop("sessionId")) == 16
    common = {"taskName": "n", "prompt": "look", "cwd": str(tmp_path), "profileName": "explorer"}
    assert started == {
        **common,
        "status": "running",
        "messages": [],
        "exitCode": None,
        "model": None,
        "stopReason": None,
        "errorMessage": None,
    }
    calls, result, answer = ended.pop("messages")
    assert [calls["content"][0]["name"], result["content"], answer] == ["read", MESSAGES[1]["content"], MESSAGES[2]]
    assert ended == {
        **common,
        "status": "completed",
        "exitCode": 0,
        "model": "scripted",
        "stopReason": "stop",
        "errorMessage": None,
    }


def test_session_data_is_sent_as_soon_as_each_run_ends(extension, tmp_path):
    script = {"agents": {"explorer": [{"say": "done"}], "tester": HANGS}}
    (tmp_path / "both.json").write_text(json.dumps(script))
    bridge = extension(toolset="fanout", RETINUE_SCRIPT=str(tmp_path / "both.json"))
    tasks = [{"name": f"by {name}", "prompt": "look", "profile": name} for name in ("explorer", "tester")]
    bridge.call("a", "delegate_to_subagents", {"tasks": tasks})
    while (ended := bridge.read_message())["type"] != "ended":
        pass
    assert (ended["id"], ended["session"]["taskName"]) == ("a", "by explorer")
    bridge.send({"type": "cancel", "id": "a"})
    again, result = bridge.read_message(), bridge.read_message()
    assert (again["session"]["status"], again["session"]["exitCode"]) == ("error", 130)
    assert again["session"]["errorMessage"].startswith("Cancelled before it completed")
    assert result["type"] == "result"


def test_secrets_are_redacted_in_session_data(extension):
    secret = "sk-ant-api03-" + "a1B2c3D4" * 6
    script = [{"call": "bash", "args": {"command": f"echo {secret}"}, "returns": secret}, {"say": f"It is {secret}."}]
    bridge = extension(toolset="fanout", script=script)
    bridge.call("a", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": f"use {secret}"}]})
    sent, _ = sessions_until_result(bridge)
    assert secret not in json.dumps(sent)
    assert json.dumps(sent).count("[ANTHROPIC_KEY_REDACTED]") == 5, "two prompts, a call, its result, the answer"


def test_shutdown_stops_the_runs_and_answers_their_call(extension):
    bridge = extension("--root", "c1", toolset="fanout", script=HANGS)
    delegate(bridge, "a", "n1", "n2")
    while bridge.read_message()["type"] != "started":
        pass
    bridge.send({"type": "shutdown"})
    sent, result = sessions_until_result(bridge)
    assert [data["status"] for data in sent][-2:] == ["error", "error"]
    assert [window["status"] for window in result["result"]["details"]["windows"]] == ["error", "error"]
    assert bridge.close() == (b"", b"")
    assert bridge.process.returncode == 0
    assert {event["failure"]["code"] for event in run_retinue("events", "c1") if event["type"] == "run_ended"} == {
        "aborted"
    }


# -- bounds ------------------------------------------------------------------------------------------


def test_session_data_has_answer_and_newest_messages_within_256_kib():
    log = MessageLog()
    for number in range(2_000):
        log.add(ToolCalled(f"c{number}", "bash", {"command": "x" * 100_000, "deep": [[["y" * 9_000]]]}))
        log.add(ToolReturned(f"c{number}", "bash", "z\x00\ud83d" * 5_000))
    log.add(Text("\n".join(map(str, range(1_000_000)))))
    log.add(MessageEnded(stop_reason="stop", model="m"))
    answer = "The answer. " * 10_000
    messages = log.newest(RunEnded(text=answer, answer=AnswerStatus.FINAL), MAX_TASK_BYTES)
    assert messages[-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": answer}],
        "model": "m",
        "stopReason": "stop",
    }
    data = SessionData(session_id="0" * 16, task_name="n", prompt="p", status="completed", messages=messages)
    assert count_encoded_bytes(data) <= MAX_TASK_BYTES + 1_000


def test_answer_beyond_the_limit_keeps_its_beginning():
    text = "\x01" * MAX_TASK_BYTES  # six bytes each in JSON
    (message,) = MessageLog().newest(RunEnded(text=text, answer=AnswerStatus.FINAL), MAX_TASK_BYTES)
    kept = message["content"][0]["text"]
    assert kept.removesuffix(" [… cut in this log]").strip("\x01") == ""
    assert len(kept) > MAX_TASK_BYTES // 8


def test_session_data_of_a_call_stays_within_1_mib_with_every_answer(extension):
    flood = [{"event": {"type": "text", "text": "x" * 60_000}}] * 10
    bridge = extension(toolset="fanout", script=[*flood, {"say": "y" * 60_000}])
    delegate(bridge, "a", *(f"n{number}" for number in range(16)), prompt="p" * 100_000)
    sent, _ = sessions_until_result(bridge)
    assert len(sent) == 32
    assert sum(len(json.dumps(data)) for data in sent) <= MAX_CALL_BYTES
    assert all(data["messages"] for data in sent if data["status"] == "completed")


# -- restore -------------------------------------------------------------------------------


@pytest.fixture
def stored_runs(extension) -> list[dict[str, Any]]:
    """Return the data of two runs of one session that Retinue's own store has lost."""
    bridge = extension(toolset="fanout", script=WORKS)
    delegate(bridge, "a", "first")
    (_, first), _ = sessions_until_result(bridge)
    delegate(bridge, "b", "second", resume=first["sessionId"])
    (_, second), _ = sessions_until_result(bridge)
    bridge.close()
    shutil.rmtree(state_folder(os.environ))
    return [first, second]


def test_session_is_restored_from_the_data_of_its_runs(extension, stored_runs):
    session = stored_runs[0]["sessionId"]
    bridge = extension(toolset="fanout", script=WORKS)
    bridge.call("lost", "get_subagent_output", {"sessionId": session})
    assert result_text(bridge.receive()).startswith(f'Session "{session}" not found.')
    bridge.send({"type": "restore", "sessions": stored_runs})
    bridge.call("output", "get_subagent_output", {"sessionId": session})
    output = bridge.receive()["result"]
    assert output["content"][0]["text"] == "It is XYZZY."
    assert output["details"] == {
        "sessionId": session,
        "status": "completed",
        "taskName": "second",
        "runCount": 2,
        "maxLines": 15,
    }
    bridge.call("session", "get_subagent_session", {"sessionId": session})
    whole = bridge.receive()["result"]
    assert whole["content"][0]["text"].count('→ read: {"path":"a.py"}\n[tool result]: x = 1\nIt is XYZZY.') == 2
    assert whole["details"]["messageCount"] == 8
    delegate(bridge, "again", "third", resume=session)
    _, result = sessions_until_result(bridge)
    assert result["result"]["details"]["sessionIds"] == [session]


def test_restore_does_not_replace_a_stored_session(extension):
    bridge = extension(toolset="fanout", script=WORKS)
    delegate(bridge)
    (_, ended), _ = sessions_until_result(bridge)
    forged = {**ended, "messages": [{"role": "assistant", "content": "Forged."}]}
    bridge.send({"type": "restore", "sessions": [forged]})
    bridge.call("output", "get_subagent_output", {"sessionId": ended["sessionId"]})
    assert result_text(bridge.receive()) == "It is XYZZY."


def test_run_that_only_started_is_restored_as_interrupted(extension):
    data = {"sessionId": "feedfeedfeed4eed", "taskName": "n", "prompt": "p", "status": "running", "messages": []}
    bridge = extension(toolset="fanout")
    bridge.send({"type": "restore", "sessions": [data]})
    bridge.call("session", "get_subagent_session", {"sessionId": data["sessionId"]})
    result = bridge.receive()["result"]
    assert result["content"][0]["text"] == f"[Error: {INTERRUPTED['message']}]"
    assert (result["details"]["status"], result["details"]["exitCode"]) == ("error", 1)


def test_secret_in_restored_data_is_redacted_before_it_is_stored(extension):
    secret = "sk-ant-api03-" + "a1B2c3D4" * 6
    data = {"sessionId": "feedfeedfeed4eed", "taskName": "n", "prompt": secret, "status": "completed"}
    bridge = extension("--root", "c1", toolset="fanout")
    message = {"role": "assistant", "content": f"It is {secret}."}
    bridge.send({"type": "restore", "sessions": [{**data, "messages": [message]}]})
    bridge.call("output", "get_subagent_output", {"sessionId": data["sessionId"]})
    assert result_text(bridge.receive()) == "It is [ANTHROPIC_KEY_REDACTED]."
    assert secret not in json.dumps(run_retinue("events", "c1"))


@pytest.mark.parametrize(
    "session",
    [
        {"status": "toString"},
        {"sessionId": "../../../etc"},
        {"sessionId": "__proto__"},
        {"sessionId": 7},
        {"taskName": None},
        {"messages": "none"},
        {"startedAt": "now"},
    ],
    ids=json.dumps,
)
def test_invalid_session_data_is_refused_and_the_next_call_answered(extension, session):
    good = {"sessionId": "feedfeedfeed4eed", "taskName": "n", "prompt": "p", "status": "completed", "messages": []}
    bridge = extension(toolset="fanout")
    bridge.send({"type": "restore", "sessions": [{**good, **session}]})
    bridge.send({"type": "restore", "sessions": []}, {"type": "restore"})
    bridge.call("output", "get_subagent_output", {"sessionId": "feedfeedfeed4eed"})
    while (answer := bridge.receive())["type"] == "refused":
        assert "id" not in answer
    assert result_text(answer).startswith('Session "feedfeedfeed4eed" not found.')


@pytest.mark.parametrize("depth", [1, 99, 300])
def test_deeply_nested_arguments_in_restored_data_do_not_end_the_bridge(extension, depth):
    nested: Any = {"x": 1e308, "y": 2**65, "z": "\ud83d", "": None}
    for _ in range(depth):
        nested = {"x": [nested]}
    call = {"type": "toolCall", "id": "1", "name": "read\u0000\ud83d", "arguments": nested}
    data = {
        "sessionId": "feedfeedfeed4eed",
        "taskName": "n\u0000",
        "prompt": "p",
        "status": "completed",
        "cwd": "\u0000",
    }
    bridge = extension(toolset="fanout")
    for content in ([call], [{"type": "text", "text": "Half \ud83d."}]):
        bridge.send(
            {"type": "restore", "sessions": [{**data, "messages": [{"role": "assistant", "content": content}]}]}
        )
        bridge.call("output", "get_subagent_output", {"sessionId": data["sessionId"]})
        assert bridge.receive_until("result")[-1]["id"] == "output"
    assert bridge.process.poll() is None


def test_invalid_messages_in_restored_data_are_left_out():
    odd: list[Any] = [
        None,
        7,
        [],
        {},
        {"role": 1},
        {"role": "assistant", "content": 7},
        {"role": "spy", "content": "x"},
    ]
    nested: Any = "x"
    for _ in range(500):
        nested = [nested]
    odd += [{"role": "assistant", "content": nested}, {"role": "assistant", "content": [{"type": "text", "text": 1}]}]
    data = SessionData(
        session_id="0" * 16,
        task_name="n" * 10_000,
        prompt="p",
        status="error",
        exit_code=-(10**30),
        error_message="It broke.",
        started_at=1e300,
        messages=(*odd, {"role": "assistant", "content": "Half."}),
    )
    run = to_past_run(data)
    *events, ended = run.events
    assert events == [Text("Half."), MessageEnded(stop_reason="stop")]
    assert isinstance(ended, RunEnded)
    assert (ended.text, ended.answer, ended.exit_code) == ("Half.", AnswerStatus.PARTIAL, 0)
    assert len(run.name) < 2_000
