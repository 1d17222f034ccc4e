"""Calls that the `sticky` tool refuses, with their messages."""

from __future__ import annotations

import pytest

from retinue.engines.scripted import finalize

GOOD = {"agent": "explorer", "task": "Find auth code"}
SESSION_ID = (
    "Parameter sessionId must be 8 to 64 letters, digits and hyphens, from an earlier answer. Leave it out to start "
    "a new session."
)
OBJECT = "The input of subagent must be an object with agent and task"


async def call_subagent(open_host, arguments, **options):
    """Return the result of a call that must start nothing."""
    async with open_host(finalize("done"), toolset="sticky", **options) as host:
        result = await host.use(arguments)
    assert host.specs == []
    assert (result.is_error, result.exit_code) == (True, 2)
    return result.as_json()


def refusal(code, message):
    return {
        "content": [{"type": "text", "text": message}],
        "details": {"error": {"code": code, "message": message}},
        "isError": True,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (None, OBJECT),
        ([GOOD], OBJECT),
        ({}, "Missing required parameter: agent"),
        ({**GOOD, "agent": ""}, "Missing required parameter: agent"),
        ({**GOOD, "agent": 7}, "Parameter agent must be a string"),
        ({"agent": "explorer"}, "Missing required parameter: task"),
        ({**GOOD, "task": None}, "Missing required parameter: task"),
        ({**GOOD, "task": ["x"]}, "Parameter task must be a string"),
        ({**GOOD, "task": " \n"}, "The task is empty: write what the agent is to do"),
        ({**GOOD, "sessionId": 12345678}, "Parameter sessionId must be a string"),
        ({**GOOD, "sessionId": "1234567"}, SESSION_ID),
        ({**GOOD, "sessionId": "a" * 65}, SESSION_ID),
        ({**GOOD, "sessionId": "../../etc/passwd"}, SESSION_ID),
        ({**GOOD, "sessionId": "12345678\n"}, SESSION_ID),
    ],
)
async def test_sticky_refuses_missing_or_mistyped_fields_by_name(open_host, arguments, message):
    assert await call_subagent(open_host, arguments) == refusal("invalid_input", message)


@pytest.mark.parametrize("session", [None, ""])
async def test_null_or_empty_session_id_starts_a_new_session(open_host, session):
    async with open_host(finalize("done"), toolset="sticky") as host:
        result = await host.use({**GOOD, "sessionId": session})
    assert result.text.endswith("---\n\ndone")


async def test_sticky_refuses_an_unknown_agent_with_the_available_agents(open_host):
    message = "Unknown agent: nobody. Available agents: explorer, researcher, reviewer, implementer, tester"
    assert await call_subagent(open_host, {**GOOD, "agent": "nobody"}) == refusal("unknown_agent", message)


@pytest.mark.parametrize("toolset", ["single", "sticky"])
async def test_unknown_agent_whose_file_was_skipped_is_refused_with_the_reason(open_host, scratch_home, toolset):
    folder = scratch_home / ".pi" / "agent" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout.md").write_text("---\nname: scout\nreadonly: perhaps\n---\nx\n")
    async with open_host(toolset=toolset) as host:
        result = await host.use({**GOOD, "agent": "scout"})
    shown = "~" if toolset == "single" else scratch_home
    assert result.text == (
        "Unknown agent: scout. Available agents: explorer, researcher, reviewer, implementer, tester. "
        f"The file of this agent was found and skipped: {shown}/.pi/agent/agents/scout.md:3: readonly: 'perhaps' is "
        "not true or false"
    )
    assert result.details["error"]["message"] == result.text


async def test_sticky_refuses_every_call_of_a_child(open_host):
    message = "Subagent depth exceeded (1/1). Nested subagents are not allowed."
    found = await call_subagent(open_host, None, environ={"PI_SUBAGENT_CHILD": "1"})
    assert found == refusal("depth_exceeded", message)


async def test_sticky_refuses_calls_where_subagents_are_disabled(open_host):
    message = "Subagents are disabled in configuration"
    assert await call_subagent(open_host, GOOD, settings={"enabled": False}) == refusal("disabled", message)


async def test_sticky_refuses_an_untrusted_project_agent(open_host, workplace, agent_file):
    agent_file(workplace / ".pi" / "prompts", "helper", "approved_tools: [read, bash]")
    found = await call_subagent(open_host, {**GOOD, "agent": "helper"})
    assert found["details"]["error"]["code"] == "agent_untrusted"
    assert "`retinue agents trust helper`" in found["content"][0]["text"]


async def test_sticky_refusal_redacts_a_secret_of_the_input(open_host):
    found = await call_subagent(open_host, {**GOOD, "agent": "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"})
    assert "ghp_a1B2" not in found["content"][0]["text"]


async def test_sticky_refuses_invalid_json_in_the_same_form(open_host):
    async with open_host(toolset="sticky") as host:
        result = host.toolset.invalid_json_result("subagent", "it ends too early", host.call())
    assert result.as_json() == refusal(
        "invalid_input", "The input of subagent is not a JSON object: it ends too early"
    )
