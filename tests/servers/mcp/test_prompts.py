"""Agents as prompts for the host's user."""

from __future__ import annotations

import pytest
from mcp.shared.exceptions import MCPError

from retinue.engines.scripted import reply


async def test_every_agent_that_can_be_called_is_a_prompt(connect):
    async with connect(reply("done")) as client:
        prompts = (await client.list_prompts()).prompts
        asked = await client.get_prompt("explorer", {"task": "Find auth code"})
    assert [prompt.name for prompt in prompts] == ["explorer", "researcher", "reviewer", "implementer", "tester"]
    assert [(argument.name, argument.required) for argument in prompts[0].arguments] == [("task", True)]
    assert asked.messages[0].content.text == (
        'Give this task to the agent "explorer" with the tool subagent, with all the context it needs, '
        "and tell me what it found.\n\nFind auth code"
    )


async def test_a_prompt_nobody_has_is_an_error_of_the_protocol(connect):
    async with connect(reply("done")) as client:
        with pytest.raises(MCPError, match="Unknown prompt: nobody"):
            await client.get_prompt("nobody", {"task": "x"})


async def test_there_are_no_prompts_where_nothing_may_be_dispatched(connect):
    async with connect(reply("done"), settings={"enabled": False}) as client:
        assert (await client.list_prompts()).prompts == []
