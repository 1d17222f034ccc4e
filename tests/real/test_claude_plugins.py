"""The names of the agents of plugins: those that the real Claude Code has for the same files."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from tests.real.claude_install import claude_environ, need_claude
from tests.support.repositories import make_repository, write_files

from retinue import Retinue
from retinue.engines.claude.installation import find_claude

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

AGENT = "---\nname: {}\ndescription: Works.\n---\nYou work.\n"


QUIET = {"CLAUDE_CODE_MAX_RETRIES": "0", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"}
FILES = {"agents/alpha.md": "alpha", "agents/deep/beta.md": "beta", "special/x.md": "x"}


class ClaudeCode:
    """The real program in one home."""

    def __init__(self, environ: dict[str, str]) -> None:
        program = find_claude(environ)
        assert program
        self._program, self._environ = program, environ

    async def run(self, *arguments: str, cwd: Path, check: bool = True) -> bytes:
        done = await anyio.run_process([self._program, *arguments], cwd=cwd, env=self._environ, check=check)
        return done.stdout

    async def list_agents(self, cwd: Path) -> set[str]:
        """Return the agents of plugins that it reports when it starts."""
        options = ("--output-format", "stream-json", "--verbose", "--model", "scripted-1")
        output = await self.run("-p", *options, "--", "hi", cwd=cwd, check=False)
        started = next(line for line in map(json.loads, output.splitlines()) if line.get("subtype") == "init")
        return {name for name in started["agents"] if ":" in name}


def make_marketplace(folder: Path) -> Path:
    """Return a marketplace with plugins that have the same files; one names a file in its manifest."""
    manifests = {name: {"name": name, "version": "1.0.0"} for name in ("kit", "off", "named", "local")}
    plugins = [{"name": name, "source": f"./plugins/{name}"} for name in manifests]
    market = {"name": "market", "owner": {"name": "Ada"}, "plugins": plugins}
    write_files(folder, {".claude-plugin/marketplace.json": json.dumps(market)})
    for name, manifest in manifests.items():
        more = {"agents": ["./special/x.md"]} if name == "named" else {}
        root = folder / "plugins" / name
        write_files(root, {path: AGENT.format(agent) for path, agent in FILES.items()})
        write_files(root, {".claude-plugin/plugin.json": json.dumps({**manifest, **more})})
    return folder


async def test_agents_of_installed_plugins_have_the_names_of_claude_code(server, tmp_path):
    need_claude()
    project = make_repository(tmp_path / "project", {"a.txt": "one\n"})
    environ = {**claude_environ(tmp_path / "home", server.url), **QUIET}
    claude, market = ClaudeCode(environ), make_marketplace(tmp_path / "market")
    await claude.run("plugin", "marketplace", "add", str(market), cwd=project)
    for name in ("kit", "off", "named"):
        await claude.run("plugin", "install", f"{name}@market", cwd=project)
    await claude.run("plugin", "install", "local@market", "--scope", "project", cwd=project)
    await claude.run("plugin", "disable", "off@market", cwd=project)
    for cwd, local in ((project, {"local:alpha", "local:deep:beta"}), (tmp_path, set())):
        ours = {name for name in Retinue(cwd=cwd, environ=environ).roster().names() if ":" in name}
        assert ours == {"kit:alpha", "kit:deep:beta", "named:x", *local}
        assert await claude.list_agents(cwd) == ours
