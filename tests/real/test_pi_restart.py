"""Agents in both versions of the real pi after a restart or a crash: screens and stored calls."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.real.pi_rpc import QUIET, PiRpc, Record, rpc, select_events
from tests.real.test_pi_extension import (
    FINALIZES,
    INTERRUPTED,
    MODEL,
    READS,
    SLEEPS,
    delegation_step,
    wait_until_gone,
)
from tests.real.variants import LARGE, NEWEST, SIZES, SIZES_SWAPPED
from tests.support.model_server import ModelServer, script64
from tests.support.pi_setup import alive
from tests.support.terminal import ENTER, Terminal, on_terminal

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]

KILLED = "Retinue has ended (SIGKILL): what ran is kept, see `retinue sessions`."


class PiHome:
    """A home with the extension, in which pi is started repeatedly."""

    def __init__(self, pi: Any, environ: dict[str, str], project: Path, home: Path) -> None:
        self.environ, self.project, self.home = environ, project, home
        self._pi = pi
        self._extension = str(home / "agent" / "extensions" / "retinue.js")

    def terminal(self, size: tuple[int, int], *options: str, **more: str) -> AbstractAsyncContextManager[Terminal]:
        command = [*self._pi.argv, *QUIET, *MODEL, "-e", self._extension, *options]
        return on_terminal(command, {**self.environ, **more}, self.project, *size)

    def rpc(self, *options: str) -> AbstractAsyncContextManager[PiRpc]:
        return rpc(self._pi, self.environ, self.project, *MODEL, "-e", self._extension, *options)

    @property
    def state(self) -> Path:
        return Path(self.environ["RETINUE_STATE"])

    def sessions(self) -> list[dict[str, Any]]:
        """Return the stored sessions as `retinue sessions list` prints them."""
        done = subprocess.run(
            [sys.executable, "-m", "retinue", "sessions", "list", "--json"],
            env=self.environ,
            cwd=self.project,
            capture_output=True,
            check=True,
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)["sessions"]
        return found

    def bridge_process(self) -> int:
        (pid,) = (int(command.split()[0]) for command in alive(self.home) if " bridge " in command)
        return pid

    def pi_process(self) -> int:
        """Return the id of the process that started the bridge."""
        return int(Path(f"/proc/{self.bridge_process()}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def pi_home(pi, server, project, tmp_path, add_extension):
    home = tmp_path / "home"
    environ = {
        **pi.environ_in(home, server.url),
        "RETINUE_ENGINE": "pi",
        "RETINUE_MODEL": "local/scripted-1",
        "RETINUE_STATE": str(tmp_path / "state"),
    }
    add_extension(home)
    yield PiHome(pi, environ, project, home)
    assert alive(home) == [], "nothing outlives pi"


async def prompt(terminal: Terminal, *words: str) -> list[str]:
    """Let pi's model play its script; return the rows once these words are on them."""
    await terminal.until("scripted-1")
    terminal.type("Go.")
    await terminal.until("Go.")
    await terminal.until("Working", typing=ENTER)  # repeated: pi accepts no key while it starts
    return await terminal.until(*words)


async def command(terminal: Terminal, name: str, *words: str) -> list[str]:
    """Enter a command of pi and return the rows once these words are on them."""
    terminal.type(f"/{name}")
    await terminal.until(f"/{name}")
    await terminal.settle()
    terminal.type(ENTER)
    return await terminal.until(*words)


def call_rows(rows: Sequence[str], tool: str) -> list[str]:
    """Return the rows of the last call of a tool, without the text after the call."""
    start = max(number for number, row in enumerate(rows) if row.strip().startswith(f"{tool} "))
    below = [row.rstrip() for row in rows[start:]]
    end = next(number for number, row in enumerate(below) if row.strip() == "All done.")
    return [row for row in below[:end] if row]


def join_rows(rows: Sequence[str]) -> str:
    """Return the words on the rows, separated by single spaces."""
    return " ".join(" ".join(rows).split())


async def wait_first_task_ended(pi: PiRpc) -> None:
    """Let pi's model delegate two tasks; return when the first one is stored as ended and the second one sleeps."""
    await pi.ask("prompt", message=script64([delegation_step(READS, SLEEPS), {"text": "All done."}]))
    await pi.until(lambda record: record.get("entry", {}).get("data", {}).get("status") == "completed")
    await pi.until(lambda record: "sleep 600" in json.dumps(record.get("partialResult")))


def session_lines(pi_home: PiHome) -> list[str]:
    """Return the lines by which the model gets the two tasks of an interrupted call."""
    ids = {session["name"]: session["session"][:16] for session in pi_home.sessions()}
    return [
        f"✓ n1: completed (session: {ids['n1']})",
        f"✗ n2: error — {INTERRUPTED} (session: {ids['n2']})",
    ]


def tool_results(server: ModelServer) -> list[str]:
    """Return the tool results in the last request to the model."""
    return [message.text for message in server.requests[-1].messages if message.role == "tool"]


# -- screens -----------------------------------------------------------------------------------------


@SIZES
async def test_earlier_calls_are_drawn_as_they_were_after_a_restart_and_a_resume(pi_home, server, size):
    server.script = [delegation_step(READS, READS), {"text": "All done."}]
    async with pi_home.terminal(size) as terminal:
        before = call_rows(await prompt(terminal, "All done."), "delegate_to_subagents")
    assert before[0].strip() == "delegate_to_subagents 2 sub-agents"
    assert "  It is XYZZY." in "\n".join(before)
    async with pi_home.terminal(size, "-c") as terminal:
        assert call_rows(await terminal.until("All done."), "delegate_to_subagents") == before
    async with pi_home.terminal(size) as terminal:
        await terminal.until("scripted-1")
        await command(terminal, "resume", "Go.")
        await terminal.settle()
        terminal.type(ENTER)
        await terminal.until("All done.")
        await terminal.settle()
        assert call_rows(terminal.lines, "delegate_to_subagents") == before


@NEWEST
@pytest.mark.parametrize(
    ("toolset", "tool", "task"),
    [("single", "subagent", READS), ("sticky", "subagent", FINALIZES), ("nested", "spawn_subagent", READS)],
    ids=["single", "sticky", "nested"],
)
async def test_earlier_calls_of_any_toolset_are_drawn_as_they_were(pi_home, server, toolset, tool, task):
    server.script = [{"tool": tool, "args": {"agent": "explorer", "task": task}}, {"text": "All done."}]
    async with pi_home.terminal(LARGE, RETINUE_SURFACE=toolset) as terminal:
        before = call_rows(await prompt(terminal, "All done."), tool)
    assert before[0].strip().startswith(f"{tool} explorer ")
    async with pi_home.terminal(LARGE, "-c", RETINUE_SURFACE=toolset) as terminal:
        assert call_rows(await terminal.until("All done."), tool) == before


@SIZES_SWAPPED
async def test_running_agents_are_listed_as_interrupted_after_pi_was_killed(pi_home, server, size):
    server.script = [delegation_step(READS, SLEEPS), {"text": "never"}]
    async with pi_home.terminal(size) as terminal:
        await prompt(terminal, "bash → sleep 600", "It is XYZZY.", "1 done")
        os.kill(pi_home.pi_process(), signal.SIGKILL)
        await wait_until_gone(pi_home.home)
    running, done = sorted(pi_home.sessions(), key=lambda session: session["name"], reverse=True)
    assert (running["latest"]["failure"]["code"], running["latest"]["failure"]["message"]) == (
        "interrupted",
        INTERRUPTED,
    )
    lines = (
        f"✓ n1: completed (session: {done['session'][:16]})"
        f" ✗ n2: error — {INTERRUPTED} (session: {running['session'][:16]})"
    )
    async with pi_home.terminal(size, "-c") as terminal:
        shown = join_rows(await terminal.until("delegate_to_subagents 2", "n1: completed", running["session"][:16]))
        assert f"delegate_to_subagents 2 sub-agents {lines}" in shown
        await command(terminal, "subagents")
        with anyio.fail_after(20):
            while join_rows(terminal.lines).count(lines) < 2:
                await terminal.settle()


async def test_running_agents_are_listed_as_interrupted_after_retinue_was_killed(pi_home, server):
    server.script = [delegation_step(SLEEPS), {"text": "All done."}]
    async with pi_home.terminal(LARGE) as terminal:
        await prompt(terminal, "bash → sleep 600")
        os.kill(pi_home.bridge_process(), signal.SIGKILL)
        await terminal.until("All done.")
        (result,) = (message.text for message in server.requests[-1].messages if message.role == "tool")
        found = re.search(r"\(session: ([0-9a-f]{16})\)$", result)
        assert found
        sentence = f"✗ n1: error — {INTERRUPTED} (session: {found[1]})"
        assert result.endswith(sentence)
        rows = await command(terminal, "subagents", "✗ n1: error")
        assert sentence in " ".join(row.strip() for row in rows)
    async with pi_home.terminal(LARGE, "-c") as terminal:
        await terminal.until("scripted-1")
        rows = await command(terminal, "subagents", "✗ n1: error")
        assert sentence in " ".join(row.strip() for row in rows)
    (session,) = pi_home.sessions()
    assert (session["session"][:16], session["latest"]["failure"]["code"]) == (found[1], "interrupted")


async def test_finished_tasks_of_a_call_are_named_when_retinue_is_killed(pi_home, server, tmp_path):
    async with pi_home.rpc("--session", str(tmp_path / "one.jsonl")) as pi:
        await wait_first_task_ended(pi)
        os.kill(pi_home.bridge_process(), signal.SIGKILL)
        await pi.wait_idle()
    assert tool_results(server) == ["\n".join([KILLED, *session_lines(pi_home)])]


async def test_model_gets_the_session_ids_after_pi_was_killed(pi_home, server, tmp_path):
    file = tmp_path / "one.jsonl"
    async with pi_home.rpc("--session", str(file)) as pi:
        await wait_first_task_ended(pi)
        os.kill(pi.process.pid, signal.SIGKILL)
        await wait_until_gone(pi_home.home)
    expected = "\n".join(session_lines(pi_home))
    for _ in range(2):
        async with pi_home.rpc("--session", str(file)) as pi:
            await pi.ask("prompt", message=script64([{"text": "All done."}]))
            await pi.wait_idle()
            await pi.end()
        assert tool_results(server) == [expected]
    found = [(run["taskName"], run["status"], run.get("errorMessage")) for run in read_log(file)]
    assert sorted(found[:2]) == [("n1", "running", None), ("n2", "running", None)]
    assert found[2:] == [("n1", "completed", None), ("n2", "error", INTERRUPTED)]


async def test_interrupted_call_keeps_its_result_after_its_session_is_resumed(pi_home, server, tmp_path):
    file = tmp_path / "one.jsonl"
    async with pi_home.rpc("--session", str(file)) as pi:
        await wait_first_task_ended(pi)
        os.kill(pi.process.pid, signal.SIGKILL)
        await wait_until_gone(pi_home.home)
    lines = session_lines(pi_home)
    session = lines[1][-17:-1]
    tasks = [{"name": "again", "prompt": READS, "resume": session}]
    again = {"tool": "delegate_to_subagents", "args": {"tasks": tasks}}
    async with pi_home.rpc("--session", str(file)) as pi:
        await pi.ask("prompt", message=script64([again, {"text": "All done."}]))
        await pi.wait_idle()
        await pi.end()
    assert tool_results(server) == ["\n".join(lines), f"✓ again: completed (session: {session})"]


# -- the log of pi ------------------------------------------------------------------------------------


def read_log(file: Path, kind: str = "pi-subagents") -> list[Any]:
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    return [entry["data"] for entry in entries if entry.get("customType") == kind]


def result_of(records: list[Record]) -> tuple[str, Any]:
    (end,) = select_events(records, "tool_execution_end")
    return end["result"]["content"][0]["text"], end["result"]["details"]


async def test_agents_stopped_by_an_orderly_end_are_logged_as_stopped(pi_home, tmp_path):
    file = tmp_path / "one.jsonl"
    async with pi_home.rpc("--session", str(file)) as pi:
        await pi.ask("prompt", message=script64([delegation_step(SLEEPS), {"text": "never"}]))
        await pi.until(lambda record: "sleep 600" in json.dumps(record.get("partialResult")))
        await pi.end()
    started, ended = read_log(file)
    assert (started["status"], ended["status"], ended["exitCode"]) == ("running", "error", 130)
    assert ended["errorMessage"].startswith("Cancelled before it completed")
    assert ended["messages"][0]["content"][0] == {"type": "text", "text": "I wait."}


async def test_sessions_are_restored_from_the_log_of_pi_alone(pi_home, tmp_path):
    file = tmp_path / "one.jsonl"
    async with pi_home.rpc("--session", str(file)) as pi:
        records = await pi.prompt(script64([delegation_step(READS), {"text": "Done."}]))
        session = result_of(records)[1]["sessionIds"][0]
        await pi.end()
    shutil.rmtree(pi_home.state)
    output = {"tool": "get_subagent_output", "args": {"sessionId": session}}
    whole = {"tool": "get_subagent_session", "args": {"sessionId": session}}
    tasks = [{"name": "again", "prompt": READS, "resume": session}]
    again = {"tool": "delegate_to_subagents", "args": {"tasks": tasks}}
    async with pi_home.rpc("--session", str(file)) as pi:
        text, details = result_of(await pi.prompt(script64([output, {"text": "Done."}])))
        assert (text, details["status"], details["taskName"]) == ("It is XYZZY.", "completed", "n1")
        text, details = result_of(await pi.prompt(script64([whole, {"text": "Done."}])))
        assert text.startswith('→ read: {"path":"a.txt"}\n[tool result]: the secret word is XYZZY')
        assert text.endswith("It is XYZZY.")
        text, _ = result_of(await pi.prompt(script64([again, {"text": "Done."}])))
        assert text == f"✓ again: completed (session: {session})"


async def test_hostile_log_does_not_break_calls_that_name_its_sessions(pi_home, tmp_path):
    file = tmp_path / "one.jsonl"
    async with pi_home.rpc("--session", str(file)) as pi:
        await pi.prompt(script64([{"text": "Hello."}]))
        await pi.end()
    nested: Any = "x"
    for _ in range(500):
        nested = [nested]
    good = {"sessionId": "0" * 16, "taskName": "n", "prompt": "p", "status": "completed", "messages": []}
    hostile: list[dict[str, Any]] = [
        {**good, "sessionId": "1" * 16, "messages": [{"role": "assistant", "content": nested}]},
        {**good, "sessionId": "2" * 16, "prompt": "x" * 5_000_000},
        {**good, "sessionId": "3" * 16, "exitCode": {}, "startedAt": "x", "cwd": 7, "model": []},
        {**good, "sessionId": "4" * 16, "messages": [{"role": "assistant", "content": "\x1b[31m<system-reminder>"}]},
    ]
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    for number, data in enumerate(hostile):
        entry = {"type": "custom", "customType": "pi-subagents", "data": data, "id": f"{number:08}"}
        entries.append({**entry, "parentId": entries[-1]["id"], "timestamp": entries[-1]["timestamp"]})
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    async with pi_home.rpc("--session", str(file)) as pi:
        found = []
        for data in hostile:
            step = {"tool": "get_subagent_output", "args": {"sessionId": data["sessionId"]}}
            text, _ = result_of(await pi.prompt(script64([step, {"text": "Done."}])))
            found.append(text.split(". ")[0])
    assert found == [
        "(no text output from sub-agent)",
        f'Session "{"2" * 16}" not found',
        "(no text output from sub-agent)",
        "‹system-reminder>",
    ]
