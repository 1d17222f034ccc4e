"""Agent files of Claude Code, Gemini CLI, GitHub Copilot, opencode, Cursor and Codex."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.dialects import AgentDialect, AgentSource, read_agent
from retinue.model.agents import ToolPolicy
from retinue.model.sandbox import SandboxMode


def read(folder: Path, dialect: AgentDialect, text: str, name: str = "x.md") -> Agent:
    (folder / name).write_text(text)
    found = read_agent(folder / name, AgentSource(SourceLayer.USER, dialect))
    assert isinstance(found, Agent), found
    return found


def policy(folder: Path, dialect: AgentDialect, header: str) -> ToolPolicy:
    return read(folder, dialect, f"---\ndescription: d\n{header}\n---\nWork.\n").to_profile().tools


def notes(agent: Agent) -> list[str]:
    return [notice.text for notice in agent.notices if not notice.text.startswith("name:")]


GEMINI = """---
name: code-auditor
display_name: Code auditor
description: Audits code
kind: local
tools: [read_file, read_many_files, grep_search, glob, list_directory, run_shell_command, google_web_search, save_memory]
model: gemini-3-pro
max_turns: 9
timeout_mins: 5
mcpServers:
  github: {command: gh}
---
You audit.
"""


def test_gemini_file_has_its_tools_limits_and_title(tmp_path):
    agent = read(tmp_path, AgentDialect.GEMINI, GEMINI)
    assert (agent.name, agent.title, agent.model, agent.max_turns, agent.timeout) == (
        "code-auditor", "Code auditor", "gemini-3-pro", 9, 300.0,
    )  # fmt: skip
    optional = ("read", "grep", "find", "ls", "bash", "web_search", "save_memory")
    assert agent.to_profile().tools == ToolPolicy(allow=(), optional=optional)
    assert [server.name for server in agent.parsed_servers] == ["github"]


def test_remote_gemini_agent_is_refused(tmp_path):
    (tmp_path / "r.md").write_text("---\nname: r\nkind: remote\nagent_card_url: https://x\n---\n")
    found = read_agent(tmp_path / "r.md", AgentSource(SourceLayer.USER, AgentDialect.GEMINI))
    assert found == Diagnostic(str(tmp_path / "r.md"), "is a remote agent (A2A), which cannot be run here")


CODEX = """
name = "reviewer"
description = "Reviews"
developer_instructions = "You review."
model = "gpt-5.4"
model_reasoning_effort = "high"
sandbox_mode = "read-only"
nickname_candidates = ["Ada"]
[mcp_servers.docs]
url = "https://docs.example"
"""


def test_codex_file_is_read_only_in_a_sandbox(tmp_path):
    agent = read(tmp_path, AgentDialect.CODEX, CODEX, "reviewer.toml")
    assert (agent.name, agent.body, agent.model, agent.thinking) == ("reviewer", "You review.", "gpt-5.4", "high")
    assert (agent.readonly, agent.sandbox) == (True, SandboxMode.WORKSPACE)
    assert [server.name for server in agent.parsed_servers] == ["docs"]
    assert agent.unknown == ()


@pytest.mark.parametrize(
    ("mode", "expected"), [("workspace-write", SandboxMode.WORKSPACE), ("danger-full-access", None)]
)
def test_codex_sandbox_modes_that_write_do_not_add_rights(tmp_path, mode, expected):
    agent = read(tmp_path, AgentDialect.CODEX, f'name = "a"\nsandbox_mode = "{mode}"\n', "a.toml")
    assert (agent.readonly, agent.sandbox, agent.unknown) == (False, expected, ())


def test_unknown_codex_sandbox_mode_stays_as_a_restriction(tmp_path):
    agent = read(tmp_path, AgentDialect.CODEX, 'name = "a"\nsandbox_mode = "new"\n', "a.toml")
    assert agent.unknown == ("sandbox_mode",)


def test_broken_toml_is_named(tmp_path):
    (tmp_path / "a.toml").write_text("name = [")
    found = read_agent(tmp_path / "a.toml", AgentSource(SourceLayer.USER, AgentDialect.CODEX))
    assert isinstance(found, Diagnostic)
    assert found.text.startswith("is not valid TOML: ")


def test_copilot_tool_sets_model_and_agents_are_translated(tmp_path):
    text = (
        "---\nname: Planner\ndescription: Plans\ntools: ['read', 'search/codebase', 'edit', 'execute/runInTerminal', "
        "'github/search_issues', 'todo', 'agent']\nmodel: ['GPT-5 (copilot)']\nagents: [tester]\n---\nPlan.\n"
    )
    agent = read(tmp_path, AgentDialect.COPILOT, text, "planner.agent.md")
    assert (agent.name, agent.model) == ("Planner", "GPT-5")
    assert agent.to_profile().tools == ToolPolicy(
        allow=(), optional=("read", "grep", "find", "edit", "write", "bash", "github/search_issues", "todo"),
        delegates=True, callable_agents=("tester",),
    )  # fmt: skip


def test_copilot_file_without_a_name_is_named_without_its_suffix(tmp_path):
    assert read(tmp_path, AgentDialect.COPILOT, "---\ndescription: d\n---\nWork.\n", "docs.agent.md").name == "docs"


@pytest.mark.parametrize(
    ("header", "denied"),
    [
        ("tools:\n  write: false\n  bash: false\n  read: true", ("write", "bash")),
        ("permission:\n  edit: deny\n  bash: ask\n  webfetch: allow", ("edit", "write", "bash")),
        ("permission: deny", ("*",)),
    ],
)
def test_opencode_tools_and_permissions_deny(tmp_path, header, denied):
    assert policy(tmp_path, AgentDialect.OPENCODE, header) == ToolPolicy(deny=denied)


def test_opencode_permission_that_asks_is_denied_with_a_note(tmp_path):
    text = "---\ndescription: d\nmode: subagent\npermission:\n  bash: ask\nsteps: 4\n---\nWork.\n"
    agent = read(tmp_path, AgentDialect.OPENCODE, text)
    assert notes(agent) == ["permission: bash is asked for in opencode; nobody is asked here, so it is denied"]
    assert agent.max_turns == 4


def test_opencode_rules_by_pattern_stay_as_a_restriction(tmp_path):
    text = '---\ndescription: d\npermission:\n  bash:\n    "git *": allow\n    "*": deny\n---\nWork.\n'
    assert read(tmp_path, AgentDialect.OPENCODE, text).unknown == ("permission",)


def test_opencode_permission_of_tasks_names_the_callable_agents(tmp_path):
    header = 'permission:\n  task:\n    "*": deny\n    explorer: allow'
    assert policy(tmp_path, AgentDialect.OPENCODE, header) == ToolPolicy(callable_agents=("explorer",))


def test_cursor_file_keeps_its_restriction(tmp_path):
    agent = read(tmp_path, AgentDialect.CURSOR, "---\nname: v\nmodel: fast\nreadonly: true\n---\nVerify.\n")
    assert (agent.readonly, agent.is_foreign) == (True, True)


def test_plan_mode_of_claude_is_read_only(tmp_path):
    agent = read(tmp_path, AgentDialect.CLAUDE, "---\nname: p\npermissionMode: plan\n---\nPlan.\n")
    assert (agent.readonly, agent.unknown) == (True, ())


@pytest.mark.parametrize(("header", "unknown"), [
    ("permissionMode: strictest", ("permissionMode",)),
])  # fmt: skip
def test_claude_restrictions_that_nothing_enforces_stay_under_their_name(tmp_path, header, unknown):
    assert read(tmp_path, AgentDialect.CLAUDE, f"---\nname: p\n{header}\n---\nPlan.\n").unknown == unknown


@pytest.mark.parametrize("dialect", [AgentDialect.CLAUDE, AgentDialect.GEMINI, AgentDialect.COPILOT])
def test_file_without_a_header_is_no_agent(tmp_path, dialect):
    (tmp_path / "notes.md").write_text("Some notes.\n")
    assert read_agent(tmp_path / "notes.md", AgentSource(SourceLayer.USER, dialect)) is None


def test_listed_tool_with_a_space_is_one_tool(tmp_path):
    header = "tools: ['Read', 'Microsoft Docs']"
    assert policy(tmp_path, AgentDialect.CLAUDE, header).optional == ("read", "Microsoft Docs")
