"""Real-world agent files, each with its expected reading."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from retinue.agents.agent import NAME_RULE, Agent, Diagnostic, SourceLayer
from retinue.agents.dialects import AgentDialect, AgentSource, read_agent
from retinue.model.hooks import Hook
from retinue.model.runs import Secret

FILES = Path(__file__).parent / "files"

LINE_BY_LINE = "the header is not valid YAML ({}) and is read line by line; quote the value to be sure"
COLON = LINE_BY_LINE.format("mapping values are not allowed in this context")

GOOD: dict[str, dict[str, Any]] = {
    "claude-generated.md": {
        "name": "api-contract-reviewer",
        "description": (
            "Use this agent when API contracts change and need review. Examples: <example>Context: The user has just "
            'edited an OpenAPI file. user: "I\'ve added a PATCH route for orders" assistant: "Let me use the '
            'api-contract-reviewer agent to check compatibility" <commentary>A contract changed: use the Task tool '
            'to launch the agent.</commentary></example>\\n\\n<example>Context: Versioning. user: "Can we drop this '
            'field?" assistant: "I\'ll ask the api-contract-reviewer"</example>'
        ),
        "body": (
            "You are an expert in API design.\n\n**Your process:**\n1. Read the contract.\n"
            "2. Compare it with the last release."
        ),
        "tools": ("Glob", "Grep", "LS", "Read", "WebFetch", "TodoWrite", "WebSearch", "BashOutput", "KillBash"),
        "model": "sonnet",
        "color": "red",
        "notices": [(3, COLON)],
    },
    "claude-simple.md": {
        "name": "debugger",
        "description": (
            "Debugging specialist for errors, test failures, and unexpected behavior. "
            "Use proactively when encountering any issues."
        ),
        "body": "You are an expert debugger specializing in root cause analysis.",
        "tools": ("Read", "Edit", "Bash", "Grep", "Glob"),
    },
    "claude-inherits.md": {
        "name": "data-scientist",
        "description": "Data analysis expert: SQL, BigQuery and charts.",
        "body": "You are a data scientist.",
    },
    "claude-allow-and-deny.md": {
        "name": "researcher-ro",
        "description": "Research and explore the codebase without making changes",
        "body": "You research.",
        "tools": ("Read", "Grep", "Glob", "WebFetch", "WebSearch"),
        "model": "haiku",
        "load_skills": ("pdf-tools", "changelog"),
        "max_turns": 12,
        "readonly": True,
        "hooks": (Hook(event="PreToolUse", command="./scripts/validate.sh", matcher="Bash"),),
    },
    "claude-block-description.md": {
        "name": "test-automator",
        "description": (
            "Creates comprehensive test suites: unit, integration and e2e.\n"
            "Use PROACTIVELY for test coverage improvement.\n\n"
            '<example>\nuser: "add tests"\nassistant: "I\'ll use test-automator"\n</example>'
        ),
        "body": "You are a test automation specialist.",
        "tools": ("Read", "Write", "Bash(npm test:*)", "Bash(git diff:*, git log:*)"),
        "model": "opus",
    },
    "claude-title.md": {
        "name": "code-reviewer",
        "description": "Reviews code 🔍 for quality",
        "body": "Review it.",
        "tools": ("Read",),
        "title": "Code Reviewer",
        "notices": [(2, "name: 'Code Reviewer' is not a valid name; the agent is named 'code-reviewer'")],
    },
    "claude-unindented.md": {
        "name": "commit-helper",
        "description": (
            "Use this agent to write commit messages. Examples: <example> Context: finished a feature "
            'user: "commit this" assistant: "I\'ll use the commit-helper agent" </example>'
        ),
        "body": "Write a commit message.",
        "tools": ("Read", "Bash"),
        "model": "haiku",
        "notices": [(3, COLON)],
    },
    "pi-scout.md": {
        "name": "scout",
        "description": "Fast codebase recon that returns compressed context for handoff to other agents",
        "body": "You are a scout. Quickly investigate a codebase and return structured findings.",
        "tools": ("read", "grep", "find", "ls", "bash"),
        "model": "claude-haiku-4-5",
    },
    "pi-devkit.md": {
        "name": "auditor",
        "description": "Audits dependencies",
        "body": "Audit.",
        "tools": ("read", "grep", "find", "ls"),
        "readonly": True,
    },
    "pi-nicobailon.md": {
        "name": "ops.planner",
        "description": "Plans rollouts step by step",
        "body": "Plan it.",
        "tools": ("read", "bash", "mcp:chrome-devtools"),
        "model": "anthropic/claude-sonnet-4",
        "fallback_models": ("openai/gpt-5-mini", "google/gemini-2.5-flash"),
        "thinking": "high",
        "load_skills": ("git-release", "rollout"),
        "timeout": 90.0,
        "max_subagent_depth": 1,
        "output": "plan.md",
        "default_reads": ("context.md", "notes.md"),
        "unknown": ("package", "systemPromptMode", "inheritProjectContext"),
    },
    "pi-tintinweb.md": {
        "name": "pi-tintinweb",
        "description": "Looks quickly",
        "body": "Look.",
        "tools": (),
        "thinking": "medium",
        "no_extensions": True,
        "no_skills": True,
        "max_turns": 5,
        "unknown": ("display_name", "prompt_mode"),
        "notices": [(None, "name: the header has no name; the agent is named after its file, 'pi-tintinweb'")],
    },
    "pi-switched-off.md": {
        "name": "retired",
        "description": "No longer used",
        "body": "Gone.",
        "enabled": False,
        "notices": [(4, LINE_BY_LINE.format("did not find expected alphabetic or numeric character"))],
    },
    "sticky-allow.md": {
        "name": "scout",
        "description": "Fast codebase reconnaissance",
        "body": "System prompt for the subagent goes here.",
        "tools": ("read", "bash"),
    },
    "sticky-deny.md": {
        "name": "builder",
        "description": "Builds",
        "body": "Build.",
        "denied_tools": ("write", "edit"),
    },
    "sticky-both.md": {
        "name": "confused",
        "description": "Both kinds",
        "body": "Which?",
        "tools": ("read",),
        "denied_tools": ("bash",),
    },
    "profile-full.md": {
        "name": "analyst",
        "body": "You analyse.",
        "denied_tools": ("bash", "write"),
        "provider": "openrouter",
        "model": "moonshotai/kimi-k2:high",
        "thinking": "xhigh",
        "append_system_prompt": "Answer in German.\nCite tables.",
        "extensions": ("./a.ts", "./b.ts"),
        "no_extensions": True,
        "load_skills": ("sql",),
        "suggested_skills": ("charts",),
        "no_context_files": True,
        "extra_args": ("--verbose", "--thinking", "high"),
        "api_key": Secret("sk-test-0123456789abcdef"),
    },
    "profile-no-body.md": {"name": "thinker", "no_tools": True},
    "bom-crlf.md": {
        "name": "windows",
        "description": "Written on Windows",
        "body": "First line.\nSecond line.",
        "tools": ("read",),
    },
    "tabs.md": {
        "name": "tabbed",
        "description": "Uses tabs",
        "body": "Tabs.",
        "tools": ("read", "grep"),
        "notices": [(5, LINE_BY_LINE.format("found character that cannot start any token"))],
    },
    "strings-stay-strings.md": {
        "name": "3000",
        "description": "2024-01-02",
        "body": "on",
        "tools": ("yes",),
        "model": "1e3",
        "color": "no",
    },
    "plain-prompt.md": {
        "name": "plain-prompt",
        "body": "You are a plain prompt without any header.",
        "notices": [(None, "name: the header has no name; the agent is named after its file, 'plain-prompt'")],
    },
    "bad-values.md": {
        "name": "hopeful",
        "description": "Bad values",
        "body": "Hope.",
        "max_subagent_depth": 64,
        "unknown": ("temperature",),
        "notices": [
            (4, "timeout: 'soon' is not a number above 0; the default is used"),
            (5, "max_turns: '-3' is not a whole number from 1 to 10000; the default is used"),
            (6, "max_subagent_depth: '1000' is not a whole number from 0 to 64; 64 is used"),
            (
                7,
                "thinking: 'very hard' is not one of off, minimal, low, medium, high, xhigh, max; the default is used",
            ),
            (8, "color: ('red', 'green') is not one text; the default is used"),
        ],
    },
    "said-twice.md": {
        "name": "first",
        "description": "One",
        "body": "Twice.",
        "tools": ("read",),
        "denied_tools": ("write", "edit"),
        "notices": [
            (4, "name is given twice; the first one is used (line 2)"),
            (6, "allowed_tools: ignored: it means the same as tools"),
        ],
    },
    "quoted.md": {
        "name": "release-notes",
        "description": 'Writes "release notes" 🚀 — short: 3 bullets',
        "body": "# Role\n\nWrite notes.\n\n---\n\nNot a header.",
        "tools": ("read", "grep"),
        "avatar_emoji": "📝",
    },
    "own.md": {
        "name": "lead",
        "description": "Coordinates others",
        "body": "Coordinate.",
        "tools": ("read", "grep", "Task"),
        "optional_tools": ("lsp", "web_search"),
        "grants": ("read", "grep"),
        "engine": "inprocess",
        "environment": ("GITHUB_TOKEN", "CI"),
        "timeout": 120.0,
    },
}

BROKEN: dict[str, tuple[int | None, str]] = {
    "not-closed.md": (1, "the header is not closed by a --- line"),
    "unreadable-restriction.md": (4, "readonly: 'mostly' is not true or false"),
    "look-alike.md": (
        None,
        f"the name '\\u0435xplorer' is invalid: use {NAME_RULE}",
    ),
    "prose-header.md": (2, "the header does not consist of `key: value` lines"),
    "hopeless.md": (3, "the header is not valid YAML: did not find expected ',' or ']'"),
    "empty.md": (None, "is empty"),
}


def origin(file: str) -> AgentSource:
    return AgentSource(SourceLayer.USER, AgentDialect.CLAUDE if file.startswith("claude") else AgentDialect.MARKDOWN)


@pytest.mark.parametrize("file", GOOD)
def test_real_world_file_is_read_as_intended(file):
    path, fields = FILES / file, dict(GOOD[file])
    notices = tuple(Diagnostic(str(path), text, line) for line, text in fields.pop("notices", ()))
    if origin(file).dialect is AgentDialect.CLAUDE:
        fields["is_foreign"] = True
        if "tools" in fields:
            fields |= {"tools": (), "optional_tools": fields["tools"]}
    assert read_agent(path, origin(file)) == Agent(
        **fields,
        layer=SourceLayer.USER,
        source=str(path),
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        notices=notices,
    )


@pytest.mark.parametrize("file", BROKEN)
def test_broken_real_world_file_is_reported_with_line_and_reason(file):
    line, reason = BROKEN[file]
    assert read_agent(FILES / file, origin(file)) == Diagnostic(str(FILES / file), reason, line)


def test_readme_among_agents_is_no_agent():
    assert read_agent(FILES / "README.md", AgentSource(SourceLayer.USER, AgentDialect.CLAUDE)) is None


def test_every_real_world_file_has_an_expectation():
    assert {path.name for path in FILES.glob("*.md")} == {*GOOD, *BROKEN, "README.md"}


def test_api_key_of_a_project_file_is_ignored():
    path = FILES / "profile-full.md"
    agent = read_agent(path, AgentSource(SourceLayer.PROJECT))
    assert isinstance(agent, Agent)
    assert agent.api_key is None
    assert agent.notices == (Diagnostic(str(path), "apiKey: ignored: a project's file may not contain a key", 15),)
    assert "sk-test" not in repr(agent)
