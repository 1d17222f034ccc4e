"""An agent called by the model of each real host reaches its own model, with only what `retinue install` wrote.

Hosts start MCP servers with few variables: Codex passes none of the user's, Gemini CLI no keys. `install` writes the
names of those that the engine needs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Struct
from tests.hosts.test_in_codex import CONFIG as CODEX
from tests.hosts.test_programs import PROGRAMS_BY_NAME, HostHome
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.process, pytest.mark.real]

PATIENCE = 120.0
ANSWER = "The model of the agent has answered."


class HostSetup(Struct, frozen=True, kw_only=True):
    """How a host is run once with a model of this server."""

    tool: str
    """Our tool in its model's requests."""
    arguments: tuple[str, ...]
    configure: Callable[[str], str]
    """Returns its configuration for the address of the server."""
    environ: Callable[[str], Mapping[str, str]]


def configure_opencode(url: str) -> str:
    local = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"scripted-1": {"name": "scripted-1"}},
    }
    return json.dumps({"provider": {"local": local}, "model": "local/scripted-1", "autoupdate": False})


SETUPS = {
    "claude": HostSetup(
        tool="mcp__retinue__subagent",
        arguments=("-p", "Go.", "--model", "scripted-1", "--allowedTools", "mcp__retinue"),
        configure=lambda _: "{}",
        environ=lambda url: {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "none",
            "ENABLE_TOOL_SEARCH": "0",
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_CONNECT_TIMEOUT_MS": "30000",
        },
    ),
    "codex": HostSetup(
        tool="mcp__retinue.subagent",
        arguments=("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Go."),
        configure=lambda url: CODEX.format(url=url),
        environ=lambda _: {"LOCAL_KEY": "none", "HTTP_PROXY": ""},
    ),
    "gemini": HostSetup(
        tool="mcp_retinue_subagent",
        arguments=("--yolo", "--model", "gemini-2.5-pro", "-p", "Go."),
        configure=lambda _: json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}),
        environ=lambda url: {
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_API_KEY": "none",
            "HTTP_PROXY": "",
            "HTTPS_PROXY": "",
        },
    ),
    "opencode": HostSetup(
        tool="retinue_subagent",
        arguments=("run", "--model", "local/scripted-1", "Go."),
        configure=configure_opencode,
        environ=lambda _: {},
    ),
}


@pytest.mark.parametrize("name", SETUPS)
async def test_agent_of_a_host_reaches_its_model_with_the_variables_that_install_named(name, tmp_path: Path):
    setup = SETUPS[name]
    place = HostHome(PROGRAMS_BY_NAME[name], tmp_path)

    def decide(request: Any) -> dict[str, Any]:
        if any(ANSWER in message.text for message in request.messages if message.role == "tool"):
            return {"text": "Done."}
        if setup.tool in request.tools:
            return {"tool": setup.tool, "args": {"agent": "explorer", "task": "look"}}
        if "grep" in request.tools and "ls" in request.tools and "find" in request.tools:
            return {"text": ANSWER}  # our explorer
        if "exec_command" in request.tools:
            return {"tool": "exec_command", "args": {"cmd": "sleep 0.5"}}  # servers start beside the first prompt
        return {"text": "{}"}

    async with ModelServer(decide) as server:
        place.file.parent.mkdir(parents=True, exist_ok=True)
        place.file.write_text(setup.configure(server.url))
        keys = {"OPENAI_API_KEY": "key-of-the-agent", "OPENAI_BASE_URL": f"{server.url}/v1", "RETINUE_ENGINE": "api"}
        environ = {**place.environ, **keys, "RETINUE_MODEL": "openai/scripted-1", **setup.environ(server.url)}
        install = [sys.executable, "-m", "retinue", "install", name, "--yes"]
        for command in (install, [*place.command, *setup.arguments]):
            with anyio.fail_after(PATIENCE):
                await anyio.run_process(command, cwd=place.project, env=environ, stdin=subprocess.DEVNULL)
        results = [message.text for each in server.requests for message in each.messages if message.role == "tool"]
    assert any(ANSWER in text for text in results)
    assert "key-of-the-agent" not in place.file.read_text()
