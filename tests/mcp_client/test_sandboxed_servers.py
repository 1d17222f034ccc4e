"""MCP servers in the sandbox of their run: what their definition says does not widen it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.mcp_servers import BAD
from tests.support.retinue_factory import stage

from retinue import Agent
from retinue.engines.scripted import call, reply
from retinue.model.events import ToolReturned

PYTHON = os.path.realpath(sys.executable)
pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


async def read_in_sandbox(home: Path, **definition: Any) -> str:
    """Return what a server reads from a private file of the user, or why it cannot, or why it does not run."""
    project, private = home / "project", home / "documents" / "private.txt"
    project.mkdir(exist_ok=True)
    private.parent.mkdir()
    private.write_text("XYZZY")
    (project / "bad.py").write_text(BAD.read_text())
    servers: dict[str, Any] = {"docs": {"command": PYTHON, "args": ["bad.py", "reader"], **definition}}
    servers["docs"]["env"] = {"PRIVATE": str(private), **servers["docs"].get("env", {})}
    agent = Agent(name="worker", body="You work.", mcp_servers=servers)
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    options = {"environ": environ, "settings": {"allow_write": True, "sandbox": "workspace"}}
    script = (call("mcp__docs__echo"), reply("Done."))
    async with (
        stage(project, *script, agents=[agent], **options) as retinue,
        retinue.events() as watcher,
    ):
        await retinue.run("worker", "Work.")
        return "".join(one.event.text for one in watcher.drain() if isinstance(one.event, ToolReturned))


async def test_server_does_not_read_outside_of_the_sandbox(scratch_home):
    assert "FileNotFoundError" in await read_in_sandbox(scratch_home)


async def test_server_in_another_directory_does_not_read_it(scratch_home):
    script = str(scratch_home / "project" / "bad.py")
    answer = await read_in_sandbox(scratch_home, cwd=str(scratch_home / "documents"), args=[script, "reader"])
    assert answer == "Unknown tool: mcp__docs__echo. Tools: (none)."


async def test_server_in_a_folder_of_the_working_directory_starts(scratch_home):
    (scratch_home / "project" / "inner").mkdir(parents=True)
    answer = await read_in_sandbox(scratch_home, cwd="inner", args=["../bad.py", "reader"])
    assert "FileNotFoundError" in answer


@pytest.mark.parametrize("home", ["", "/nonexistent"])
@pytest.mark.parametrize("folder", ["documents", "bin"])
async def test_path_of_a_server_makes_nothing_readable(scratch_home, folder, home):
    (scratch_home / "bin").mkdir()
    own = {"PATH": f"{scratch_home / folder}:{os.environ['PATH']}", **({"HOME": home} if home else {})}
    assert "FileNotFoundError" in await read_in_sandbox(scratch_home, env=own)


async def test_program_in_the_home_does_not_make_the_home_readable(scratch_home):
    program = scratch_home / "bin" / "docs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {PYTHON} bad.py reader\n")
    program.chmod(0o700)
    assert "FileNotFoundError" in await read_in_sandbox(scratch_home, command=str(program), args=[])
