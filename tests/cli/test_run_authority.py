"""Commands that act as the user are refused in a process of a run, however it hides; those that read are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest
from tests.support.run_children import WAYS, open_run_client

from retinue.cli.group import root
from retinue.cli.options import MARK
from retinue.support.processes import RUN_PROCESSES_KNOWN

SOURCE = Path(__file__).parents[2] / "src"
READING = {
    "agents", "agents check", "agents list", "agents show", "completion", "config", "config get", "config path",
    "doctor", "events", "help", "models", "sessions", "sessions list", "sessions output", "sessions show", "tools",
    "watch", "worktrees", "worktrees list", "worktrees show",
}  # fmt: skip
"""Commands that a process of a run may use: they show what it could read in the files."""


def list_commands(group, path=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from list_commands(command, (*path, name))


def test_every_command_that_is_not_only_for_users_reads():
    assert {name for name, command in list_commands(root) if MARK not in vars(command.callback)} == READING


ACTING = {
    "cancel": ["cancel", "--all"],
    "steer": ["steer", "1a2b3c4d", "stop"],
    "extend": ["extend", "1a2b3c4d", "2h"],
    "trust": ["agents", "trust", "evil", "--yes"],
    "new": ["agents", "new", "evil"],
    "prune": ["sessions", "prune", "--older-than", "0", "--results", "--yes"],
    "config": ["config", "set", "timeout", "600"],
    "install": ["install", "claude", "--yes"],
    "setup": ["setup", "--yes", "--no-run"],
    "run": ["run", "explorer", "look", "--engine", "offline"],
    "resume": ["resume", "1a2b3c4d", "again"],
    "serve": ["serve", "--port", "0"],
    "mcp": ["mcp"],
    "bridge": ["bridge", "--toolset", "single"],
    "worktrees merge": ["worktrees", "merge", "1a2b3c4d"],
    "worktrees prune": ["worktrees", "prune", "--yes"],
    "worktrees discard": ["worktrees", "discard", "1a2b3c4d", "--yes"],
    "call": ["call", "subagent", "{}"],
}
IN_RUN = pytest.mark.skipif(not RUN_PROCESSES_KNOWN, reason="Linux")


def retinue(home, *arguments):
    # A copy of the path: a cleared environment has no PYTHONPATH.
    start = f"import os, sys; sys.path.insert(0, {str(SOURCE)!r}); os.chdir({str(home)!r})"
    start += f"; os.environ.update(HOME={str(home)!r}); from retinue.cli.main import main; main(sys.argv[1:])"
    return [sys.executable, "-c", start, *arguments]


@IN_RUN
@pytest.mark.process
@pytest.mark.parametrize("arguments", ACTING.values(), ids=ACTING)
async def test_acting_command_of_a_process_of_a_run_is_refused(tmp_path, arguments):
    async with open_run_client("cleared", "run_command", *retinue(tmp_path, *arguments)) as (code, out, err):
        assert (code, list(tmp_path.iterdir())) == (2, []), err
        assert "acts as the user, and an agent started this process. Nothing was changed." in err
        assert (json.loads(out)["isError"] is True) if arguments[0] == "call" else out == ""


@IN_RUN
@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
async def test_approval_in_a_process_of_a_run_is_refused_in_every_way_of_hiding(tmp_path, way):
    agents = tmp_path / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "evil.md").write_text("---\nname: evil\ndescription: x\ntools: bash\n---\nDo harm.\n")
    command = retinue(tmp_path, "agents", "trust", "evil", "--yes", "--json")
    async with open_run_client(way, "run_command", *command) as (code, out, _):
        assert (code, json.loads(out)["status"]) == (2, "refused")
        assert not (tmp_path / ".local").exists()


@IN_RUN
@pytest.mark.process
async def test_reading_command_of_a_process_of_a_run_is_served(tmp_path):
    async with open_run_client("open", "run_command", *retinue(tmp_path, "agents", "list")) as (code, out, err):
        assert (code, "explorer" in out) == (0, True), err
