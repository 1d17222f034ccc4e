"""What a task plainly asks of others: lines such as `ask explorer: …` or `delegate to reviewer: …`.

ask explorer: Where is the bus?
ask lead:
    ask reviewer: Review bus.py
    ask tester: Which tests cover it?
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

from msgspec import Struct

from retinue.model.runs import ToolArguments

SPAWN_TOOL = "spawn_subagent"

_MOST_TEXT = 20_000
"""Characters of a task that are looked at."""
_ASKED = re.compile(
    r"(?P<indent>[ \t]*)(?:(?:[-*]|\d+[.)])[ \t]+)?(?:please[ \t]+)?(?:ask|delegate[ \t]+to)[ \t]+"
    r"(?P<quote>[`\"']?)(?P<agent>\w[\w.-]*)(?P=quote)[ \t]*:(?P<task>.*)",
    re.IGNORECASE,
)


class DelegatedTask(Struct, frozen=True):
    """A part of the work that is somebody else's."""

    agent: str
    task: str


class TaskSplit(Struct, frozen=True):
    """A task divided: what others are asked, and what is left to do oneself."""

    delegated: tuple[DelegatedTask, ...] = ()
    rest: str = ""

    @property
    def arguments(self) -> ToolArguments:
        """The errands as the tool takes them: several go out at once."""
        tasks = [{"agent": errand.agent, "task": errand.task} for errand in self.delegated]
        return tasks[0] if len(tasks) == 1 else {"mode": "parallel", "tasks": tasks}

    @property
    def agents(self) -> str:
        """Who is asked, each once."""
        return ", ".join(dict.fromkeys(errand.agent for errand in self.delegated))


def split_task(task: str) -> TaskSplit:
    """What the task asks others to do. Lines beneath that stand further in belong to the errand above them."""
    errands, rest = list[DelegatedTask](), list[str]()
    for block in _iter_blocks(task[:_MOST_TEXT].splitlines()):
        asked = _ASKED.fullmatch(block[0])
        text = "\n".join([asked["task"].strip(), dedent("\n".join(block[1:]))]).strip() if asked else ""
        if asked and text:
            errands.append(DelegatedTask(asked["agent"], text))
        else:
            rest += block
    return TaskSplit(tuple(errands), "\n".join(rest).strip())


def _iter_blocks(lines: list[str]) -> Iterator[list[str]]:
    """A line that asks somebody with all that belongs to it, or any other line alone."""
    block: list[str] = []
    indent = -1
    for line in lines:
        if indent >= 0 and (not line.strip() or _indent(line) > indent):
            block.append(line)
            continue
        if block:
            yield block
        block, indent = [line], _indent(line) if _ASKED.fullmatch(line) else -1
    if block:
        yield block


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
