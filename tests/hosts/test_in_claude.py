"""Tests in the real Claude Code after `retinue install claude`: its model calls our tools and reads the answers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.real.claude_install import claude_environ, need_claude
from tests.support.model_server import ModelServer

from retinue.engines.claude.installation import find_claude

pytestmark = [pytest.mark.process, pytest.mark.real]

PATIENCE = 60.0
ANSWER = "A scripted answer of explorer to: look"
TASK = {"agent": "explorer", "task": "look"}
TASKS = {"tasks": [{"name": "a", "prompt": "look", "profile": "explorer"}]}


@pytest.fixture(autouse=True, scope="module")
def claude() -> None:
    need_claude()


async def read_results(place: Path, *steps: tuple[str, dict[str, Any]], arguments: tuple[str, ...] = ()) -> list[str]:
    """Run Claude Code with these tool calls and return the results its model reads; `@` is the last id in them."""

    def decide(request: Any) -> dict[str, Any]:
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn == len(steps):
            return {"text": "Done."}
        tool, given = steps[turn]
        read = "".join(message.text for message in request.messages if message.role == "tool")
        last = (re.findall(r"\b[0-9a-f]{16}\b", read) or [""])[-1]
        args = {name: last if value == "@" else value for name, value in given.items()}
        return {"tool": f"mcp__retinue__{tool}", "args": args}

    async with ModelServer() as server:
        server.script = decide
        # A model that is a script does not search for tools, and cannot wait until they are there.
        waits = {"ENABLE_TOOL_SEARCH": "0", "MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}
        environ = claude_environ(place / "home", server.url, **waits)
        ours = [
            sys.executable,
            "-m",
            "retinue",
            "install",
            "claude",
            "--yes",
            "--",
            "--engine",
            "scripted",
            *arguments,
        ]
        asked = ["-p", "Go.", "--model", "scripted-1", "--allowedTools", "mcp__retinue"]
        for command in (ours, [str(find_claude({"PATH": ""})), *asked]):
            with anyio.fail_after(PATIENCE):
                await anyio.run_process(command, cwd=place, env=environ, stdin=subprocess.DEVNULL)
        return [message.text for message in server.requests[-1].messages if message.role == "tool"]


async def test_model_of_claude_code_reads_the_answer_of_an_agent(tmp_path):
    (said,) = await read_results(tmp_path, ("subagent", TASK))
    assert ANSWER in said


async def test_model_of_claude_code_fetches_the_answers_of_many_agents_by_session(tmp_path):
    delegated, fetched, profiles = await read_results(
        tmp_path,
        ("delegate_to_subagents", TASKS),
        ("get_subagent_output", {"sessionId": "@"}),
        ("list_subagent_profiles", {}),
    )
    assert "✓ a: completed (session: " in delegated
    assert ANSWER not in delegated
    assert ANSWER in fetched
    assert "No subagent profiles found." in profiles


async def test_model_of_claude_code_starts_background_work_and_waits_for_it(tmp_path):
    started, waited = await read_results(
        tmp_path, ("subagent_start", TASK), ("subagent_wait", {"id": "@"}), arguments=("--background",)
    )
    assert '"id":"' in started
    assert ANSWER in waited
