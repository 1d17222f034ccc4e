"""Toolsets on the real pi: session files, profiles and native sessions."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any

import pytest
from tests.real.programs import pi_program
from tests.support.model_server import script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]


@pytest.fixture
def call(pi, server, make_caller, tmp_path):
    return make_caller(pi_program(pi, tmp_path / "home", server.url))


async def test_sticky_session_is_a_growing_file_of_pi(call, project, tmp_path):
    finalize_step = {"tool": "subagent_finalize", "args": {"status": "SUCCESS", "result": "found it"}}
    task = {"agent": "scout", "task": f"Remember 1234. {script64([finalize_step])}"}
    _, (answer,) = await call(task, "sticky")
    session = answer["details"]["sessionId"]
    folder = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:16]
    file = tmp_path / "home" / ".pi" / "subagent-sessions" / folder / f"scout_{session}.jsonl"
    before = file.read_text()
    assert "Remember 1234." in before
    status, _ = await call({**task, "sessionId": session}, "sticky")
    assert status == 0
    assert file.read_text().startswith(before)
    assert file.read_text() != before


DAMAGE = {
    "torn header": lambda content: content[len(content.split(b"\n")[0]) // 2 :],
    "garbage first line": lambda content: b"\x00\xff garbage\n" + content.split(b"\n", 1)[1],
    "garbage only": lambda _: b"\xff\x00 not a session",
    "header without id": lambda content: b'{"type":"session"}\n' + content.split(b"\n", 1)[1],
    "empty": lambda _: b"",
}


@pytest.mark.parametrize(
    ("pi", "damage"), [("pi_0_87", "torn header"), *(("pi_1_5", damage) for damage in DAMAGE)], indirect=["pi"]
)
async def test_damaged_session_file_is_moved_aside_and_the_session_continues(call, server, tmp_path, damage):
    finalize_step = {"tool": "subagent_finalize", "args": {"status": "SUCCESS", "result": "found it"}}
    _, (answer,) = await call({"agent": "scout", "task": f"Remember 1234. {script64([finalize_step])}"}, "sticky")
    session = answer["details"]["sessionId"]
    (file,) = (tmp_path / "home" / ".pi" / "subagent-sessions").glob(f"*/scout_{session}.jsonl")
    damaged = DAMAGE[damage](file.read_bytes())
    file.write_bytes(damaged)
    for number in (1, 2):
        again = {"agent": "scout", "task": f"And now? {script64([finalize_step])}", "sessionId": session}
        status, (answer,) = await call(again, "sticky")
        assert (status, answer["details"]["sessionId"]) == (0, session)
        assert "Remember 1234." in str(server.requests[-1].body), number
    kept = file.with_suffix(".damaged.1.jsonl")
    assert sorted(file.parent.glob(f"scout_{session}*")) == sorted([file, kept])
    assert kept.read_bytes() == damaged
    notice = (
        f"pi cannot read its own session file {file}. The file was moved to {kept}. "
        "The session continues from the stored messages."
    )
    records = [path.read_text() for path in (tmp_path / "state" / "sessions").rglob("*.jsonl")]
    assert sum(record.count(notice) for record in records) == 2, "in the events and in the result of the second run"


# -- fanout ----------------------------------------------------------------------------------------


@pytest.fixture
def delegate(call):
    """Call `delegate_to_subagents` and return its exit code and answer."""

    async def make_call(*tasks: dict[str, Any], **environ: str):
        status, (answer,) = await call({"tasks": tasks}, "fanout", tool="delegate_to_subagents", **environ)
        return status, answer

    return make_call


async def test_fanout_tasks_run_concurrently_on_pi_with_files_and_profiles(delegate, call, server):
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


async def test_fanout_session_continues_as_text_or_natively_as_configured(delegate, server):
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
