"""Tests in the real Codex after `retinue install codex`: its model calls our tools and reads the answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.hosts.test_programs import PROGRAMS_BY_NAME, HostHome
from tests.support.model_server import ModelServer

pytestmark = [pytest.mark.process, pytest.mark.real]

PATIENCE = 120.0
OUR_TOOL = "mcp__retinue.subagent"
CONFIG = """\
model = "scripted-1"
model_provider = "local"

[model_providers.local]
name = "local"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LOCAL_KEY"
"""


def decide(request: Any) -> dict[str, Any]:
    read = [message.text for message in request.messages if message.role == "tool"]
    if any("scripted answer" in text for text in read):
        return {"text": "Done."}
    if OUR_TOOL in request.tools:
        return {"tool": OUR_TOOL, "args": {"agent": "explorer", "task": "look"}}
    return {"tool": "exec_command", "args": {"cmd": "sleep 0.5"}}  # servers start beside the first prompt


async def test_model_of_codex_reads_the_answer_of_an_agent(tmp_path: Path) -> None:
    place = HostHome(PROGRAMS_BY_NAME["codex"], tmp_path)
    async with ModelServer() as server:
        server.script = decide
        place.file.parent.mkdir(parents=True)
        place.file.write_text(CONFIG.format(url=server.url))
        environ = {**place.environ, "LOCAL_KEY": "none", "HTTP_PROXY": ""}
        ours = [sys.executable, "-m", "retinue", "install", "codex", "--yes", "--", "--engine", "scripted"]
        unasked = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        for command in (ours, [*place.command, "exec", *unasked, "Go."]):
            with anyio.fail_after(PATIENCE):
                await anyio.run_process(command, cwd=place.project, env=environ, stdin=subprocess.DEVNULL)
        read = [message.text for message in server.requests[-1].messages if message.role == "tool"]
    told = json.loads(read[-1].partition("Output:\n")[2])
    assert told["text"] == "A scripted answer of explorer to: look"
