"""Agents as prompts for the host's user, and the policy for its model."""

from __future__ import annotations

import re

import pytest
from mcp.shared.exceptions import MCPError
from tests.stage import stage

from retinue.engines.scripted import say
from retinue.frontends.mcp import desk
from retinue.frontends.mcp.prompts import Shown, policy, tokens
from retinue.frontends.mcp.serving import DATA, Mount

MOST_TOKENS = 300


async def test_every_agent_that_can_be_called_is_a_prompt(connect):
    async with connect(say("done")) as client:
        prompts = (await client.list_prompts()).prompts
        asked = await client.get_prompt("explorer", {"task": "Find auth code"})
    assert [prompt.name for prompt in prompts] == ["explorer", "researcher", "reviewer", "implementer", "tester"]
    assert [(argument.name, argument.required) for argument in prompts[0].arguments] == [("task", True)]
    assert asked.messages[0].content.text == (
        'Give this task to the agent "explorer" with the tool subagent, with all the context it needs, '
        "and tell me what it found.\n\nFind auth code"
    )


async def test_a_prompt_nobody_has_is_an_error_of_the_protocol(connect):
    async with connect(say("done")) as client:
        with pytest.raises(MCPError, match="Unknown prompt: nobody"):
            await client.get_prompt("nobody", {"task": "x"})


async def test_there_are_no_prompts_where_nothing_may_be_dispatched(connect):
    async with connect(say("done"), settings={"enabled": False}) as client:
        assert (await client.list_prompts()).prompts == []


async def test_the_policy_is_off_unless_asked_for_and_names_the_agents(workplace):
    async with (
        stage(workplace, say("done")) as retinue,
        desk.opened(retinue, ["single"], roots=[str(workplace)]) as opened,
    ):
        without = Mount(surfaces=("single",), roots=()).instructions(opened)
        told = Mount(surfaces=("single",), policy=True, roots=()).instructions(opened)
    assert without == DATA
    assert told.startswith(f"{DATA}\n\nDelegate work that is focused")
    assert "- explorer: Finds where something is" in told
    assert tokens(told) <= MOST_TOKENS


@pytest.mark.parametrize("words", ["Looks at things in many ways. ", "a, b; c! 1 ", "見る。", "\U0001f600"])
def test_the_policy_stays_short_whatever_agents_there_are(words):
    told = policy([Shown(f"agent-{number}", words * 50) for number in range(100)])
    *_, named, last = told.split("\n")
    count = int(re.findall(r"agent-(\d+)", named)[0]) + 1 if "agent" in named else 0
    assert last == f"- and {100 - count} more"
    assert tokens(f"{DATA}\n\n{told}") <= MOST_TOKENS
