"""Tool grants: every source only removes tools, and unenforceable restrictions are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.agents.agent import Agent
from retinue.agents.tool_policy import (
    READ_ONLY_TOOLS,
    TOOL_PATTERNS,
    child_tool_ceiling,
    compute_grant,
    find_conflict,
    find_unenforceable,
    find_unsupported_preferences,
)
from retinue.engines.base import EngineCapabilities
from retinue.model.errors import ErrorCode, Failure
from retinue.model.mcp import McpServer
from retinue.model.runs import Limits, RemovedTool, ToolGrant

PI = EngineCapabilities(tools=frozenset({"read", "bash", "edit", "write", "grep", "find", "ls"}), delegates=True)
TOOLS = ("read", "grep", "find", "ls", "bash", "edit", "write", "lsp", "web_search", "mcp__a__b")


HOW = ("authority", "inherited", "allow_write", "delegation_tools", "servers", "own_servers")


def grant(capabilities: EngineCapabilities = PI, /, **given: Any) -> Any:
    """Return the grant of an agent with these fields."""
    how = {name: given.pop(name) for name in HOW if name in given}
    return compute_grant(Agent(name="a", **given).to_profile(), engine="pi", capabilities=capabilities, **how)


def test_allow_list_is_granted_in_its_order():
    assert grant(tools=("ls", "Read", "Bash")) == ToolGrant(tools=("ls", "read", "bash"))


def test_empty_allow_list_grants_no_tools():
    assert grant(tools=()) == ToolGrant()


def test_no_tools_overrides_every_list():
    assert grant(tools=("read",), no_tools=True) == ToolGrant(removed=(RemovedTool("read", "no_tools"),))


def test_deny_list_is_removed_from_the_inherited_tools():
    assert grant(
        denied_tools=("Bash",), inherited=("read", "bash", "edit", "Task", "subagent_finalize")
    ) == ToolGrant(
        tools=("read", "edit"),
        removed=(RemovedTool("bash", "denied"),),
    )


def test_deny_list_may_have_wildcards():
    capabilities = EngineCapabilities(tools=PI.tools, allows_other_tools=True)
    inherited = ("read", "mcp__x__a", "mcp__y__b")
    assert grant(capabilities, denied_tools=("mcp__x__*",), inherited=inherited) == ToolGrant(
        tools=("read", "mcp__y__b"),
        removed=(RemovedTool("mcp__x__a", "denied"),),
    )
    assert grant(denied_tools=("*",)).tools == ()


def test_agent_without_a_host_inherits_the_engines_tools():
    assert grant() == ToolGrant(tools=("bash", "edit", "find", "grep", "ls", "read", "write"))


def test_inherited_tools_missing_in_the_engine_are_removed():
    assert grant(inherited=("read", "todo")) == ToolGrant(tools=("read",), removed=(RemovedTool("todo", "engine"),))


def test_readonly_without_a_list_grants_the_engines_read_only_tools():
    assert grant(readonly=True, inherited=("bash", "read")) == ToolGrant(tools=("read", "grep", "find", "ls"))


def test_readonly_removes_writing_tools_from_a_list():
    assert grant(readonly=True, tools=("bash", "read")) == ToolGrant(
        tools=("read",),
        removed=(RemovedTool("bash", "readonly"),),
    )


def test_missing_allow_write_removes_writing_tools():
    assert grant(tools=("bash", "read"), allow_write=False) == ToolGrant(
        tools=("read",),
        removed=(RemovedTool("bash", "allow_write"),),
    )
    assert grant(inherited=("bash", "read"), allow_write=False) == ToolGrant(
        tools=("read",),
        removed=(RemovedTool("bash", "allow_write"),),
    )


def test_authority_removes_tools_the_parent_lacks():
    assert grant(tools=("bash", "read"), authority=frozenset({"read", "grep"})) == ToolGrant(
        tools=("read",),
        removed=(RemovedTool("bash", "authority"),),
    )


def test_missing_tool_fails_by_name_with_the_engines_tools():
    agent = Agent(name="a", tools=("read", "lsp", "WebSearch"), source="/x/a.md").to_profile()
    assert compute_grant(agent, engine="pi", capabilities=PI) == Failure(
        ErrorCode.UNSUPPORTED,
        'Agent "a" needs the tools lsp, web_search, which engine "pi" does not have (it has: bash, edit, find, grep, '
        "ls, read, write). Nothing was started. Choose another engine, or list it under optional_tools in /x/a.md.",
        "missing_tool",
        {"agent": "a", "tools": "lsp, web_search", "engine": "pi", "file": "/x/a.md"},
    )


def test_missing_optional_tool_is_reported_without_failure():
    assert grant(tools=("read",), optional_tools=("lsp", "grep")) == ToolGrant(
        tools=("read", "grep"), missing=("lsp",)
    )


def test_missing_tool_that_was_removed_is_no_failure():
    found = grant(EngineCapabilities(tools=frozenset({"read"})), tools=("read", "bash"), readonly=True)
    assert found == ToolGrant(tools=("read",), removed=(RemovedTool("bash", "readonly"),))


@pytest.mark.parametrize("bound", [{"allow_write": False}, {"readonly": True}, {"authority": frozenset({"read"})}])
@pytest.mark.parametrize(
    ("tool", "hint"), [("raed", " Did you mean read?"), ("Wrte", " Did you mean write?"), ("deploy", "")]
)
def test_unknown_tool_fails_by_name_before_any_removal(bound, tool, hint):
    found = grant(tools=("grep", tool), **bound)
    assert isinstance(found, Failure)
    assert found.reason == "missing_tool"
    assert found.message == (
        f'Agent "a" needs the tool {tool}, which engine "pi" does not have (it has: bash, edit, find, grep, ls, read, '
        f"write).{hint} Nothing was started. Choose another engine, or list it under optional_tools."
    )


def test_suggestion_for_several_missing_tools_names_each_tool_once():
    found = grant(tools=("raed", "reda", "wirte"))
    assert isinstance(found, Failure)
    assert " Did you mean read, write? " in found.message


@pytest.mark.parametrize("tool", ["TodoWrite", "NotebookEdit", "mcp__github__search", "subagent_finalize"])
def test_tools_of_other_hosts_are_known_and_removed(tool):
    found = grant(tools=("read", tool), allow_write=False)
    assert found == ToolGrant(tools=("read",), removed=(RemovedTool(tool, "allow_write"),))


def test_unknown_tool_is_no_failure_with_no_tools():
    assert grant(tools=("raed",), no_tools=True) == ToolGrant(removed=(RemovedTool("raed", "no_tools"),))


def test_engine_with_unlisted_tools_accepts_any_tool():
    more = EngineCapabilities(tools=PI.tools, allows_other_tools=True)
    found = grant(more, tools=("read", "deploy"), allow_write=False)
    assert found == ToolGrant(tools=("read",), removed=(RemovedTool("deploy", "allow_write"),))


def test_engine_with_unlisted_tools_is_granted_named_tools():
    assert grant(EngineCapabilities(tools=PI.tools, allows_other_tools=True), tools=("todo",)) == ToolGrant(
        tools=("todo",)
    )


@pytest.mark.parametrize("pattern", ["Bash(git:*)"])
@pytest.mark.parametrize("more", [False, True])
def test_unenforceable_tool_pattern_is_refused(pattern, more):
    found = grant(EngineCapabilities(tools=PI.tools, allows_other_tools=more), tools=("read", pattern))
    assert isinstance(found, Failure)
    assert (found.code, found.reason) == (ErrorCode.UNSUPPORTED, "tool_pattern")


def test_enforceable_tool_pattern_is_granted():
    keeps = EngineCapabilities(tools=PI.tools, enforces=frozenset({"tools", "readonly", "no_tools", TOOL_PATTERNS}))
    assert grant(keeps, tools=("read", "Bash(git:*)")) == ToolGrant(tools=("read", "bash(git:*)"))
    assert grant(keeps, tools=("Bash(git:*)",), authority=frozenset({"bash"})).tools == ("bash(git:*)",)
    assert grant(keeps, tools=("Bash",), authority=frozenset({"bash(git:*)"})).tools == ()


def test_unenforceable_denied_pattern_is_refused_only_if_its_tool_is_granted():
    found = grant(denied_tools=("Bash(rm:*)",))
    assert isinstance(found, Failure)
    assert found.reason == "tool_pattern"
    assert grant(denied_tools=("Bash(rm:*)",), inherited=("read",)) == ToolGrant(tools=("read",))


def test_delegation_is_granted_only_if_requested_and_possible():
    tools = ("delegate_to_subagents", "get_subagent_output")
    assert grant(tools=("read",), delegation_tools=tools) == ToolGrant(tools=("read",))
    assert grant(tools=("read", "Task"), delegation_tools=tools) == ToolGrant(tools=("read", *tools))
    assert grant(tools=("read", "Task")) == ToolGrant(tools=("read",), removed=(RemovedTool("subagent", "depth"),))
    assert grant(
        delegates=True, denied_tools=("subagent",), inherited=("read",), delegation_tools=tools
    ) == ToolGrant(
        tools=("read",),
        removed=(RemovedTool(tools[0], "denied"), RemovedTool(tools[1], "denied")),
    )


def test_engine_without_delegation_removes_only_delegation_tools():
    found = grant(EngineCapabilities(tools=PI.tools), tools=("read", "Task"), delegation_tools=("spawn_subagent",))
    assert found == ToolGrant(tools=("read",), removed=(RemovedTool("spawn_subagent", "engine"),))


def test_readonly_agent_may_delegate():
    found = grant(tools=("read", "bash", "Task"), readonly=True, delegation_tools=("subagent",))
    assert isinstance(found, ToolGrant)
    assert found.tools == ("read", "subagent")
    agent = Agent(name="a").to_profile()
    assert child_tool_ceiling(agent, found) == {"read", "subagent"}


def test_child_tool_ceiling_is_within_the_grant():
    agent = Agent(name="a", grants=("Read", "bash")).to_profile()
    assert child_tool_ceiling(agent, ToolGrant(tools=("read", "grep"))) == {"read"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": ("read",), "denied_tools": ("bash",)}, "tools"),
        ({"tools": (), "denied_tools": ("bash",)}, "tools"),
        ({"load_skills": ("s",), "no_skills": True}, "load_skills"),
        ({"suggested_skills": ("s",), "no_skills": True}, "suggested_skills"),
    ],
)
def test_contradictory_agent_fails_with_its_file(fields, reason):
    agent = Agent(name="a", source="/x/a.md", **fields).to_profile()
    found = find_conflict(agent)
    assert found is not None
    assert (found.code, found.reason) == (ErrorCode.CONFLICT, reason)
    assert "/x/a.md" in found.message
    assert compute_grant(agent, engine="pi", capabilities=PI) == found


@pytest.mark.parametrize(
    ("fields", "how", "name"),
    [
        ({"tools": ("read",)}, {}, "tools"),
        ({"denied_tools": ("bash",)}, {}, "tools"),
        ({}, {"authority": frozenset({"read"})}, "tools"),
        ({}, {"allow_write": False}, "tools"),
        ({"readonly": True}, {}, "readonly"),
        ({"no_tools": True}, {}, "no_tools"),
    ],
)
def test_engine_without_tool_enforcement_is_refused(fields, how, name):
    loose = EngineCapabilities(tools=PI.tools, enforces=frozenset())
    found = grant(loose, **how, **fields)
    assert isinstance(found, Failure)
    assert found.message.startswith(f'Agent "a" is restricted by {name}, which engine "pi" cannot enforce.')
    assert isinstance(grant(loose), ToolGrant)


def test_unenforceable_restrictions_are_refused():
    agent = Agent(name="a", no_skills=True, no_extensions=True).to_profile()
    found = find_unenforceable(
        agent, engine="x", capabilities=EngineCapabilities(tools=frozenset(), enforces=frozenset({"no_skills"}))
    )
    assert found is not None
    assert found.code is ErrorCode.UNSUPPORTED
    assert "restricted by noExtensions, which" in found.message
    both = EngineCapabilities(tools=frozenset(), enforces=frozenset({"no_skills", "no_extensions"}))
    assert find_unenforceable(agent, engine="x", capabilities=both) is None


def test_cost_budget_needs_an_engine_that_reports_cost():
    agent, limits = Agent(name="a").to_profile(), Limits(max_cost=1.0)
    assert find_unenforceable(agent, engine="x", capabilities=PI, limits=Limits()) is None
    assert find_unenforceable(agent, engine="x", capabilities=PI, limits=limits) is not None
    states = EngineCapabilities(tools=frozenset(), reports_cost=True)
    assert find_unenforceable(agent, engine="x", capabilities=states, limits=limits) is None


def test_unsupported_preferences_are_reported():
    agent = Agent(name="a", model="m", fallback_models=("n",), thinking="low", color="red").to_profile()
    assert find_unsupported_preferences(agent, PI) == ("model", "fallback_models", "thinking", "color")
    knows = EngineCapabilities(tools=frozenset(), preferences=frozenset({"model", "color"}))
    assert find_unsupported_preferences(agent, knows) == ("thinking",)


# -- properties ------------------------------------------------------------------------

some_tools = st.lists(st.sampled_from(TOOLS), max_size=6).map(tuple)
sets_of_tools = st.frozensets(st.sampled_from(TOOLS))
agents = st.fixed_dictionaries(
    {
        "tools": st.none() | some_tools,
        "optional_tools": some_tools,
        "readonly": st.booleans(),
        "no_tools": st.booleans(),
    },
)
circumstances = st.fixed_dictionaries(
    {"authority": st.none() | sets_of_tools, "inherited": st.none() | some_tools, "allow_write": st.booleans()},
)


@settings(max_examples=400, deadline=None)
@given(agents, circumstances, sets_of_tools)
def test_grant_is_within_engine_authority_and_agent(fields, how, has):
    found = grant(EngineCapabilities(tools=has), **how, **fields)
    if isinstance(found, Failure):
        assert found.reason == "missing_tool"
        return
    tools = set(found.tools)
    assert tools <= has
    assert how["authority"] is None or tools <= how["authority"]
    if fields["tools"] is not None:
        wanted = (*fields["tools"], *fields["optional_tools"])
        assert found.tools == tuple(tool for tool in dict.fromkeys(wanted) if tool in tools)
    if fields["readonly"] or not how["allow_write"]:
        assert tools <= set(READ_ONLY_TOOLS)
    if fields["no_tools"]:
        assert not tools
    assert not tools & ({removed.tool for removed in found.removed} | set(found.missing))


@settings(max_examples=300, deadline=None)
@given(some_tools, st.sampled_from(TOOLS), circumstances, sets_of_tools, st.booleans())
def test_denying_another_tool_never_adds_a_tool(denied, more, how, has, readonly):
    before = grant(EngineCapabilities(tools=has), denied_tools=denied, readonly=readonly, **how)
    after = grant(EngineCapabilities(tools=has), denied_tools=(*denied, more), readonly=readonly, **how)
    assert isinstance(before, ToolGrant)
    assert isinstance(after, ToolGrant)
    assert set(after.tools) == set(before.tools) - {more}


@settings(max_examples=200, deadline=None)
@given(agents, circumstances, sets_of_tools, sets_of_tools)
def test_less_authority_never_gives_more(fields, how, has, less):
    before = grant(EngineCapabilities(tools=has), **how, **fields)
    bound = less if how["authority"] is None else less & how["authority"]
    after = grant(EngineCapabilities(tools=has), **{**how, "authority": bound}, **fields)
    if isinstance(before, ToolGrant):
        assert isinstance(after, ToolGrant)
        assert set(after.tools) <= set(before.tools)


# -- MCP servers -----------------------------------------------------------------------------------

SERVING = EngineCapabilities(tools=frozenset({"read"}), calls_servers=True)
DOCS = McpServer(name="docs", command="docs")
BROKEN = McpServer(name="broken", problem="it is gone")


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (("read", "mcp__docs__search"), ToolGrant(tools=("read", "mcp__docs__search"))),
        (("mcp__docs", "mcp__docs__*"), ToolGrant(tools=("mcp__docs", "mcp__docs__*"))),
        (("read", "mcp__broken__x"), ToolGrant(tools=("read",), missing=("mcp__broken__x",))),
        (("read", "mcp__gone__*"), ToolGrant(tools=("read",), missing=("mcp__gone__*",))),
    ],
)
def test_tools_of_servers_that_cannot_be_started_are_missing_and_refuse_nothing(tools, expected):
    assert grant(SERVING, tools=tools, servers=(DOCS, BROKEN)) == expected


def test_agent_without_a_list_has_all_tools_of_its_own_servers():
    found = grant(SERVING, servers=(DOCS, BROKEN), own_servers=("docs", "broken"))
    assert found == ToolGrant(tools=("read", "mcp__docs__*"), missing=("mcp__broken__*",))


def test_engine_that_calls_no_servers_lacks_their_tools():
    capabilities = EngineCapabilities(tools=frozenset({"read"}))
    found = grant(capabilities, tools=("read", "mcp__docs"), servers=(DOCS,))
    assert found == ToolGrant(tools=("read",), missing=("mcp__docs",))


@pytest.mark.parametrize(
    ("authority", "expected"),
    [
        ({"read", "mcp__docs__*"}, ("read", "mcp__docs__*")),
        ({"mcp__docs"}, ("mcp__docs__*",)),
        ({"mcp__docs__get", "mcp__docs__search", "mcp__other__x"}, ("mcp__docs__get", "mcp__docs__search")),
        ({"read"}, ("read",)),
    ],
)
def test_authority_narrows_a_whole_server_to_the_tools_it_has(authority, expected):
    tools = ("read", "mcp__docs__*")
    found = grant(SERVING, tools=tools, servers=(DOCS,), authority=frozenset(authority))
    assert isinstance(found, ToolGrant)
    assert found.tools == expected


@pytest.mark.parametrize("rule", ["readonly", "allow_write"])
def test_read_only_runs_have_no_tool_of_a_server(rule):
    fields = {"readonly": True} if rule == "readonly" else {"allow_write": False}
    found = grant(SERVING, tools=("read", "mcp__docs"), servers=(DOCS,), **fields)
    assert found == ToolGrant(tools=("read",), removed=(RemovedTool("mcp__docs", rule),))
