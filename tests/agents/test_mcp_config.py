"""Configured MCP servers by name: whose files, which is the strongest, and what trust covers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.mcp_config import PROJECT_ONLY, ServerFinder
from retinue.agents.registry import AgentRegistry
from retinue.agents.search_paths import SearchPaths
from retinue.agents.trust import TrustStore
from retinue.model.errors import Failure


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def write_servers(path: Path, **commands: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {name: {"command": command} for name, command in commands.items()}}))


def commands(agent: Agent, cwd: Path, home: Path) -> dict[str, str]:
    found = ServerFinder(cwd, {"HOME": str(home)}).find_servers(agent)
    return {server.name: server.problem or server.command for server in found}


def test_user_files_are_searched_in_order(home, project):
    agent = Agent(name="x", mcp_servers=["a", "b", "c", "d", "e"])
    write_servers(home / ".config/retinue/mcp.json", a="ours")
    write_servers(home / ".pi/agent/mcp.json", a="pi", c="pi")
    write_servers(home / ".gemini/settings.json", c="gemini", d="gemini")
    local = {str(project): {"mcpServers": {"b": {"command": "claude local"}}}}
    everywhere = {"a": {"command": "claude"}, "b": {"command": "claude"}}
    (home / ".claude.json").write_text(json.dumps({"projects": local, "mcpServers": everywhere}))
    assert commands(agent, project, home) == {
        "a": "ours",
        "b": "claude local",
        "c": "pi",
        "d": "gemini",
        "e": "no server of this name is configured",
    }


def test_names_of_tools_name_configured_servers(home, project):
    write_servers(home / ".config/retinue/mcp.json", **{"my-docs": "docs", "other": "other"})
    agent = Agent(name="x", tools=["read", "mcp__my_docs__search", "mcp__gone__x", "mcp__*"])
    assert commands(agent, project, home) == {"my-docs": "docs"}


def test_server_of_a_project_is_used_by_agents_of_the_project_only(home, project):
    write_servers(project / ".mcp.json", docs="hostile")
    own = Agent(name="x", mcp_servers=["docs"], layer=SourceLayer.USER)
    theirs = Agent(name="x", mcp_servers=["docs"], layer=SourceLayer.PROJECT, level=str(project))
    assert commands(theirs, project, home) == {"docs": "hostile"}
    assert commands(own, project, home) == {"docs": PROJECT_ONLY.format(".mcp.json")}


@pytest.mark.parametrize(
    "content", ["", "[", "[]", '{"mcpServers": 7}', '{"mcpServers": {"docs": 7}}', "\x00", "[" * 100_000]
)
def test_broken_files_define_nothing(home, project, content):
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text(content)
    found = commands(Agent(name="x", mcp_servers=["docs"]), project, home)
    assert found["docs"] in {"no server of this name is configured", "its definition is not a mapping"}


AGENT = "---\nname: librarian\ndescription: d\ntools: Read, mcp__docs__search\nmcpServers: [docs]\n---\nWork.\n"


def test_approval_covers_the_project_file_that_defines_a_server(home, project, tmp_path):
    (project / ".claude/agents").mkdir(parents=True)
    (project / ".claude/agents/librarian.md").write_text(AGENT)
    write_servers(project / ".mcp.json", docs="docs")
    trust = TrustStore(tmp_path / "state" / "trust.json")
    registry = AgentRegistry(SearchPaths({"HOME": str(home)}), trust)
    assert isinstance(registry.for_directory(project).find("librarian"), Failure)
    waiting = registry.for_directory(project).find_awaiting_trust("librarian")
    assert waiting is not None
    assert waiting.named_files == (str(project / ".mcp.json"),)
    trust.accept(waiting)
    assert isinstance(registry.for_directory(project).find("librarian"), Agent)
    write_servers(project / ".mcp.json", docs="other")
    assert isinstance(registry.for_directory(project).find("librarian"), Failure)


@pytest.mark.parametrize("defined_in", [".mcp.json", "the agent's file"])
def test_approval_covers_the_script_of_a_server_but_not_its_data(home, project, tmp_path, defined_in):
    (project / ".claude/agents").mkdir(parents=True)
    definition = {"command": "python3", "args": ["tools/server.py", "--index", "data.json"]}
    inline = f"mcpServers: {json.dumps([{'docs': definition}])}\n"
    is_inline = defined_in != ".mcp.json"
    header = AGENT.replace("mcpServers: [docs]\n", inline) if is_inline else AGENT
    (project / ".claude/agents/librarian.md").write_text(header)
    if not is_inline:
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"docs": definition}}))
    (project / "tools").mkdir()
    script, data = project / "tools/server.py", project / "data.json"
    script.write_text("one")
    data.write_text("{}")
    trust = TrustStore(tmp_path / "state" / "trust.json")
    registry = AgentRegistry(SearchPaths({"HOME": str(home)}), trust)
    waiting = registry.for_directory(project).find_awaiting_trust("librarian")
    assert waiting is not None
    assert waiting.named_files == (*([] if is_inline else [str(project / ".mcp.json")]), str(script))
    trust.accept(waiting)
    data.write_text("[]")
    assert isinstance(registry.for_directory(project).find("librarian"), Agent)
    script.write_text("two")
    assert isinstance(registry.for_directory(project).find("librarian"), Failure)
