"""Tests of the screen of a real terminal while `run`, `delegate` and `watch` show active agents."""

from __future__ import annotations

import json
import os
import sys

import pytest
from tests.cli.conftest import encode_script
from tests.support.terminal import ENTER, EXPAND, Terminal, on_terminal

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 50)], ids=str)
PARAGRAPH = " ".join(f"word{number}" for number in range(1, 150))
COMMAND = f"echo {'x ' * 60}END"
"""Longer than a row: its end is visible only in an expanded window."""
WRITING = [
    {"call": "bash", "args": {"command": COMMAND}},
    {"event": {"type": "text_delta", "text": f"{PARAGRAPH} unfini"}},
    {"hang": True},
]
"""A line that is being written; its last word is shown when it is complete, as it may be a secret."""
WRITTEN = [WRITING[0], {"event": {"type": "text", "text": PARAGRAPH}}, {"hang": True}]
"""The same as a complete text: a new watcher gets complete texts only."""
RUN = ("run", "explorer", "look")
DELEGATE = ("delegate", "tasks.json")


@pytest.fixture
def start(place):
    """Start `retinue` on a terminal, with agents that write one long line and then wait."""
    (place / "tasks.json").write_text(json.dumps({"tasks": [{"name": "n", "agent": "explorer", "prompt": "look"}]}))

    def on(size, *arguments, script=WRITING):
        environ = {**os.environ, "RETINUE_SCRIPT": encode_script(script), "RETINUE_STATE": str(place / "state")}
        return on_terminal([sys.executable, "-m", "retinue", *arguments], environ, place, *size)

    return on


async def read_screen(terminal: Terminal) -> str:
    """Return what the agent wrote, as it is on the screen once its last word is there."""
    await terminal.until("word149")
    return " ".join(row.strip() for row in terminal.screen if row.strip().startswith("word"))


@SIZES
@pytest.mark.parametrize("command", [RUN, DELEGATE], ids=lambda command: command[0])
async def test_line_being_written_is_wrapped_whole_on_the_terminal(start, command, size):
    async with start(size, *command, "--engine", "scripted") as terminal:
        collapsed = await read_screen(terminal)
        terminal.type(EXPAND)
        await terminal.until("x END")
        expanded = await read_screen(terminal)
    assert (collapsed, expanded) == (PARAGRAPH, PARAGRAPH)


@SIZES
async def test_long_line_is_wrapped_whole_on_the_screen_of_watch(start, size):
    async with start(size, *RUN, "--engine", "scripted", script=WRITTEN) as running:
        await running.until("word149")
        async with start(size, "watch") as watching:
            collapsed = await read_screen(watching)
            watching.type(ENTER)
            await watching.until("x END")
            expanded = await read_screen(watching)
    assert (collapsed, expanded) == (PARAGRAPH, PARAGRAPH)
