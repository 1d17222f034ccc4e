"""User and project settings of the real Claude Code: loaded on request only, and never with hooks and servers."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.real.claude_install import claude_environ, need_claude
from tests.real.programs import worker
from tests.support.model_server import script64

from retinue import Retinue
from retinue.model.errors import ErrorCode

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

ANSWERS = script64([{"text": "An answer."}])


@pytest.fixture
def open_retinue(server, project, tmp_path):
    need_claude()

    @asynccontextmanager
    async def open_context(*agents, **settings):
        async with Retinue(
            cwd=project,
            engine="claude",
            agents=agents,
            environ=claude_environ(tmp_path / "home", server.url),
            state=tmp_path / "state",
            settings={"model": "scripted-1", "allow_write": True, **settings},
        ) as retinue:
            yield retinue

    return open_context


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"tool": "Bash", "args": {"command": command, "description": "Works.", **more}}


def read_step(path: Path) -> dict[str, Any]:
    return {"tool": "Read", "args": {"file_path": str(path)}}


@pytest.fixture
def hook_marker(project, tmp_path):
    """Return a file that exists once a hook or server of the user or the project has run."""
    hook_marker = tmp_path / "hooked"
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": f"touch {hook_marker}"}]}
    settings = json.dumps(
        {"hooks": {"PreToolUse": [hook], "SessionStart": [hook]}, "permissions": {"allow": ["Bash"]}}
    )
    servers = {"mcpServers": {"evil": {"command": "touch", "args": [str(hook_marker)]}}}
    (project / ".mcp.json").write_text(json.dumps(servers))
    (project / "CLAUDE.md").write_text("Rule seven.")
    for folder in (project / ".claude", tmp_path / "home" / ".claude"):
        (folder / "skills" / "zork").mkdir(parents=True)
        (folder / "skills" / "zork" / "SKILL.md").write_text("---\nname: zork\ndescription: Zorks.\n---\n")
        (folder / "settings.json").write_text(settings)
        (folder / "CLAUDE.md").write_text("Rule seven.")
    return hook_marker


async def test_project_and_user_settings_are_not_loaded_by_default(open_retinue, server, project, hook_marker):
    bare = worker(tools=("read",), no_context_files=True, no_skills=True, no_extensions=True)
    async with open_retinue(bare) as retinue:
        result = await retinue.run("worker", script64([read_step(project / "a.txt"), {"text": "ok"}]))
    assert (result.failure, result.actual.not_applied) == (None, ())
    assert not hook_marker.exists()
    for request in server.requests:
        assert not [word for word in ("Rule seven", "Zorks", "evil") if word in str(request.body)]


async def test_requested_settings_are_loaded_without_hooks_servers_and_tools(
    open_retinue, server, project, hook_marker
):
    write = {"tool": "Write", "args": {"file_path": str(project / "x"), "content": "y"}, "force": True}
    forbidden = {"tools": [write, {**bash("touch x"), "force": True}]}
    script = script64([read_step(project / "a.txt"), forbidden, {"text": "ok"}])
    bare = worker(name="bare", tools=("read",), no_context_files=True)
    async with open_retinue(worker(tools=("read",)), bare, claude_settings="project") as retinue:
        result = await retinue.run("worker", script)
        without = await retinue.run("bare", ANSWERS)
    assert (result.failure, result.text) == (None, "ok")
    bodies = [str(request.body) for request in server.requests]
    assert ["Rule seven" in body for body in bodies] == [*[True] * (len(bodies) - 1), False]
    assert not any("evil" in body for body in bodies)
    assert {request.tools for request in server.requests} == {("Read",)}
    assert (hook_marker.exists(), (project / "x").exists()) == (False, False)
    (notice,) = without.actual.notices
    assert notice.startswith("Claude Code's settings are not loaded (claude_settings)")


async def test_loaded_settings_do_not_change_the_options_of_retinue(open_retinue, server, project):
    opposite = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "", "ENABLE_TOOL_SEARCH": "true"}
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text(json.dumps({"env": opposite}))
    stays = bash("tail -f /dev/null", run_in_background=True)
    async with open_retinue(worker(), claude_settings="project") as retinue:
        result = await retinue.run("worker", script64([stays, {"text": "ok"}]))
    assert (result.failure, result.text, result.actual.notices) == (None, "ok", ())
    assert {request.tools for request in server.requests} == {("Bash", "Read")}
    assert "run_in_background` was provided" in server.requests[-1].messages[-1].text


async def test_tool_denied_by_settings_fails_the_run_and_names_them(open_retinue, project):
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text(json.dumps({"permissions": {"deny": ["Read"]}}))
    async with open_retinue(worker(), claude_settings="project") as retinue:
        result = await retinue.run("worker", ANSWERS)
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.UNSUPPORTED, "missing_tool")
    assert result.failure.message == (
        'Agent "worker" needs the tool read, which this Claude Code does not have or its settings deny '
        "(claude_settings). No tool was run. Choose another engine, or list it under optional_tools."
    )
