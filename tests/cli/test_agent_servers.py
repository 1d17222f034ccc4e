"""MCP servers of agents on the command line: shown before an approval, checked, and diagnosed, without secrets."""

from __future__ import annotations

import json

import pytest

LIBRARIAN = """\
---
name: librarian
description: Searches
tools: Read, mcp__docs__search
mcpServers:
  - github
  - docs:
      command: docs-mcp
      args: [--key, sk-proj-abcdefghijklmnopqrstuvwxyz0123456789]
      env: {DOCS_TOKEN: "hunter2-hunter2"}
---
Work.
"""
UNSET = "the variable GITHUB_TOKEN is not set"


@pytest.fixture
def project(place):
    (place / ".git").mkdir()
    (place / ".claude" / "agents").mkdir(parents=True)
    (place / ".claude" / "agents" / "librarian.md").write_text(LIBRARIAN)
    github = {"url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"}}
    (place / ".mcp.json").write_text(json.dumps({"mcpServers": {"github": github}}))
    return place


@pytest.fixture
def servers(project) -> list[str]:
    return [
        f"github: https://x.example/mcp [header Authorization] from {project}/.mcp.json (not started: {UNSET})",
        "docs: docs-mcp --key [OPENAI_KEY_REDACTED] [variable DOCS_TOKEN]",
    ]


def test_servers_are_shown_with_commands_and_names_of_variables_only(cli, servers):
    shown = cli("agents", "show", "librarian").stdout
    assert [line.split(None, 2)[2] for line in shown.splitlines() if line.startswith("MCP server")] == servers
    (definition,) = json.loads(cli("agents", "show", "librarian", "--json").stdout)["definitions"]
    assert definition["servers"] == servers
    assert "hunter2" not in shown + json.dumps(definition)


def test_servers_and_the_file_that_defines_them_are_shown_before_an_approval(cli, servers, project):
    lines = cli("agents", "trust", "librarian", "--yes").stderr.splitlines()
    assert [line.split(None, 2)[2] for line in lines if line.startswith("  MCP server")] == servers
    assert f"  covers      {project}/.mcp.json" in lines


@pytest.mark.usefixtures("project")
def test_check_names_a_server_that_cannot_be_started(cli):
    checked = cli("agents", "check")
    assert f"librarian.md: mcp_servers: github cannot be started: {UNSET}" in checked.stdout


@pytest.mark.usefixtures("project")
def test_doctor_names_a_server_that_cannot_be_started(cli):
    cli("agents", "trust", "librarian", "--yes")
    found = json.loads(cli("doctor", "--json").stdout)
    assert found["brokenServers"] == [f"librarian: MCP server github: {UNSET}"]
    assert f"librarian: MCP server github: {UNSET}" in cli("doctor").stdout
