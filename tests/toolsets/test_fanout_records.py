"""Stored sessions of `fanout`: other processes, crashes, write errors, damage and large sessions."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from retinue.engines.scripted import reply
from retinue.model.event_codec import EventRecord, EventSource, to_line
from retinue.model.events import MessageEnded, RunEnded, RunQueued, RunStarted, Text, ToolReturned
from retinue.model.results import AnswerStatus
from retinue.sessions.paths import StateLayout
from retinue.sessions.segments import SegmentHeader
from retinue.testing.stores import run_spec

OUTPUT, SESSION = "get_subagent_output", "get_subagent_session"
ID = "a1b2c3d4e5f6a7b8" + "0" * 16
INTERRUPTED = "Session was interrupted (main agent session ended unexpectedly)"


@pytest.fixture
def anyio_backend():
    return "asyncio"  # the store writes files in threads, which a virtual clock would overtake


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


async def test_ended_session_is_stored_and_readable_by_another_process(fanout, state):
    async with fanout(lambda spec: [reply(f"done by {spec.name}")], state=state) as host:
        ids = (await host.delegate("a", {"name": "b", "prompt": "x", "profile": "nobody"})).details["sessionIds"]
    async with fanout(state=state) as host:
        results = [await host.fetch(OUTPUT, name) for name in ids]
    assert [result.text for result in results] == ["done by a", "(no text output from sub-agent)"]
    assert [result.details["status"] for result in results] == ["completed", "error"]


async def test_session_is_resumed_in_another_process(fanout, state):
    async with fanout(reply("One."), state=state) as host:
        (session,) = (await host.delegate("a")).details["sessionIds"]
    async with fanout(reply("Two."), state=state) as host:
        await host.delegate({"name": "b", "prompt": "Go on.", "resume": session})
        result = await host.fetch(SESSION, session)
    assert "\nAssistant: One.\n" in host.specs[0].prompt
    assert result.text == "=== Run 1/2 (completed) ===\nOne.\n---\n=== Run 2/2 (completed) ===\nTwo."


DIES = """
import os, sys
import anyio
from pathlib import Path
from retinue.client import Retinue
from retinue.engines.base import EngineInfo
from retinue.engines.scripted import CAPABILITIES, RunCallback, ScriptedEngine, call
from retinue.model.events import Text

async def die():
    os._exit(9)

async def main():
    engine = ScriptedEngine(Text("Half of it."), call("ls"), RunCallback(die))
    kind = EngineInfo(name="scripted", capabilities=CAPABILITIES, make=lambda: engine, not_installed_reason=lambda: None)
    async with Retinue(cwd=sys.argv[1], state=sys.argv[2], engine="scripted", engines={"scripted": kind}) as retinue:
        tools = retinue.toolset("fanout").handlers
        tasks = {"tasks": [{"name": "a", "prompt": "x"}]}
        await tools["delegate_to_subagents"](tasks, retinue.call("fanout"), None)

anyio.run(main)
"""


@pytest.mark.process
def test_run_of_a_dead_process_is_an_error_with_its_output_kept(fanout, state, tmp_path):
    import anyio

    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path), str(state)], timeout=30, check=False)
    assert died.returncode == 9

    async def look():
        async with fanout(reply("Done."), state=state) as host:
            (session,) = await host.retinue.sessions()
            output, whole = await host.fetch(OUTPUT, session.session), await host.fetch(SESSION, session.session)
            await host.delegate({"name": "b", "prompt": "Go on.", "resume": session.session[:16]})
        return output, whole, host.specs[0].prompt

    output, whole, prompt = anyio.run(look)
    assert (output.text, output.details["status"]) == ("Half of it.", "error")
    assert whole.text == f"Half of it.\n→ ls: {{}}\n[tool result]: \n[Error: {INTERRUPTED}]"
    assert "--- Run 1 (error, 3 messages) ---\nUser: x\nAssistant: Half of it.\n" in prompt
    assert f"[Error: {INTERRUPTED}]\n\nInstructions:\n\nGo on." in prompt


async def test_store_write_error_fails_no_task(fanout, tmp_path):
    (tmp_path / "file").touch()
    async with fanout(reply("done"), state=tmp_path / "file" / "state") as host:
        result = await host.delegate("a", "b")
    assert [window["status"] for window in result.details["windows"]] == ["completed", "completed"]
    assert any("!" in line for line in result.details["windows"][0]["lines"])


# -- incomplete sessions -------------------------------------------------------------------


def write_session(state: Path, *events) -> Path:
    """Write the record of a session as a store would."""
    folder = StateLayout(state).session(ID)
    folder.mkdir(parents=True)
    origin = EventSource.of(run_spec(ID))
    stamped = [EventRecord(origin, number, 1000.0 + number, event) for number, event in enumerate(events, 1)]
    file = folder / "session.jsonl"
    file.write_bytes(b"".join([SegmentHeader(id=ID, created=1000.0).to_line(), *map(to_line, stamped)]))
    return file


QUEUED = RunQueued(name="a", agent="default", task="x", cwd="/", surface="fanout")
DONE = RunEnded(text="Done.", answer=AnswerStatus.FINAL)


@pytest.mark.parametrize(
    "left",
    [None, b"", b"{", b"\x00" * 4096, b'{"v":99,"type":"session"}\n'],
    ids=["no file", "empty", "torn", "zeros", "newer"],
)
async def test_session_that_never_started_is_not_found(fanout, state, left):
    folder = StateLayout(state).session(ID)
    folder.mkdir(parents=True)
    if left is not None:
        (folder / "session.jsonl").write_bytes(left)
    async with fanout(reply("done"), state=state) as host:
        results = [await host.fetch(tool, ID[:16]) for tool in (OUTPUT, SESSION)]
        resumed = await host.delegate("innocent", {"name": "a", "prompt": "x", "resume": ID[:16]})
    sentence = f'session "{ID[:16]}" not found. The session may have expired or the ID is incorrect.'
    assert {result.text for result in results} == {sentence.replace("session", "Session", 1)}
    assert (resumed.text, resumed.is_error, host.specs) == (f"Cannot resume: {sentence}", True, [])


async def test_session_without_an_end_is_readable_and_resumable(fanout, state):
    file = write_session(state, QUEUED, RunStarted(), Text("Half."))
    file.write_bytes(file.read_bytes() + b'{"v":1,"seq":4,"ti')
    async with fanout(reply("Done."), state=state) as host:
        whole = await host.fetch(SESSION, ID[:16])
        resumed = await host.delegate({"name": "a", "prompt": "Go on.", "resume": ID[:16]})
    assert whole.text.startswith(f"Half.\n[Error: {INTERRUPTED}]")
    assert resumed.text.startswith("✓ a: completed")
    assert "Assistant: Half.\n" in host.specs[0].prompt


async def test_damaged_session_records_are_skipped_and_counted(fanout, state):
    file = write_session(state, QUEUED, RunStarted(), Text("Kept."), Text("Lost."), DONE)
    file.write_bytes(file.read_bytes().replace(b'"Lost."', b'"Lost.'))
    async with fanout(state=state) as host:
        whole = await host.fetch(SESSION, ID[:16])
    assert whole.text == "Kept.\n---\n[Error: 1 records of this session could not be read and were skipped]"


async def test_session_of_50_mb_is_read_in_bounded_memory(fanout, state):
    returned = ToolReturned("c", "read", "x" * 100_000)
    write_session(
        state, QUEUED, RunStarted(), *[returned] * 500, Text("Done."), MessageEnded(stop_reason="stop"), DONE
    )
    assert (StateLayout(state).session(ID) / "session.jsonl").stat().st_size > 50 * 10**6
    async with fanout(state=state) as host:
        tracemalloc.start()
        try:
            output, small = await host.fetch(OUTPUT, ID[:16]), tracemalloc.get_traced_memory()[1]
            whole, large = await host.fetch(SESSION, ID[:16]), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert output.text == "Done."
    assert whole.text.count("[tool result]: xxx") == 500
    assert whole.details["messageCount"] == 502
    assert (small < 4 * 2**20, large < 16 * 2**20) == (True, True)
