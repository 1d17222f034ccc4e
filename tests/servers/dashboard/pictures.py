"""Take the screenshots of the dashboard for the documentation: `python -m tests.servers.dashboard.pictures`.

Uses a real server, a real browser and scripted agents, so that no API key and no model are needed. Screenshots differ
from run to run, so no test compares them.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click
from playwright.sync_api import Page, ViewportSize, sync_playwright
from tests.servers.dashboard.conftest import FLAGS, DashboardServer, Step
from tests.servers.dashboard.install import find

ROOT = Path(__file__).parents[3]
ACTIVITY = ROOT / "docs" / "dashboard-activity.png"
RUN = ROOT / "docs" / "dashboard-run.png"
TIMELINE = ROOT / "docs" / "dashboard-timeline.png"
SIZES = {
    ACTIVITY: ViewportSize(width=1280, height=640),
    RUN: ViewportSize(width=1280, height=980),
    TIMELINE: ViewportSize(width=1280, height=760),
}
SHARPNESS = 1.5

FACADE = '''\
"""The only way in for the rest of the program."""

from atlas.search.index import SearchIndex


class Facade:
    def __init__(self, index: SearchIndex) -> None:
        self._index = index  # one per process

    def find(self, words: str, limit: int = 10) -> list[Hit]:
        return self._index.query(words, limit)
'''
PLAN = """\
The seam is there already: everything outside `atlas/search` goes through `Facade`.

## What I need to know first
- who calls `SearchIndex` **without** it
- whether the indexing queue can lose a document
- which tests would notice
"""
LEAD = """\
---
name: architect
description: Plans large changes and asks others for the facts
tools: [read, grep, find, ls, spawn_subagent]
---
You plan.
"""


def call(tool: str, returns: str, seconds: float = 0.4, **args: Any) -> list[Step]:
    return [{"call": tool, "args": args, "returns": returns}, {"wait": seconds}]


def message_ended(tokens: int, cost: float, stop: str = "tool_use") -> Step:
    usage = {"input": tokens, "output": tokens // 9, "cost": cost, "turns": 1}
    return {"event": {"type": "message_ended", "stopReason": stop, "usage": usage}}


def begins(tool: str, **args: Any) -> list[Step]:
    """Return a tool call that outlasts the screenshot."""
    return [{"event": {"type": "tool_called", "call": "last", "name": tool, "args": args}}, {"hang": True}]


QUESTIONS = [
    {"agent": "explorer", "task": "Find every caller of SearchIndex that goes around the facade"},
    {"agent": "reviewer", "task": "Review the indexing queue: can it lose a document?"},
    {"agent": "tester", "task": "Which tests would notice a document that was lost?"},
]
STORY: dict[str, list[Step]] = {
    "architect": [
        {"event": {"type": "thinking", "text": "First see how search is used today, then decide where to cut."}},
        *call("ls", "__init__.py\nfacade.py\nindex.py\nqueue.py", path="atlas/search"),
        *call("read", FACADE, path="atlas/search/facade.py"),
        {"event": {"type": "text", "text": PLAN}},
        message_ended(8200, 0.031),
        {"spawn": {"mode": "parallel", "tasks": QUESTIONS}},
        {"say": "Done."},
    ],
    "explorer": [
        *call("grep", "atlas/api/views.py:12\natlas/jobs/reindex.py:40", 1.5, pattern="SearchIndex("),
        *call("read", "…", 1.0, path="atlas/jobs/reindex.py"),
        message_ended(21400, 0.064),
        {"say": "Two callers go around it: `atlas/jobs/reindex.py:40` and `atlas/api/views.py:12`."},
    ],
    "reviewer": [
        *call("read", "…", 1.2, path="atlas/search/queue.py"),
        message_ended(9100, 0.027),
        *begins("grep", pattern="ack(", path="atlas/search/queue.py"),
    ],
    "tester": [
        *call("find", "…", 0.8, pattern="test_*queue*"),
        message_ended(4300, 0.013),
        *begins("read", path="tests/search/test_queue.py"),
    ],
    "implementer": [
        *call("read", "…", 1.8, path="atlas/importer.py"),
        message_ended(15800, 0.047),
        {"raise": "The provider answered 529, overloaded. What was written is kept: resume the session later."},
    ],
    "researcher": [
        *call("read", "…", 2.4, path="docs/streams.md"),
        message_ended(30100, 0.09),
        {"say": "Server-sent events fit: one way, and the browser itself asks for what it missed."},
    ],
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        served = prepare_server(Path(folder) / "ada")
        served.start()
        served.run("run", "researcher", "Compare three ways to stream events to a browser, with numbers")
        with served.popen("run", "implementer", "Make the importer resumable") as failing:
            failing.communicate()
        goal = {"mode": "single", "agent": "architect", "task": "Plan how search moves into a service of its own"}
        with served.popen("call", "spawn_subagent", json.dumps(goal), "--toolset", "nested") as working:
            browser = playwright.chromium.launch(executable_path=find(), args=FLAGS)
            page = browser.new_page(device_scale_factor=SHARPNESS, color_scheme="light")
            page.goto(served.link)
            page.get_by_role("link", name="explorer, completed").wait_for()
            shoot(page, ACTIVITY)
            page.emulate_media(color_scheme="dark")
            page.get_by_role("link", name="architect, running").click()
            page.locator(".below .row").nth(2).wait_for()
            shoot(page, RUN)
            page.get_by_role("tab", name="Timeline").click()
            page.locator(".lane").nth(1).focus()
            page.locator(".lane path.model").nth(1).wait_for(state="attached")
            shoot(page, TIMELINE)
            browser.close()
            working.terminate()
        served.stop()


def shoot(page: Page, picture: Path) -> None:
    page.set_viewport_size(SIZES[picture])
    page.mouse.move(0, 0)
    page.wait_for_timeout(1200)
    page.screenshot(path=picture)
    click.echo(picture.relative_to(ROOT))


def prepare_server(folder: Path) -> DashboardServer:
    """Return a server with its own home and an additional agent."""
    agents = folder / ".config" / "retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "architect.md").write_text(LEAD)
    served = DashboardServer(folder, "scripted", {"RETINUE_SCRIPT": json.dumps({"agents": STORY})})
    (served.project / ".git").mkdir()
    return served


if __name__ == "__main__":
    main()
