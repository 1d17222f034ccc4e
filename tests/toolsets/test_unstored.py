"""Calls with an unwritable state folder: they work, warn, and keep sessions in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.engines.scripted import finalize, reply

NOWHERE = Path("/dev/null/state")
WARNING = "Warning: this session could not be stored. The session exists in memory until this process ends."


async def test_unstored_fanout_session_is_readable_in_the_same_process(fanout):
    async with fanout(reply("The answer."), state=NOWHERE) as host:
        result = await host.delegate({"name": "n", "prompt": "x"})
        session = result.details["sessionIds"][0]
        output = await host.fetch("get_subagent_output", session)
        transcript = await host.fetch("get_subagent_session", session)
        resumed = await host.delegate({"name": "n", "prompt": "more", "resume": session})
    assert result.text == f"✓ n: completed (session: {session})\n{WARNING}"
    assert (output.text, output.is_error) == ("The answer.", False)
    assert "The answer." in transcript.text
    assert resumed.text == f"✓ n: completed (session: {session})\n{WARNING}"
    assert "The answer." in host.specs[1].prompt


async def test_unstored_fanout_sessions_are_counted_in_the_warning(fanout):
    async with fanout(reply("ok"), state=NOWHERE) as host:
        result = await host.delegate({"name": "a", "prompt": "x"}, {"name": "b", "prompt": "y"})
    warning = "Warning: 2 of these sessions could not be stored. They are kept in memory until this process ends."
    assert result.text.splitlines()[2] == warning


async def test_unstored_single_answer_has_a_warning(open_host):
    async with open_host(reply("The answer."), state=NOWHERE) as host:
        answer = await host.ask()
    assert answer["content"][0]["text"] == f"The answer.\n\n{WARNING}"
    assert answer["details"]["results"][0]["output"] == "The answer."


async def test_unstored_sticky_session_is_continued_in_the_same_process(open_host):
    async with open_host(finalize("Found it."), toolset="sticky", state=NOWHERE) as host:
        first = await host.use({"agent": "explorer", "task": "look"})
        session = first.details["sessionId"]
        again = await host.use({"agent": "explorer", "task": "more", "sessionId": session})
    assert first.text.endswith(f"Found it.\n\n{WARNING}")
    assert (again.is_error, again.details["sessionId"]) == (False, session)


@pytest.mark.parametrize("mode", ["chain", "parallel"])
async def test_unstored_nested_answer_has_a_warning(open_host, mode):
    task = {"agent": "explorer", "task": "look"}
    async with open_host(reply("ok"), toolset="nested", state=NOWHERE) as host:
        single = await host.use(task, tool="spawn_subagent")
        several = await host.use({"mode": mode, "tasks": [task, task]}, tool="spawn_subagent")
    assert single.text == f"ok\n\n{WARNING}"
    warning = "Warning: 2 of these sessions could not be stored. They are kept in memory until this process ends."
    assert several.text.endswith(f"\n\n{warning}")
