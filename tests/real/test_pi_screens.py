"""Screens of agents inside both versions of the real pi, on terminals of two sizes."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.real.pi_rpc import QUIET
from tests.real.test_pi_extension import wait_until_gone
from tests.real.variants import LARGE, NEWEST, SIZES, SIZES_SWAPPED, SMALL
from tests.support.model_server import script64
from tests.support.terminal import ENTER, ESCAPE, EXPAND, Terminal, on_terminal

import retinue

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]

READS = script64([{"tool": "read", "args": {"path": "a.txt"}}, {"text": "It is XYZZY."}])
LINES = script64([{"text": "\n".join(f"Line {number}." for number in range(1, 31))}])
PARAGRAPH = " ".join(f"word{number}" for number in range(1, 501))
SLOW = script64([{"text": PARAGRAPH, "tps": 60}])
"""A line that takes eight seconds to write."""
FINDINGS = [f"- file{number}.py is wrong at line {number}." for number in range(30)]
WRITER = "---\nname: writer\nprovider: local\nmodel: scripted-1\nthinking: low\n---\nYou write.\n"

Start = Callable[..., AbstractAsyncContextManager[Terminal]]


@pytest.fixture
async def start(pi, server, project, tmp_path, add_extension):
    """Start pi with our extension on a terminal; there is a profile `writer`."""
    home = tmp_path / "home"
    environ = {
        **pi.environ_in(home, server.url),
        "RETINUE_ENGINE": "pi",
        "RETINUE_MODEL": "local/scripted-1",
        "RETINUE_STATE": str(tmp_path / "state"),
    }
    profiles = home / "agent" / "agent-profiles"
    profiles.mkdir()
    (profiles / "writer.md").write_text(WRITER)
    extension = add_extension(home)

    def on(size: tuple[int, int], *options: str, **more: str) -> AbstractAsyncContextManager[Terminal]:
        command = [*pi.argv, *QUIET, "--model", "local/scripted-1", "--no-session", "-e", str(extension), *options]
        return on_terminal(command, {**environ, **more}, project, *size)

    yield on
    await wait_until_gone(home)


async def prompt(terminal: Terminal, *words: str) -> list[str]:
    """Let pi's model play its script; return the rows once these words are on them."""
    await terminal.until("scripted-1")
    terminal.type("Go.")
    await terminal.until("Go.")
    # Repeated: pi accepts no key while it starts, and "Working" of an earlier turn may still be on the screen.
    return [row.strip() for row in await terminal.until(*words, typing=ENTER)]


def delegation_step(*tasks: tuple[str, str | None], **more: Any) -> dict[str, Any]:
    given = [
        {"name": f"n{number}", "prompt": task, **({"profile": profile} if profile else {})}
        for number, (task, profile) in enumerate(tasks, 1)
    ]
    return {"tool": "delegate_to_subagents", "args": {"tasks": given, **more}}


def bodies(rows: list[str]) -> list[list[str]]:
    """Return the rows below each header of a finished run."""
    found: list[list[str]] = []
    for row in rows:
        if re.match(r"[✓✗] n\d+ ", row):
            found.append([])
        elif row.startswith("Sessions:"):
            break
        elif found and row:
            found[-1].append(row)
    return found


@SIZES_SWAPPED
async def test_every_window_in_pi_shows_max_lines_per_window_lines(start, server, size):
    most = 4 if size == SMALL else 15
    server.script = [delegation_step((LINES, None), (LINES, None)), {"text": "All done."}]
    async with start(size, RETINUE_MAX_LINES_PER_WINDOW=str(most)) as terminal:
        rows = await prompt(terminal, "All done.")
    newest = [f"Line {number}." for number in range(31 - most, 31)]
    assert bodies(rows) == [[f"... ({30 - most} earlier lines)", *newest]] * 2


async def test_every_session_id_is_readable_in_pi_at_80_columns(start, server):
    async with start(SMALL) as terminal:
        for count in (6, 16):
            answer = f"All {count} done."
            server.script = [delegation_step(*[("x", "nobody")] * count), {"text": answer}]
            rows = await prompt(terminal, answer)
            told = server.requests[-1].messages[-1].text
            ids = re.findall(r"\(session: ([0-9a-f]{16})\)", told)
            assert len(set(ids)) == count
            first = max(number for number, row in enumerate(rows) if row.startswith("Sessions: "))
            assert " ".join(rows[first : rows.index("", first)]) == f"Sessions: {', '.join(ids)}"


async def test_windows_and_subagents_command_in_pi_use_the_sentences_of_the_toolset(start, server):
    server.script = [delegation_step(("x", "nobody"), (READS, "writer")), {"text": "All done."}]
    sentence = 'Unknown profile: "nobody". Available profiles: writer'
    async with start(LARGE) as terminal:
        rows = await prompt(terminal, "All done.")
        terminal.type("/subagents")
        await terminal.settle()
        terminal.type(ENTER)
        listed = [row.strip() for row in await terminal.until(f"n1: error — {sentence}")]
    assert bodies(rows) == [[sentence], ["read → a.txt", "It is XYZZY."]]
    assert any(row.startswith("✓ n2 • writer (local/scripted-1 low) • 1 tools • ") for row in rows)
    assert not any("Unknown agent" in row for row in listed)


@NEWEST
async def test_call_in_pi_names_each_profile_once_and_agents_as_agents(start, server):
    tasks = [
        {"agent": "explorer", "task": READS},
        {"agent": "nobody", "task": "x"},
        {"agent": "explorer", "task": READS},
    ]
    server.script = [
        delegation_step(("x", "nobody"), ("x", "writer"), ("x", "nobody"), profile="writer"),
        {"text": "All done."},
    ]
    async with start(LARGE) as terminal:
        await prompt(
            terminal,
            "delegate_to_subagents 3 sub-agents (default profile: writer) profiles: [nobody, writer]",
            "All done.",
        )
    server.script = [{"tool": "spawn_subagent", "args": {"mode": "parallel", "tasks": tasks}}, {"text": "All done."}]
    async with start(LARGE, RETINUE_SURFACE="nested") as terminal:
        rows = await prompt(
            terminal, "spawn_subagent 3 sub-agents (parallel) agents: [explorer, nobody]", "All done."
        )
    assert not any("Session" in row for row in rows), "no tool of this toolset takes the id of a session"


async def test_sticky_result_in_pi_is_drawn_as_text_and_expanded_whole(start, server):
    answer = script64(
        [
            {
                "tool": "subagent_finalize",
                "args": {"status": "SUCCESS", "result": "\n".join(["## Findings", *FINDINGS])},
            }
        ]
    )
    server.script = [{"tool": "subagent", "args": {"agent": "explorer", "task": answer}}, {"text": "All done."}]
    async with start(LARGE, RETINUE_SURFACE="sticky") as terminal:
        rows = await prompt(terminal, "All done.")
        terminal.type(EXPAND)
        whole = [row.strip() for row in await terminal.until("subagent_finalize → SUCCESS", FINDINGS[0])]
    session = re.search(r"\*\*Session ID:\*\* `([0-9a-f-]{36})`", server.requests[-1].messages[-1].text)
    assert session
    assert not any('{"status"' in row for row in [*rows, *whole])
    assert [row for row in rows if row in FINDINGS] == FINDINGS[-15:]
    assert [row for row in whole if row in FINDINGS] == FINDINGS
    assert f"Session: {session[1]}" in rows
    assert any(row.startswith("✓ explorer (local/scripted-1) • 1 tool • ") for row in rows)


@SIZES
async def test_newest_text_of_an_unfinished_line_is_on_the_screen_of_pi(start, server, size):
    server.script = [{"tool": "subagent", "args": {"agent": "explorer", "task": SLOW}}, {"text": "never"}]
    async with start(size, RETINUE_SURFACE="single") as terminal:
        await prompt(terminal, "Sub-agents: 1 running", "word150")
        terminal.type(EXPAND)
        await terminal.until("word200")
        terminal.type(EXPAND)
        terminal.type(ESCAPE)
        rows = await terminal.until("Subagent execution was cancelled by user.")
    assert not any("Session" in row or "Resume the session" in row for row in rows)


HOSTILE: list[Any] = [
    7,
    "x",
    {},
    {"lines": 7, "expanded": {}, "bodies": [], "maxLines": 15},
    {"lines": [], "expanded": [], "bodies": [{"start": 3, "end": 9, "earlier": 0}], "maxLines": 15},
    {"lines": [[["\u001b[2Jx", "toString"], [None, 7]]], "expanded": [7], "bodies": [], "maxLines": "__proto__"},
    {"lines": [[]], "expanded": [[]], "bodies": [{}, None], "maxLines": -1},
]
VIEW_EXTENSION = """
import {{ drawCall, drawResult }} from "file://{drawing}";
export default (pi) => pi.registerTool({{
  name: "show", label: "show", description: "x", parameters: {{ type: "object", properties: {{}} }},
  execute: async (id, {{ view }}) => ({{ content: [{{ type: "text", text: "its text" }}], details: {{ view }} }}),
  renderCall: (args, theme) => drawCall("show", {{ tasks: [null, 7, {{ profile: {{}} }}], mode: "constructor" }}, theme),
  renderResult: drawResult,
}});
"""


async def test_malformed_views_do_not_end_pi(start, server, tmp_path):
    (tmp_path / "shows.js").write_text(
        VIEW_EXTENSION.format(drawing=Path(retinue.__file__).parent / "extension" / "pi" / "drawing.js")
    )
    server.script = [*({"tool": "show", "args": {"view": view}} for view in HOSTILE), {"text": "All done."}]
    async with start((80, 60), "-e", str(tmp_path / "shows.js")) as terminal:
        rows = await prompt(terminal, "All done.")
        terminal.type(EXPAND)
        await terminal.settle()
        assert "All done." in [row.strip() for row in terminal.lines]
    assert rows.count("show 3 sub-agents (constructor)") == len(HOSTILE)
    assert rows.count("its text") >= 4
