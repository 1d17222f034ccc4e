"""Behavior of pi itself on which the pi engine relies; tests state where the versions differ."""

from __future__ import annotations

import json
import subprocess

import anyio
import pytest
from tests.real.pi_rpc import QUIET, Record, assistant_messages, kinds, rpc, select_events
from tests.support.model_server import ScriptedTurn, script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(60)]

MODEL = ("--model", "local/scripted-1:low")
SLEEPS = script64([{"tool": "bash", "args": {"command": "echo begun; sleep 600"}}, {"text": "never"}])
READS = script64(
    [{"thinking": "Hm.", "text": "I look.", "tool": "read", "args": {"path": "a.txt"}}, {"text": "XYZZY."}]
)

TURN_WITH_A_TOOL = [
    *("turn_start", "message_start system", "message_end system", "message_start user", "message_end user"),
    *(
        "message_start assistant pending",
        "message_end assistant toolUse",
        "tool_execution_start",
        "tool_execution_end",
    ),
    *("message_start toolResult", "message_end toolResult", "turn_end"),
]
LAST_TURN = ["turn_start", "message_start assistant pending", "message_end assistant stop", "turn_end"]
RUN = ["agent_start", *TURN_WITH_A_TOOL, *LAST_TURN, "agent_end", "agent_settled"]

WARM = """
export default function (pi) {
  let told = {};
  pi.registerCommand("told", { description: "for tests", handler: async (text) => {
    told = JSON.parse(text);
    pi.setActiveTools(told.tools);
  }});
  pi.on("before_agent_start", () => told.system === undefined ? undefined : { systemPrompt: told.system });
}
"""


def has_output(record: Record) -> bool:
    """Return whether the sleeping tool has printed something; a first update comes before that."""
    return record["type"] == "tool_execution_update" and bool(record["partialResult"]["content"])


async def test_pi_in_json_mode_reads_a_file_and_answers(pi, server, project, tmp_path):
    """Only 1.5 also reports how long a tool took, and its result as data."""
    environ = pi.environ_in(tmp_path / "home", server.url)
    command = ["pi", "--mode", "json", *QUIET, *MODEL, "--no-session", "--tools", "read", "--", f"Look. {READS}"]
    done = await anyio.run_process(
        ["/usr/bin/env", *command], cwd=project, env=environ, stdin=subprocess.DEVNULL, check=False
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, b"")
    assert kinds(records) == ["session", *RUN]
    (result,) = select_events(records, "tool_execution_end")
    assert result["result"]["content"] == [{"type": "text", "text": "the secret word is XYZZY\n"}]
    assert ("durationMs" in result, "structuredContent" in result["result"]) == (not pi.is_0_87, not pi.is_0_87)
    assert [message["content"][-1].get("text") for message in assistant_messages(records)] == [None, "XYZZY."]
    assert [(request.tools, request.reasoning) for request in server.requests] == [(("read",), "low")] * 2
    assert list(tmp_path.rglob("*.jsonl")) == []


async def test_pi_rpc_responds_to_a_prompt_before_its_events(pi, server, project, tmp_path):
    """Only 1.5 reports the `disposition` of a prompt and whether the run was aborted."""
    environ = pi.environ_in(tmp_path / "home", server.url)
    async with rpc(pi, environ, project, *MODEL, "--no-session", "--tools", "read") as process:
        response, before = await process.ask("prompt", message=f"Look. {READS}")
        assert before == []
        assert response.get("data") == (None if pi.is_0_87 else {"disposition": "started"})
        records = await process.wait_idle()
        assert kinds(records) == RUN
        assert select_events(records, "agent_end")[0]["willRetry"] is False
        assert records[-1] == {"type": "agent_settled"} | ({} if pi.is_0_87 else {"aborted": False})
        assert await process.end() == (0, b"", b"")


async def test_new_pi_session_resets_history_model_and_extension_state(pi, server, project, tmp_path):
    extension = tmp_path / "warm.js"
    extension.write_text(WARM)
    environ = pi.environ_in(tmp_path / "home", server.url)
    options = (*MODEL, "--no-session", "--tools", "read,bash", "-e", str(extension))
    async with rpc(pi, environ, project, *options) as process:
        told, _ = await process.ask("prompt", message='/told {"tools": ["bash"], "system": "Be brief."}')
        assert told.get("data") == (None if pi.is_0_87 else {"disposition": "handled"})
        await process.ask("set_model", provider="local", modelId="scripted-messages")
        await process.ask("set_thinking_level", level="high")
        await process.prompt("One")
        assert (await process.ask("new_session"))[0]["data"] == {"cancelled": False}
        await process.prompt("Two")
    before, after = server.requests
    assert (before.tools, before.system, before.model) == (("bash",), "Be brief.", "scripted-messages")
    assert (after.tools, after.model, after.reasoning) == (("read", "bash"), "scripted-1", "low")
    assert "Be brief." not in after.system
    assert [message.text for message in after.messages if message.role == "user"] == ["Two"]
    assert list(tmp_path.rglob("*.jsonl")) == []


async def test_failing_pi_command_is_an_event_and_a_leading_space_makes_it_text(pi, server, project, tmp_path):
    extension = tmp_path / "warm.js"
    extension.write_text(WARM)
    environ = pi.environ_in(tmp_path / "home", server.url)
    async with rpc(pi, environ, project, *MODEL, "--no-session", "-e", str(extension)) as process:
        response, (broken,) = await process.ask("prompt", message="/told no-json")
        assert response["success"] is True
        assert (broken["type"], broken["extensionPath"], broken["event"]) == (
            "extension_error",
            "command:told",
            "command",
        )
        await process.prompt(" /told no-json")
        assert server.requests[0].prompt == " /told no-json"


async def test_pi_abort_ends_a_sleeping_tool_and_pi_continues(pi, server, project, tmp_path):
    """The run ends with an empty message whose `stopReason` is `error`. Only 1.5 reports that it was aborted."""
    environ = pi.environ_in(tmp_path / "home", server.url)
    async with rpc(pi, environ, project, *MODEL, "--no-session", "--tools", "bash") as process:
        await process.ask("prompt", message=f"Sleep. {SLEEPS}")
        await process.until(has_output)
        refused, _ = await process.ask("prompt", message="And?")
        assert refused["error"].startswith("Agent is already processing.")
        response, records = await process.ask("abort")
        assert response["success"] is True
        (ended,) = select_events(records, "tool_execution_end")
        assert (ended["isError"], ended["result"]["content"][0]["text"]) == (True, "begun\n\n\nCommand aborted")
        (last,) = assistant_messages(records)
        assert (last["stopReason"], last["errorMessage"]) == ("error", "This operation was aborted")
        assert records[-1] == {"type": "agent_settled"} | ({} if pi.is_0_87 else {"aborted": True})
        assert (
            assistant_messages(await process.prompt(script64([ScriptedTurn(text="Awake.")])))[0]["stopReason"]
            == "stop"
        )


async def test_pi_abort_ends_a_hanging_model_request(pi, server, project, tmp_path):
    environ = pi.environ_in(tmp_path / "home", server.url)
    async with rpc(pi, environ, project, *MODEL, "--no-session") as process:
        await process.ask("prompt", message=script64([ScriptedTurn(text="never", hang=True)]))
        await process.until(
            lambda record: record["type"] == "message_start" and record["message"]["role"] == "assistant"
        )
        _, records = await process.ask("abort")
        assert kinds(records) == ["message_end assistant aborted", "turn_end", "agent_end", "agent_settled"]


async def test_pi_retries_a_failing_model_as_configured_and_reports_the_failure(pi, server, project, tmp_path):
    environ = pi.environ_in(
        tmp_path / "home", server.url, retry={"enabled": True, "maxRetries": 1, "baseDelayMs": 10}
    )
    once = ["agent_start", "turn_start", "message_start assistant error", "message_end assistant error", "turn_end"]
    user = ["message_start user", "message_end user"]
    async with rpc(pi, environ, project, *MODEL, "--no-session") as process:
        await process.prompt("First.")
        records = await process.prompt(script64([{"fail": {"status": 500, "times": -1}}]))
        first = [*once[:2], *user, *once[2:], "agent_end", "auto_retry_start", "entry_appended"]
        assert kinds(records) == [*first, *once, "agent_end", "auto_retry_end", "agent_settled"]
        assert [end["willRetry"] for end in select_events(records, "agent_end")] == [True, False]
        assert select_events(records, "auto_retry_end")[0]["success"] is False
        assert [message["errorMessage"][:5] for message in assistant_messages(records)] == ["500: ", "500: "]
        denied = await process.prompt(script64([{"fail": {"status": 401}}]))
        assert kinds(denied) == [*once[:2], *user, *once[2:], "agent_end", "agent_settled"]
        await process.ask("set_auto_retry", enabled=False)
        (cut,) = assistant_messages(await process.prompt(script64([ScriptedTurn(text="one two", cut=True)])))
        assert (cut["stopReason"], cut["content"], cut["errorMessage"]) == (
            "error",
            [{"type": "text", "text": "one "}],
            "terminated",
        )


async def test_pi_session_is_the_given_file_and_its_header_sets_the_folder(pi, server, project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environ = pi.environ_in(tmp_path / "home", server.url)
    path, other, garbage = (tmp_path / "sessions" / name for name in ("one.jsonl", "other.jsonl", "garbage.jsonl"))
    path.parent.mkdir()
    header = {
        "type": "session",
        "version": 3,
        "id": "our-id",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "cwd": str(elsewhere),
    }
    other.write_text(json.dumps(header) + "\n")
    garbage.write_text("hello\n")
    pwd = script64([{"tool": "bash", "args": {"command": "pwd"}}, {"text": "k"}])
    async with rpc(pi, environ, project, *MODEL, "--session", str(path), "--tools", "bash") as process:
        assert (await process.state())["sessionFile"] == str(path)
        assert not path.exists()
        await process.prompt("Hi")
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        assert [entry["type"] for entry in entries][:3] == ["session", "model_change", "thinking_level_change"]
        assert [entry["message"]["role"] for entry in entries[3:]] == ["system", "user", "assistant"]
        await process.ask("switch_session", sessionPath=str(other))
        assert (await process.state())["sessionId"] == "our-id"
        (ran,) = select_events(await process.prompt(pwd), "tool_execution_end")
        assert ran["result"]["content"][0]["text"] == f"{elsewhere}\n"
        refused, _ = await process.ask("switch_session", sessionPath=str(garbage))
        assert refused["error"].startswith("Session file is not a valid pi session")
        assert (await process.state())["sessionId"] == "our-id"
        await process.ask("switch_session", sessionPath=str(path.with_name("new.jsonl")))
        (ran,) = select_events(await process.prompt(pwd), "tool_execution_end")
        assert ran["result"]["content"][0]["text"] == f"{project}\n"
        assert path.with_name("new.jsonl").exists()


async def test_pi_conversation_continues_over_all_three_apis(pi, server, project, tmp_path):
    environ = pi.environ_in(tmp_path / "home", server.url)
    async with rpc(pi, environ, project, *MODEL, "--no-session", "--tools", "read") as process:
        for model in ("scripted-1", "scripted-responses", "scripted-messages"):
            await process.ask("set_model", provider="local", modelId=model)
            records = await process.prompt(f"Look. {READS}")
            first, last = assistant_messages(records)
            assert [part["type"] for part in first["content"]] == ["thinking", "text", "toolCall"]
            assert [part.get("thinking") or part.get("text") for part in first["content"][:2]] == ["Hm.", "I look."]
            assert last["content"][-1]["text"] == "XYZZY."
    assert [request.path for request in server.requests[::2]] == [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages?beta=true",
    ]


async def test_unknown_model_or_missing_key_fails_in_pi(pi, server, project, tmp_path):
    environ = pi.environ_in(tmp_path / "home", server.url)
    async with rpc(pi, environ, project, "--model", "nobody/nothing", "--no-session") as process:
        code, out, err = await process.end()
        assert (code, out) == (1, b"")
        assert err.startswith(b'Error: Model "nobody/nothing" not found.')
    async with rpc(pi, environ, project, "--model", "anthropic/claude-sonnet-4-5", "--no-session") as process:
        refused, _ = await process.ask("prompt", message="Hi")
        assert refused["error"].startswith("No API key found for anthropic.")
        unknown, _ = await process.ask("set_model", provider="local", modelId="nothing")
        assert (unknown["success"], unknown["error"]) == (False, "Model not found: local/nothing")


async def test_closing_stdin_ends_pi_and_its_tool_without_output(pi, server, project, tmp_path):
    environ = pi.environ_in(tmp_path / "home", server.url)
    async with rpc(pi, environ, project, *MODEL, "--no-session", "--tools", "bash") as process:
        await process.ask("prompt", message=f"Sleep. {SLEEPS}")
        await process.until(has_output)
        code, out, err = await process.end()
        assert (code, err) == (0, b"")
        assert b"agent_end" not in out
