"""Delegation to the real Claude Code, and the same work by the SDK's own `query`.

`python -m benchmarks.claude_bench WORK N`. A scripted model on loopback, in a process of its own, answers both sides:
one read, one answer.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.real.claude_install import claude_environ
from tests.support.model_server import script64

from benchmarks.workload import print_cost, scratch
from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.claude.launch import CLAUDE_VARIABLES
from retinue.model.tasks import Plan, Task

MODEL = "scripted-1"
WORKER = Agent(name="worker", body="You work.", tools=("read", "grep", "find"), model=MODEL)
LEAD = Agent(name="lead", body="You lead.", tools=("read", "grep", "find", "subagent"), model=MODEL)


def main() -> None:
    work, count = sys.argv[1], int(sys.argv[2])
    with environment() as environ:
        anyio.run(WORKS[work], environ, count)


@contextmanager
def environment() -> Iterator[dict[str, str]]:
    """Return the environment in which Claude Code reaches the scripted model."""
    file().write_text("the secret word is XYZZY\n")
    command = [sys.executable, "-m", "tests.support.model_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        try:
            yield claude_environ(Path(scratch(), "home"), url)
        finally:
            server.kill()


def file() -> Path:
    return Path(scratch(), "a.txt")


def prompt() -> str:
    reads = {"tool": "Read", "args": {"file_path": str(file())}}
    return f"Find it. {script64([reads, {'text': 'It is XYZZY.'}])}"


# -- the floor ---------------------------------------------------------------------------------------


async def _query(environ: dict[str, str]) -> None:
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

    tools = ["Read", "Grep", "Glob"]
    options = ClaudeAgentOptions(
        tools=tools,
        allowed_tools=tools,
        permission_mode="dontAsk",
        system_prompt=WORKER.body,
        model=MODEL,
        setting_sources=[],
        strict_mcp_config=True,
        cwd=scratch(),
        env={**CLAUDE_VARIABLES, **environ},
        stderr=lambda _line: None,
    )
    last = None
    async for message in query(prompt=prompt(), options=options):
        last = message
    assert isinstance(last, ResultMessage)
    assert last.result == "It is XYZZY."


# -- ours --------------------------------------------------------------------------------------------


def make_retinue(environ: dict[str, str]) -> Retinue:
    return Retinue(
        cwd=scratch(),
        state=f"{scratch()}/state",
        engine="claude",
        agents=[WORKER, LEAD],
        environ=environ,
        settings={"max_spawns": 10**6},
    )


async def compared(environ: dict[str, str], count: int) -> None:
    """Measure the ratio of a delegation to a query, alternately, so that a busy machine slows both."""
    async with make_retinue(environ) as retinue:
        await _run(retinue)  # what a program does once: imports, the guardian
        await _query(environ)
        ratios = [await _time_call(_run, retinue) / await _time_call(_query, environ) for _ in range(count)]
    print(json.dumps({"wall": statistics.median(ratios)}))


async def _time_call(work: Callable[..., Awaitable[None]], *args: Any) -> float:
    start = time.monotonic()
    await work(*args)
    return time.monotonic() - start


async def _run(retinue: Retinue) -> None:
    result = await retinue.run("worker", prompt())
    assert result.text == "It is XYZZY.", result.failure


async def delegated(environ: dict[str, str], count: int) -> None:
    """Measure sequential delegations."""
    async with make_retinue(environ) as retinue:
        await _run(retinue)
        with print_cost(times=count):
            for _ in range(count):
                await _run(retinue)


async def nested(environ: dict[str, str], count: int) -> None:
    """Measure sequential delegations by an agent on Claude Code, including its own run."""
    async with make_retinue(environ) as retinue:
        call = retinue.call("nested")
        await retinue.run_plan(leading(1), call)
        with print_cost(times=count + 1):
            (result,) = await retinue.run_plan(leading(count), call)
        assert result.text == "Done.", result.failure
        assert result.actual.nested_usage.turns == 2 * count


def leading(count: int) -> Plan:
    """Return a plan of this many different tasks: a repeated task would be a loop."""
    prompts = [f"{number}. {prompt()}" for number in range(count)]
    asks = [{"description": "d", "subagent_type": "worker", "prompt": each} for each in prompts]
    steps: list[dict[str, Any]] = [*({"tool": "Agent", "args": args} for args in asks), {"text": "Done."}]
    return Plan(tasks=(Task(agent="lead", prompt=script64(steps)),))


WORKS: dict[str, Callable[..., Any]] = {work.__name__: work for work in (compared, delegated, nested)}

if __name__ == "__main__":
    main()
