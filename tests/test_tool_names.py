"""One table of tool names, both ways."""

from __future__ import annotations

import pytest

from retinue.tool_names import claude_name, is_covered, pi_name

PAIRS = [
    ("Read", "read"),
    ("Write", "write"),
    ("Edit", "edit"),
    ("Bash", "bash"),
    ("Grep", "grep"),
    ("Glob", "find"),
    ("LS", "ls"),
    ("WebSearch", "web_search"),
    ("WebFetch", "fetch_content"),
    ("Task", "subagent"),
]


@pytest.mark.parametrize(("claude", "pi"), PAIRS)
def test_names_map_both_ways(claude, pi):
    assert (pi_name(claude), claude_name(pi)) == (pi, claude)


@pytest.mark.parametrize(
    ("name", "pi"),
    [
        ("MultiEdit", "edit"),
        ("Agent", "subagent"),
        ("READ", "read"),
        ("websearch", "web_search"),
        ("LSP", "lsp"),
        ("mcp__GitHub__Search", "mcp__GitHub__Search"),
        ("Bash(git log:*)", "bash(git log:*)"),
        (" Bash ", "bash"),
    ],
)
def test_names_are_found_whatever_their_case(name, pi):
    assert pi_name(name) == pi


@pytest.mark.parametrize(
    ("name", "by", "covered"),
    [
        ("bash", "bash", True),
        ("bash(git:*)", "bash", True),
        ("bash", "bash(git:*)", False),
        ("bash(git:*)", "bash(git:*)", True),
        ("mcp__github__search", "mcp__*", True),
        ("mcp__github__search", "MCP__GITHUB__*", True),
        ("read", "*", True),
        ("reader", "read", False),
    ],
)
def test_a_name_covers_what_it_says_and_no_more(name, by, covered):
    assert is_covered(name, [by]) is covered
