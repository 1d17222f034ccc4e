"""Hooks in agent files: their form, what is refused, and which files the approval of a project's agent covers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.retinue_factory import scripted

from retinue import Retinue
from retinue.agents.agent import Diagnostic, SourceLayer
from retinue.agents.dialects import AgentDialect, AgentSource, read_agent
from retinue.cli.trust_prompt import render_summary
from retinue.engines.scripted import ScriptedEngine, call, reply
from retinue.model.errors import ErrorCode
from retinue.model.hooks import Hook
from retinue.sessions.memory import MemoryStore

HEAD = "---\nname: guard\ndescription: Guards.\ntools: Bash, Read\n"
HOOKS = """\
hooks:
  PreToolUse:
    - matcher: "Bash|Write"
      hooks:
        - type: command
          command: "$CLAUDE_PROJECT_DIR/.claude/hooks/check.sh --strict"
          timeout: 5
        - command: python3 scripts/check.py
  Stop:
    - hooks: [{type: command, command: make test}]
  PostToolUse:
    - hooks: [{type: command, command: make lint}]
"""


def read(folder: Path, header: str):
    file = folder / "guard.md"
    file.write_text(f"{HEAD}{header}---\nYou guard.\n")
    return read_agent(file, AgentSource(SourceLayer.USER, AgentDialect.CLAUDE))


def test_hooks_are_read_in_claude_codes_form(tmp_path):
    agent = read(tmp_path, HOOKS)
    assert agent.hooks == (
        Hook(
            event="PreToolUse",
            command="$CLAUDE_PROJECT_DIR/.claude/hooks/check.sh --strict",
            matcher="Bash|Write",
            timeout=5,
        ),
        Hook(event="PreToolUse", command="python3 scripts/check.py", matcher="Bash|Write"),
        Hook(event="SubagentStop", command="make test"),
    )
    assert [notice.text for notice in agent.notices] == ["hooks: PostToolUse not run"]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("hooks: true", "a mapping of events to hooks"),
        ("hooks:\n  PreToolUes: []", "there is no event 'PreToolUes'"),
        ("hooks:\n  PreToolUse: nonsense", "a list of mappings below PreToolUse"),
        ("hooks:\n  PreToolUse:\n    - matcher: '('\n      hooks: [{command: x}]", "a regular expression as matcher"),
        ("hooks:\n  PreToolUse:\n    - matcher: [Bash]\n      hooks: [{command: x}]", "one text as matcher"),
        ("hooks:\n  PreToolUse:\n    - hooks: [{type: command}]", "a command in each hook"),
        ("hooks:\n  PreToolUse:\n    - hooks: [{command: x, timeout: soon}]", "a timeout above 0 seconds"),
        ("hooks:\n  PreToolUse:\n    - hooks: [{command: x, timeout: -1}]", "a timeout above 0 seconds"),
        ("hooks:\n  PreToolUse:\n    - {command: x}", "without 'command', which is not supported"),
    ],
)
def test_hooks_in_another_form_make_the_file_unusable(tmp_path, header, reason):
    found = read(tmp_path, f"{header}\n")
    assert isinstance(found, Diagnostic)
    assert reason in found.text


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ("{type: prompt, prompt: Is it safe?}", "prompt"),
        ("{type: http, url: 'http://localhost/'}", "http"),
        ("{type: command, command: x, if: 'Bash(git *)'}", "command with if"),
        ("{type: command, command: x, async: true}", "command with async"),
    ],
)
def test_hooks_that_cannot_be_run_keep_their_kind(tmp_path, entry, kind):
    agent = read(tmp_path, f"hooks:\n  PreToolUse:\n    - hooks: [{entry}]\n")
    assert [hook.kind for hook in agent.hooks] == [kind]


# -- a project's hooks -------------------------------------------------------------------------------


@pytest.fixture
def project(scratch_home):
    scratch_home = scratch_home / "project"
    for name in (".claude/agents", ".claude/hooks", "scripts"):
        (scratch_home / name).mkdir(parents=True)
    (scratch_home / ".git").mkdir()
    (scratch_home / ".claude/agents/guard.md").write_text(f"{HEAD}{HOOKS}---\nYou guard.\n")
    (scratch_home / ".claude/hooks/check.sh").write_text("#!/bin/sh\nexit 0\n")
    (scratch_home / ".claude/hooks/check.sh").chmod(0o700)
    (scratch_home / "scripts/check.py").write_text("")
    return scratch_home


SCRIPT = (call("bash", command="make", returns="made"), reply("Done."))


def open_project(project: Path, *script):
    """Return a Retinue in the project, whose folder is not that of the user."""
    return Retinue(
        cwd=project,
        environ={"HOME": str(project.parent), "PATH": os.environ["PATH"]},
        engine="scripted",
        engines=scripted(ScriptedEngine(*script)),
        store=MemoryStore(),
        state=project.parent / "state",
    )


async def run_guard(project: Path) -> Any:
    async with open_project(project, *SCRIPT) as retinue:
        return await retinue.run("guard", "Work.", allow_write=True)


@pytest.mark.process
async def test_project_agent_with_hooks_runs_only_once_it_is_approved(project):
    result = await run_guard(project)
    assert result.failure is not None
    assert result.failure.code is ErrorCode.AGENT_UNTRUSTED
    async with open_project(project) as retinue:
        agent = retinue.roster().find_awaiting_trust("guard")
        retinue.trust.accept(agent)
    assert agent.named_files == (f"{project}/.claude/hooks/check.sh", f"{project}/scripts/check.py")
    (project / "scripts/check.py").touch()
    (project / "Makefile").write_text("test:\n\ttrue\n")
    assert (await run_guard(project)).failure is None


@pytest.mark.parametrize("name", [".claude/hooks/check.sh", "scripts/check.py"])
async def test_changed_file_of_a_hook_must_be_approved_again(project, name):
    async with open_project(project) as retinue:
        retinue.trust.accept(retinue.roster().find_awaiting_trust("guard"))
    (project / name).write_text("# changed\n")
    result = await run_guard(project)
    assert result.failure is not None
    assert result.failure.code is ErrorCode.AGENT_UNTRUSTED


@pytest.mark.process
async def test_command_finds_the_approved_script_below_a_hidden_folder(tmp_path):
    project, foreign = tmp_path / ".work" / "project", tmp_path / "check.sh"
    (project / ".claude/agents").mkdir(parents=True)
    (project / ".git").mkdir()
    hooks = "hooks:\n  PreToolUse:\n    - hooks: [{type: command, command: sh $CLAUDE_PROJECT_DIR/check.sh}]\n"
    (project / ".claude/agents/guard.md").write_text(f"{HEAD}{hooks}---\nYou guard.\n")
    (project / "check.sh").write_text("echo approved >> ran; exit 0\n")
    foreign.write_text("echo foreign >> ran; exit 0\n")
    async with open_project(project) as retinue:
        retinue.trust.accept(retinue.roster().find_awaiting_trust("guard"))
    assert (await run_guard(project)).failure is None
    assert (project / "ran").read_text() == "approved\n"


@pytest.mark.process
async def test_hook_in_the_directory_of_a_task_must_be_approved_there(project):
    hooks = "hooks:\n  SubagentStart:\n    - hooks: [{type: command, command: sh ./check.sh}]\n"
    (project / ".claude/agents/guard.md").write_text(f"{HEAD}{hooks}---\nYou guard.\n")
    (project / "check.sh").write_text("exit 0\n")
    (project / "scripts/check.sh").write_text("touch executed\n")
    async with open_project(project, *SCRIPT) as retinue:
        retinue.trust.accept(retinue.roster().find_awaiting_trust("guard"))
        here, there = [
            await retinue.run("guard", "Work.", allow_write=True, cwd=folder)
            for folder in (project, project / "scripts")
        ]
    assert here.failure is None
    assert there.failure is not None
    assert (there.failure.code, there.failure.detail["file"]) == (
        ErrorCode.AGENT_UNTRUSTED,
        f"{project}/scripts/check.sh",
    )
    assert not (project / "scripts/executed").exists()


@pytest.mark.process
async def test_hook_of_a_project_does_not_widen_the_sandbox_of_its_run(project):
    secret = project.parent / "notes.txt"
    secret.write_text("XYZZY")
    hooks = f"hooks:\n  PreToolUse:\n    - hooks: [{{type: command, command: cat {secret} > seen; exit 0}}]\n"
    (project / ".claude/agents/guard.md").write_text(f"{HEAD}{hooks}---\nYou guard.\n")
    async with open_project(project, *SCRIPT) as retinue:
        retinue.trust.accept(retinue.roster().find_awaiting_trust("guard"))
        result = await retinue.run("guard", "Work.", allow_write=True, sandbox="workspace")
    assert result.failure is None
    assert (project / "seen").read_text() == ""


async def test_summary_before_approval_shows_whole_commands(project):
    async with open_project(project) as retinue:
        agent = retinue.roster().find_awaiting_trust("guard")
    lines = [" ".join(line.split()) for line in render_summary(agent)]
    assert "PreToolUse $CLAUDE_PROJECT_DIR/.claude/hooks/check.sh --strict (for Bash|Write)" in lines
    assert "SubagentStop make test (for all)" in lines
