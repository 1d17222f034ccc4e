"""The stored session of a `single` run: its id and its file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from retinue.engines.scripted import ScriptedEngine, call, fail, reply
from retinue.model.event_codec import from_line
from retinue.model.events import RunEnded, RunQueued, Thinking
from retinue.sessions.store import SessionState

TOKEN = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def anyio_backend():
    return "asyncio"  # the store writes files in threads, which a virtual clock would overtake


async def test_run_id_finds_the_session(open_host, tmp_path):
    async with open_host(reply("done"), state=tmp_path / "state") as host:
        answer = await host.ask("tester", "Plan the tests")
        found = await host.retinue.session(answer["details"]["runId"])
    assert re.fullmatch(r"[0-9a-f]{8}", answer["details"]["runId"])
    assert (found.agent, found.task, found.surface) == ("tester", "Plan the tests", "single")
    assert found.latest.state is SessionState.COMPLETED


async def test_session_file_exists_and_has_the_run(open_host, tmp_path):
    async with open_host(call("read", path="x"), reply("done"), state=tmp_path / "state") as host:
        answer = await host.ask()
    file = Path(answer["details"]["results"][0]["sessionFile"])
    assert file.is_absolute()
    assert file.suffix == ".jsonl"
    first, *_, last = _events(file)
    assert isinstance(first, RunQueued)
    assert isinstance(last, RunEnded)
    assert (first.task, last.text) == ("Find auth code", "done")


async def test_failure_text_names_the_session_file(open_host, tmp_path):
    async with open_host(reply("half"), fail("400 bad request"), state=tmp_path / "state") as host:
        answer = await host.ask()
    file = answer["details"]["results"][0]["sessionFile"]
    assert _events(Path(file))
    assert answer["content"][0]["text"].endswith(f"\n\nSession file:\n{file}")


async def test_secrets_are_redacted_before_they_are_stored(open_host, tmp_path):
    used = call("bash", command=f"echo {TOKEN}", returns=TOKEN)
    engine = ScriptedEngine.from_scripts([used, reply(f"It is {TOKEN}.")], [Thinking(TOKEN), fail(f"401 {TOKEN}")])
    async with open_host(engine.script_for, state=tmp_path / "state") as host:
        for _ in range(2):
            await host.ask(task=f"Who owns {TOKEN}?")
    written = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert written
    assert not [data for data in written if TOKEN[4:].encode() in data]


async def test_unwritable_session_loses_no_answer(open_host, tmp_path):
    (tmp_path / "state").write_text("in the way")
    async with open_host(reply("done"), state=tmp_path / "state") as host:
        answer = await host.ask()
    warning = "Warning: this session could not be stored. The session exists in memory until this process ends."
    assert answer["content"][0]["text"] == f"done\n\n{warning}"
    assert answer["details"]["results"][0]["output"] == "done"
    assert answer["details"]["results"][0]["exitCode"] == 0


def _events(file):
    _header, *lines = file.read_bytes().splitlines()
    return [from_line(line).event for line in lines]
