"""Prompt files as agents of `sticky`: discovery, body and tool lists."""

from __future__ import annotations

import pytest
from msgspec import structs

from retinue.engines.scripted import finalize
from retinue.model.runs import RemovedTool

PROMPT = """\
---
name: scout
description: Fast codebase reconnaissance
approved_tools:
  - read
  - bash
---

System prompt for the subagent goes here.
"""
HOST = ("read", "grep", "bash", "deploy", "subagent", "spawn_subagent", "subagent_finalize")


@pytest.fixture(params=["project", "user"])
def prompts(request, workplace, scratch_home):
    """Return the folder of prompt files: the project's, or the user's."""
    folder = workplace / ".pi" / "prompts" if request.param == "project" else scratch_home / ".pi/agent/subagents"
    folder.mkdir(parents=True)
    return folder


async def run_agent(open_host, *, host_tools=None, agent="scout"):
    """Return the answer of an agent, and the specs its engine received, with every project trusted."""
    settings = {"project_agents": "allow"}
    async with open_host(finalize("done"), toolset="sticky", settings=settings) as host:
        call = structs.replace(host.call(), host_tools=host_tools)
        return await host.ask(agent, call=call), host.specs


async def granted_tools(open_host, **options):
    _, (spec,) = await run_agent(open_host, **options)
    return spec.grant


def scout(folder, *lines):
    path = folder / "scout.md"
    path.write_text("\n".join(["---", "name: scout", "description: Scouts.", *lines, "---", "You scout."]))
    return path


async def test_prompt_file_is_an_agent_by_its_name(open_host, prompts):
    (prompts / "another-name.md").write_text(PROMPT)
    settings = {"project_agents": "allow"}
    async with open_host(finalize("done"), toolset="sticky", settings=settings) as host:
        (tool,) = host.tools()
        await host.ask("scout")
    assert "- scout: Fast codebase reconnaissance" in tool.description
    assert host.specs[0].agent.name == "scout"


async def test_body_of_a_prompt_file_is_the_whole_system_prompt(open_host, prompts):
    (prompts / "scout.md").write_text(PROMPT)
    _, (spec,) = await run_agent(open_host)
    assert spec.instructions == "System prompt for the subagent goes here."


@pytest.mark.parametrize("key", ["approved_tools", "allowed_tools"])
async def test_allow_list_grants_only_its_tools(open_host, prompts, key):
    scout(prompts, f"{key}:", "  - read", "  - bash")
    assert (await granted_tools(open_host, host_tools=HOST)).tools == ("read", "bash")


async def test_deny_list_grants_the_hosts_active_tools_except_its_own(open_host, prompts):
    scout(prompts, "denied_tools:", "  - bash")
    grant = await granted_tools(open_host, host_tools=HOST)
    assert grant.tools == ("read", "grep", "deploy")
    assert grant.removed == (RemovedTool("bash", "denied"),)


async def test_agent_without_a_tool_list_inherits_the_hosts_active_tools(open_host, scratch_home):
    folder = scratch_home / ".pi" / "agent" / "subagents"
    folder.mkdir(parents=True)
    scout(folder)
    assert (await granted_tools(open_host, host_tools=HOST)).tools == ("read", "grep", "bash", "deploy")


@pytest.mark.parametrize("line", ["denied_tools: [bash]", ""], ids=["deny list", "no list"])
async def test_delegation_and_internal_tools_are_never_inherited(open_host, scratch_home, line):
    folder = scratch_home / ".pi" / "agent" / "subagents"
    folder.mkdir(parents=True)
    scout(folder, line)
    grant = await granted_tools(open_host, host_tools=HOST)
    assert not {"subagent", "spawn_subagent", "subagent_finalize"} & set(grant.tools)


@pytest.mark.parametrize("allow", ["approved_tools", "allowed_tools"])
async def test_allow_and_deny_list_together_are_a_conflict_naming_the_file(open_host, prompts, allow):
    path = scout(prompts, f"{allow}: [read]", "denied_tools: [bash]")
    answer, specs = await run_agent(open_host)
    message = (
        f'Agent "scout" ({path}) has both an allow list and a deny list of tools. '
        "Nothing was started. Keep one of the two."
    )
    assert answer == {
        "content": [{"type": "text", "text": message}],
        "details": {"error": {"code": "conflict", "message": message}},
        "isError": True,
    }
    assert specs == []


async def test_prompt_templates_of_pi_are_no_agents(open_host, workplace):
    folder = workplace / ".pi" / "prompts"
    folder.mkdir(parents=True)
    (folder / "review.md").write_text("---\ndescription: A template\n---\nReview $1.")
    async with open_host(toolset="sticky") as host:
        assert "review:" not in host.tools()[0].description
