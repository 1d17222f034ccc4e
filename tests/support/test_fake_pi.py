"""The fake pi behaves as pi does, unless its script says otherwise."""

import json
import subprocess

import pytest
from tests.support.fake_pi import action, encode_script, install_fake_pi

pytestmark = pytest.mark.process


@pytest.fixture
def pi(tmp_path):
    program = install_fake_pi(tmp_path / "bin")

    def run_commands(*commands, args=("--mode", "rpc"), text=None):
        """Return all records it prints for these commands, and its exit code."""
        lines = text or "".join(json.dumps(command) + "\n" for command in commands)
        done = subprocess.run(
            [program, *args], input=lines.encode(), capture_output=True, cwd=tmp_path, timeout=20, check=False
        )
        return [json.loads(line) for line in done.stdout.splitlines()], done.returncode

    return run_commands


def kinds(records) -> list[str]:
    return [record["type"] for record in records]


def answers(records) -> list[str]:
    messages = [record["message"] for record in records if record["type"] == "message_end"]
    return [message["content"][0]["text"] for message in messages if message["role"] == "assistant"]


def test_fake_pi_run_has_the_record_order_of_pi(pi):
    prompt = encode_script(
        action("call", "read", {"path": "x"}, updates=["a", "ab"]), action("say", "Done.", deltas=2)
    )
    records, code = pi({"id": "r1", "type": "prompt", "message": prompt})
    assert code == 0
    assert records[0] == {
        "id": "r1",
        "type": "response",
        "command": "prompt",
        "success": True,
        "data": {"disposition": "started"},
    }
    assert [kind for kind in kinds(records) if not kind.startswith(("message", "turn"))] == [
        "response",
        "agent_start",
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_update",
        "tool_execution_end",
        "agent_end",
        "agent_settled",
    ]
    assert kinds(records).count("message_update") == 2


def test_fake_pi_abort_ends_a_hanging_run_and_is_answered_last(pi):
    records, _ = pi({"type": "prompt", "message": encode_script(action("hang"))}, {"id": "r2", "type": "abort"})
    *_, settled, answer = records
    assert settled == {"type": "agent_settled", "aborted": True}
    assert (answer["id"], answer["command"], answer["success"]) == ("r2", "abort", True)


def test_fake_pi_sessions_are_stored_in_their_files(pi, tmp_path):
    first, second = str(tmp_path / "first.jsonl"), str(tmp_path / "second.jsonl")
    report = encode_script(action("report"))

    def prompt(text):
        return {"type": "prompt", "message": f"{text} {report}"}

    def switch_to(path):
        return {"type": "switch_session", "sessionPath": path}

    args = ("--mode", "rpc", "--session", first)
    records, _ = pi(prompt("one"), switch_to(second), prompt("two"), switch_to(first), prompt("three"), args=args)
    reports = [json.loads(answer) for answer in answers(records)]
    assert [one["prompts"] for one in reports] == [["one"], ["two"], ["one", "three"]]
    assert reports[-1]["served"] == ["one", "two"]
    header, *_ = (tmp_path / "first.jsonl").read_text().splitlines()
    assert json.loads(header)["type"] == "session"


def test_fake_pi_refuses_invalid_session_files(pi, tmp_path):
    (tmp_path / "bad.jsonl").write_text("garbage\n")
    (tmp_path / "gone.jsonl").write_text(json.dumps({"type": "session", "id": "x", "cwd": "/no/such/folder"}) + "\n")
    records, _ = pi(
        *({"type": "switch_session", "sessionPath": str(tmp_path / name)} for name in ("bad.jsonl", "gone.jsonl")),
        {"type": "bogus"},
    )
    assert [record["success"] for record in records] == [False] * 3
    assert "not a valid pi session" in records[0]["error"]
    assert "does not exist" in records[1]["error"]
    assert records[2]["error"] == "Unknown command: bogus"


def test_fake_pi_new_session_resets_its_configuration(pi):
    configure = {"type": "prompt", "message": '/retinue_configure {"tools": ["read", "lsp"]}'}
    records, _ = pi(
        configure, {"type": "new_session"}, {"type": "prompt", "message": encode_script(action("report"))}
    )
    assert records[0]["message"] == 'retinue {"missing": ["lsp"]}'
    assert json.loads(answers(records)[0])["configured"] == {}


def test_fake_pi_answers_one_prompt_in_json_mode(pi, tmp_path):
    args = ("--mode", "json", "-p", "--session", str(tmp_path / "one.jsonl"), "--tools", "read")
    records, code = pi(args=args, text="Hello")
    assert (kinds(records)[0], kinds(records)[-1], code) == ("session", "agent_settled", 0)
    assert "ECHO: Hello" in str(records)
