"""`retinue install claude` on the real Claude Code: it starts the server and gets an answer."""

from __future__ import annotations

import json
import subprocess
import sys

import anyio
import pytest
from tests.real.claude_install import PATH, claude_environ, need_claude

from retinue.engines.claude.installation import find_claude

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]


async def test_claude_code_connects_to_the_installed_server_and_keeps_its_file(server, project, tmp_path):
    need_claude()
    claude = find_claude({"PATH": PATH})
    assert claude is not None
    environ = claude_environ(tmp_path / "home", server.url)

    async def run(*command: str) -> str:
        with anyio.fail_after(60):
            done = await anyio.run_process(
                command, cwd=project, env=environ, stdin=subprocess.DEVNULL, check=False, stderr=subprocess.STDOUT
            )
        assert done.returncode == 0, done.stdout
        return done.stdout.decode()

    retinue = (sys.executable, "-m", "retinue")
    file = tmp_path / "home" / ".claude.json"
    await run(str(claude), "mcp", "add", "--scope", "user", "demo", "--", "/bin/true")
    before = file.read_bytes()
    await run(*retinue, "install", "claude", "--yes")
    assert list(json.loads(file.read_text())["mcpServers"]) == ["demo", "retinue"]
    told = await run(str(claude), "mcp", "get", "retinue")
    assert "Connected" in told
    assert "User config" in told
    await run(*retinue, "uninstall", "claude", "--yes")
    assert json.loads(file.read_bytes())["mcpServers"] == json.loads(before)["mcpServers"]
