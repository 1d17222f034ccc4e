"""The real pi, both versions, and the real Claude Code, as `make test` installs them; tests are skipped without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from tests.real.claude_install import need_claude
from tests.real.install import PI, node_and_npm, skip
from tests.real.pi_install import PiInstall, find_pi
from tests.real.programs import Program, claude_program, pi_program
from tests.support.forked_commands import run_forked
from tests.support.model_server import ModelServer

TOOLS = Path(__file__).parents[2] / ".tools"
SCOUT = """\
---
name: scout
description: Fast codebase reconnaissance
approved_tools:
  - read
  - bash
---

You are the scout.
"""

Answer = tuple[int, list[dict[str, Any]]]
"""Exit code and output lines of a call."""
Call = Callable[..., Awaitable[Answer]]


@pytest.fixture(scope="session")
def node_scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="session")
def pi_0_87(node_scratch: Path) -> PiInstall:
    return require_pi("pi-0.87", node_scratch)


@pytest.fixture(scope="session")
def pi_1_5(node_scratch: Path) -> PiInstall:
    return require_pi("pi-1.5", node_scratch)


@pytest.fixture(scope="session", params=["pi_0_87", "pi_1_5"])
def pi(request: pytest.FixtureRequest) -> PiInstall:
    """Both versions of pi, one after the other."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, PiInstall)
    return found


@pytest.fixture(scope="session")
def extension_source(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return pi's extension as `retinue install pi` writes it; it is the same in every home."""
    home = tmp_path_factory.mktemp("extension")
    environ = {"HOME": str(home), "PATH": os.defpath}
    subprocess.run([sys.executable, "-m", "retinue", "install", "pi", "--yes"], env=environ, cwd=home, check=True)
    return (home / ".pi" / "agent" / "extensions" / "retinue.js").read_bytes()


@pytest.fixture
def add_extension(extension_source: bytes) -> Callable[[Path], Path]:
    """Return a function that puts the extension into the home of a pi and returns the file."""

    def add_to(home: Path) -> Path:
        file = home / "agent" / "extensions" / "retinue.js"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(extension_source)
        return file

    return add_to


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("the secret word is XYZZY\n")
    return folder


@pytest.fixture(params=["pi_0_87", "pi_1_5", "claude"])
def program(request: pytest.FixtureRequest, server: ModelServer, tmp_path: Path) -> Program:
    """Every program and version, for tests that apply to all of them."""
    home = tmp_path / "home"
    if request.param == "claude":
        need_claude()
        return claude_program(home, server.url)
    return pi_program(request.getfixturevalue(request.param), home, server.url)


@pytest.fixture
def make_caller(project: Path, tmp_path: Path) -> Callable[[Program], Call]:
    """Call tools by `retinue call` in a process of its own, with an agent `scout`."""

    def for_program(program: Program) -> Call:
        program.agents.mkdir(parents=True)
        (program.agents / "scout.md").write_text(SCOUT)
        environ = {
            **program.environ,
            "RETINUE_ENGINE": program.engine,
            "RETINUE_MODEL": program.model,
            "RETINUE_STATE": str(tmp_path / "state"),
        }

        async def call(
            arguments: dict[str, Any], toolset: str, *options: str, tool: str = "subagent", **more: str
        ) -> Answer:
            output = tmp_path / f"{token_hex(4)}.jsonl"
            line = ["call", tool, json.dumps(arguments), "--toolset", toolset, *options]
            status = await run_forked(line, environ={**environ, **more}, cwd=project, output=output)
            return status, [json.loads(line) for line in output.read_bytes().splitlines()]

        return call

    return for_program


def require_pi(name: str, scratch: Path) -> PiInstall:
    if not PI.is_in(TOOLS):
        skip("There is no real pi. `make test` installs it where a package registry can be reached.")
    node, _ = node_and_npm()
    return find_pi(TOOLS, name, node, scratch)
