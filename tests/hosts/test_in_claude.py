"""Tests in the real Claude Code after `retinue install claude`: its model calls our tools and reads the answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.real.claude_install import claude_environ, need_claude
from tests.support.model_server import ModelServer
from tests.support.model_server.script import Decide

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

    messages = await run_claude(place, decide, arguments)
    return [message.text for message in messages if message.role == "tool"]


async def run_claude(place: Path, decide: Decide, arguments: tuple[str, ...] = (), **variables: str) -> Sequence[Any]:
    """Install Retinue in Claude Code, run it with this model, and return the messages of the last request."""
    async with ModelServer(decide) as server:
        # A model that is a script does not search for tools, and cannot wait until they are there.
        waits = {"ENABLE_TOOL_SEARCH": "0", "MCP_CONNECTION_NONBLOCKING": "0", "MCP_CONNECT_TIMEOUT_MS": "30000"}
        environ = {**claude_environ(place / "home", server.url, **waits), **variables}
        install = [sys.executable, "-m", "retinue", "install", "claude", "--yes", "--", "--engine", "scripted"]
        prompt = ["-p", "Go.", "--model", "scripted-1", "--allowedTools", "mcp__retinue"]
        for command in ([*install, *arguments], [str(find_claude({"PATH": ""})), *prompt]):
            with anyio.fail_after(PATIENCE):
                await anyio.run_process(command, cwd=place, env=environ, stdin=subprocess.DEVNULL)
        return server.requests[-1].messages


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


async def test_answer_of_a_call_that_claude_code_moved_to_the_background_reaches_its_model(tmp_path):
    """As after two minutes: shortened here, and switched on for `claude -p`, where it is off."""

    def decide(request: Any) -> dict[str, Any]:
        has_called = any(message.role == "assistant" for message in request.messages)
        return {"text": "I wait."} if has_called else {"tool": "mcp__retinue__subagent", "args": TASK}

    slow = json.dumps({"steps": [{"wait": 2}, {"say": "A slow answer."}]})
    messages = await run_claude(
        tmp_path,
        decide,
        CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS="200",
        CLAUDE_AUTO_BACKGROUND_TASKS="1",
        RETINUE_SCRIPT=slow,
    )
    (result,) = [message.text for message in messages if message.role == "tool"]
    assert "It was moved to the background" in result
    assert "A slow answer." in messages[-1].text
