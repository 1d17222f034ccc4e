"""Paths that a pi process names in its records are text: nothing behind them is opened, served or returned."""

from __future__ import annotations

import pytest
from tests.support.fake_pi import action as do
from tests.support.pi_setup import pi_stage, play

pytestmark = pytest.mark.process

SECRET = "canary-behind-a-path"


async def test_path_that_a_child_names_is_neither_opened_nor_served(scratch_home):
    outside = scratch_home / "outside.txt"
    outside.write_text(SECRET)
    named = {"sessionFile": str(outside), "fullOutputPath": str(outside), "artifact": f"../../..{outside}"}
    records = [
        do("emit", {"type": "session", "version": 3, "id": "x", **named}),
        do("emit", {"type": "response", "command": "get_state", "success": True, "data": named}),
        do("emit", {"type": "tool_execution_end", "toolCallId": "c", "toolName": "read", "result": named, **named}),
        do("emit", {"type": "agent_end", "messages": [], **named}),
    ]
    async with pi_stage(scratch_home, state=scratch_home / "state") as retinue:
        first = await play(retinue, *records, do("say", "done"))
        again = await play(retinue, do("say", "done again"), session=first.session)
    assert [result.text for result in (first, again)] == ["done", "done again"]
    assert not any(str(outside) in str(result.session_file) for result in (first, again))
    stored = [path.read_bytes() for path in (scratch_home / "state").rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in data for data in stored)
    assert outside.read_text() == SECRET
