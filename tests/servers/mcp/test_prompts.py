"""Agents as prompts for the host's user."""

from __future__ import annotations

import pytest
from mcp.shared.exceptions import MCPError

from retinue.engines.scripted import reply


async def test_every_runnable_agent_is_a_prompt(connect):
    async with connect(reply("done")) as client:
        prompts = (await client.list_prompts()).prompts
        asked = await client.get_prompt("explorer", {"task": "Find auth code"})
    assert [prompt.name for prompt in prompts] == ["explorer", "researcher", "reviewer", "implementer", "tester"]
    assert [(argument.name, argument.required) for argument in prompts[0].arguments] == [("task", True)]
    assert asked.messages[0].content.text == (
        'Give this task to the agent "explorer" with the tool subagent, with all the context it needs, and report '
        "what it found."
        "\n\nFind auth code"
    )


async def test_unknown_prompt_is_a_protocol_error(connect):
    async with connect(reply("done")) as client:
        with pytest.raises(MCPError, match="Unknown prompt: nobody"):
            await client.get_prompt("nobody", {"task": "x"})


async def test_no_prompts_are_listed_when_dispatching_is_disabled(connect):
    async with connect(reply("done"), settings={"enabled": False}) as client:
        assert (await client.list_prompts()).prompts == []
