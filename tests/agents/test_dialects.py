"""Dialects of agent files: tool lists, values, discovery and folders."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from retinue.agents.agent import Agent, Diagnostic, SourceLayer
from retinue.agents.dialects import AgentDialect, AgentSource, read_agent
from retinue.model.agents import ToolPolicy

USER = AgentSource(SourceLayer.USER)
CLAUDE = AgentSource(SourceLayer.USER, AgentDialect.CLAUDE)
VAULT = AgentSource(SourceLayer.VAULT, AgentDialect.FOLDER)


def read(path: Path, origin: AgentSource = USER) -> Agent:
    agent = read_agent(path, origin)
    assert isinstance(agent, Agent), agent
    return agent


@pytest.fixture
def read_header(tmp_path, write):
    """Return a reader of agents by their header."""
    return lambda *lines, origin=USER: read(write(tmp_path / "x.md", *lines), origin)


# -- tools -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["tools", "approved_tools", "allowed_tools", "allowedTools", "allowed-tools", "Tools"]
)
@pytest.mark.parametrize("value", ["read, bash", "[read, bash]", "\n  - read\n  - bash", '"read,bash"', "read bash"])
def test_allow_list_has_several_spellings(read_header, key, value):
    assert read_header(f"{key}: {value}").tools == ("read", "bash")


@pytest.mark.parametrize("key", ["denied_tools", "excludeTools", "disallowedTools", "disallowed_tools"])
def test_deny_list_has_several_spellings(read_header, key):
    assert read_header(f"{key}: bash, write").denied_tools == ("bash", "write")


@pytest.mark.parametrize("value", ['"*"', "*", "all", "All", "inherit", "null", "~", "[all]"])
def test_inherit_values_inherit_the_callers_tools(read_header, value):
    assert read_header(f"tools: {value}").tools is None


@pytest.mark.parametrize("value", ["none", "[]", '""', ""])
def test_values_for_none_grant_no_tools(read_header, value):
    assert read_header(f"tools: {value}").tools == ()


def test_empty_tool_list_grants_no_tools_with_a_notice(read_header):
    assert [remark.text for remark in read_header("tools:").notices] == [
        "tools: is empty, so the agent has no tools; remove the key to inherit tools",
    ]


def test_invalid_tool_list_makes_the_file_unusable(tmp_path, write):
    path = write(tmp_path / "x.md", "tools:", "  write: false")
    assert read_agent(path, USER) == Diagnostic(str(path), "tools: {'write': 'false'} is not a list of names", 3)


def test_claude_denied_tools_are_removed_from_allowed_tools(read_header):
    agent = read_header("tools: Read, Bash, mcp__x__a", "disallowedTools: bash, mcp__*", origin=CLAUDE)
    assert agent.to_profile().tools == ToolPolicy(allow=(), optional=("read",))


def test_claude_denied_pattern_restricts_an_allowed_tool(read_header):
    agent = read_header("tools: Read, Bash", "disallowedTools: Bash(rm:*)", origin=CLAUDE)
    assert agent.to_profile().tools == ToolPolicy(allow=(), optional=("read", "bash"), deny=("bash(rm:*)",))


def test_denying_a_delegation_tool_denies_its_other_name(read_header):
    assert not read_header("tools: Read, Task", "disallowedTools: Agent", origin=CLAUDE).to_profile().tools.delegates


def test_claude_deny_list_without_allow_list_is_kept(read_header):
    agent = read_header("disallowedTools: Write, Edit", origin=CLAUDE)
    assert agent.to_profile().tools == ToolPolicy(deny=("write", "edit"))


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["true", "True", "YES", "1", "on"])
def test_true_values_set_a_flag(read_header, word):
    assert read_header(f"readonly: {word}").readonly


@pytest.mark.parametrize("word", ["false", "No", "0", "off", ""])
def test_false_values_clear_a_flag(read_header, word):
    assert not read_header(f"readonly: {word}").readonly


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("timeout: 30", "timeout", 30.0),
        ("timeout: 0.5", "timeout", 1.0),
        ("timeoutMs: 1500", "timeout", 1.5),
        ("timeout: 99999999", "timeout", 604800.0),
        ("timeout: nan", "timeout", None),
        ("timeout: inf", "timeout", None),
        ("timeout: 0", "timeout", None),
        ("max_turns: 7", "max_turns", 7),
        ("maxTurns: 0", "max_turns", None),
        ("maxSubagentDepth: 0", "max_subagent_depth", 0),
        ("thinkingLevel: HIGH", "thinking", "high"),
        ("effort: low", "thinking", "low"),
        ("model: inherit", "model", None),
        ("model: ''", "model", None),
        ("fallbackModels: a, b", "fallback_models", ("a", "b")),
        ("disabled: true", "enabled", False),
        ("extraArgs: [--thinking, high, --thinking, low]", "extra_args", ("--thinking", "high", "--thinking", "low")),
        ("extensions: true", "extensions", ()),
    ],
)
def test_header_values_are_parsed(read_header, line, field, value):
    assert getattr(read_header(line), field) == value


# -- discovery ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "header", "is_agent"),
    [
        (AgentDialect.PROMPT, "name: x\ntools: read", True),
        (AgentDialect.PROMPT, "name: x\ndenied_tools: [bash]", True),
        (AgentDialect.PROMPT, "name: x\ndescription: a template", False),
        (AgentDialect.PROMPT, "description: a template\ntools: read", False),
        (AgentDialect.NAMED, "name: x", True),
        (AgentDialect.NAMED, "description: notes", False),
    ],
)
def test_dialect_decides_which_files_are_agents(tmp_path, dialect, header, is_agent):
    path = tmp_path / "x.md"
    path.write_text(f"---\n{header}\n---\nText\n")
    assert (read_agent(path, AgentSource(SourceLayer.PROJECT, dialect)) is not None) is is_agent


def test_markdown_without_a_header_is_no_agent_and_no_problem(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("")
    assert read_agent(path, AgentSource(SourceLayer.PROJECT, AgentDialect.NAMED)) is None


# -- folders ---------------------------------------------------------------------------------------

CONFIG = """\
name: Research Analyst
description: Digs deep
avatarEmoji: "🔎"
provider: claude_sdk
model: claude-sonnet-4-5
tools: [Read, WebSearch]
color: "#aabbcc"
thinking: medium
fallback_models: [claude-haiku-4-5]
output: report.md
defaultReads: [notes.md]
default_progress: true
max_subagent_depth: 2
"""


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "research-analyst"
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "AGENTS.md").write_text("# Analyst\n\nDig.\n")
    (folder / "SOUL.md").write_text("You are witty.\n")
    (folder / "MEMORY.md").write_text("The user likes tea.\n")
    return folder


def test_agent_folder_is_called_by_its_name(workspace):
    settings, body = CONFIG.encode(), b"# Analyst\n\nDig.\n"
    digest = hashlib.sha256(b"%d %d " % (len(settings), len(body)) + settings + body).hexdigest()
    assert read_agent(workspace, VAULT) == Agent(
        name="research-analyst",
        description="Digs deep",
        body="# Analyst\n\nDig.",
        persona="You are witty.",
        memory="The user likes tea.",
        avatar_emoji="🔎",
        engine="claude",
        model="claude-sonnet-4-5",
        tools=("Read", "WebSearch"),
        color="#aabbcc",
        thinking="medium",
        fallback_models=("claude-haiku-4-5",),
        output="report.md",
        default_reads=("notes.md",),
        max_subagent_depth=2,
        layer=SourceLayer.VAULT,
        source=str(workspace / "AGENTS.md"),
        digest=digest,
    )


def test_persona_and_memory_do_not_change_the_digest(workspace):
    before = read(workspace, VAULT).digest
    (workspace / "MEMORY.md").write_text("Coffee now.\n")
    assert read(workspace, VAULT).digest == before


@pytest.mark.parametrize(
    ("damage", "file", "reason", "line"),
    [
        (lambda folder: (folder / "config.yaml").unlink(), "config.yaml", "is missing", None),
        (lambda folder: (folder / "AGENTS.md").unlink(), "AGENTS.md", "is missing", None),
        (lambda folder: (folder / "config.yaml").write_text("name: x\n"), "config.yaml", "has no description", None),
        (
            lambda folder: (folder / "config.yaml").write_text("name: x\ndescription: y\ntools: {a: b}\n"),
            "config.yaml",
            "tools: {'a': 'b'} is not a list of names",
            3,
        ),
    ],
)
def test_broken_agent_folder_is_reported_with_its_file(workspace, damage, file, reason, line):
    damage(workspace)
    assert read_agent(workspace, VAULT) == Diagnostic(str(workspace / file), reason, line)


@pytest.mark.parametrize("slug", ["Research Analyst", "_drafts", "-x", "--help", "x" * 65])
def test_agent_folder_with_an_invalid_name_is_reported(workspace, slug):
    folder = workspace.rename(workspace.with_name(slug))
    reason = (
        "the folder's name is not a valid agent name: use a-z, 0-9, _ and - (max 64, starting with a letter or digit)"
    )
    assert read_agent(folder, VAULT) == Diagnostic(str(folder), reason)


def test_unreadable_memory_is_only_a_notice(workspace):
    (workspace / "MEMORY.md").write_bytes(b"\xff\xfe")
    agent = read(workspace, VAULT)
    assert agent.memory == ""
    assert Diagnostic(str(workspace / "MEMORY.md"), "is UTF-16; save it as UTF-8; left out", 1) in agent.notices
