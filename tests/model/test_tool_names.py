"""One table of tool names, both ways."""

from __future__ import annotations

import pytest

from retinue.model.tool_names import find_nearest, is_covered, is_known, to_claude_name, to_pi_name

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
    assert (to_pi_name(claude), to_claude_name(pi)) == (pi, claude)


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
    assert to_pi_name(name) == pi


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
def test_tool_name_covers_exactly_its_calls(name, by, covered):
    assert is_covered(name, [by]) is covered


@pytest.mark.parametrize("name", ["read", "Glob", "Bash(git:*)", "lsp", "agent_info", "TodoWrite", "mcp__a__b"])
def test_a_tool_of_any_host_is_known(name):
    assert is_known(name)


@pytest.mark.parametrize(("name", "meant"), [("raed", "read"), ("Globb", "find"), ("web-search", "web_search")])
def test_misspelled_tool_is_unknown_and_has_a_suggestion(name, meant):
    assert (is_known(name), find_nearest(name)) == (False, meant)


def test_name_unlike_any_tool_has_no_suggestion():
    assert (is_known("deploy"), find_nearest("deploy")) == (False, None)
