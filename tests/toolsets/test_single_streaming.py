"""Partial results of the `single` tool."""

from __future__ import annotations

import json
from itertools import accumulate

import anyio
import pytest

from retinue.engines.scripted import WaitStep, call, reply
from retinue.model.events import TextDelta
from retinue.model.results import Usage
from retinue.toolsets.base import ToolResult

ZERO = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0, "turns": 0}
READ = {"type": "toolCall", "name": "read", "args": {"path": "auth.ts"}}
TOKEN = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"


def partial_result(text, items=(), usage=ZERO):
    """Return a partial result in the documented shape."""
    streaming = {"displayItems": list(items), "usage": usage, "turnCount": usage["turns"]}
    return {
        "content": [{"type": "text", "text": text}],
        "details": {"mode": "single", "results": [], "streaming": streaming},
    }


@pytest.fixture
def watch_run(open_host):
    """Return a runner of scripts that pauses around every step and returns the partial results and the answer."""

    async def run_script(*script, task="Find auth code"):
        seen = []
        steps = [WaitStep(1), *(each for step in script for each in (step, WaitStep(1)))]
        async with open_host(*steps) as host:
            answer = await host.ask(task=task, update=lambda partial: seen.append(partial.as_json()))
        return seen, answer

    return run_script


async def test_single_partial_results_have_the_streaming_shape(watch_run):
    seen, _ = await watch_run(call("read", path="auth.ts", returns="export …"), reply("Found it."))
    one, two = {**ZERO, "turns": 1}, {**ZERO, "turns": 2}
    states = [partial for number, partial in enumerate(seen) if partial != seen[number - 1]]
    assert states == [
        partial_result("(running...)"),
        partial_result("(running...)", [READ], one),
        partial_result("Found it.", [READ, {"type": "text", "text": "Found it."}], two),
    ]


async def test_last_partial_result_has_all_events(open_host):
    seen: list[ToolResult] = []
    async with open_host(WaitStep(0.01), call("read", path="auth.ts"), reply("Found it.")) as host:
        await host.ask(update=seen.append)
    items = [READ, {"type": "text", "text": "Found it."}]
    assert seen[-1].as_json() == partial_result("Found it.", items, {**ZERO, "turns": 2})


async def test_partial_results_of_a_flood_are_throttled(open_host):
    seen: list[ToolResult] = []
    words = [step for _ in range(1000) for step in (TextDelta("word "), WaitStep(0.001))]
    async with open_host(*words, reply("word " * 1000)) as host:
        await host.ask(update=seen.append)
    assert 10 <= len(seen) <= 25  # in one second


async def test_partial_text_is_the_newest_text_even_if_unfinished(watch_run):
    pieces = ["Alpha beta. ", "Gamma delta. ", "Epsilon zeta. "]
    seen, _ = await watch_run(reply("First."), *map(TextDelta, pieces), reply("".join(pieces)))
    waiting, first, *growing = dict.fromkeys(partial["content"][0]["text"] for partial in seen)
    assert (waiting, first, growing) == ("(running...)", "First.", [*accumulate(pieces)])


async def test_partial_usage_and_turns_grow_with_the_messages(watch_run):
    first = reply("one", usage=Usage(input=10, output=1, cost=0.5))
    seen, _ = await watch_run(first, reply("two", usage=Usage(input=5, cache_read=7)))
    streams = [partial["details"]["streaming"] for partial in seen]
    totals = [(stream["turnCount"], stream["usage"]["input"], stream["usage"]["cost"]) for stream in streams]
    assert list(dict.fromkeys(totals)) == [(0, 0, 0), (1, 10, 0.5), (2, 15, 0.5)]


async def test_final_result_has_no_streaming_details(watch_run):
    seen, answer = await watch_run(reply("done"))
    assert all("streaming" in partial["details"] for partial in seen)
    assert "streaming" not in answer["details"]


async def test_partial_results_have_no_events_of_other_calls(open_host):
    seen: dict[str, set[str]] = {"explorer": set(), "tester": set()}

    async with open_host(WaitStep(1), reply("{agent}"), WaitStep(1)) as host, anyio.create_task_group() as group:

        async def ask(agent):
            await host.ask(agent, update=lambda partial: seen[agent].add(partial.text))

        group.start_soon(ask, "explorer")
        group.start_soon(ask, "tester")
    assert seen == {"explorer": {"(running...)", "explorer"}, "tester": {"(running...)", "tester"}}


async def test_tool_runs_without_a_partial_result_receiver(ask):
    assert (await ask(reply("done", deltas=2)))["content"][0]["text"] == "done"


async def test_secret_split_across_deltas_is_never_in_partial_results(watch_run):
    text = f"The token is {TOKEN}."
    seen, answer = await watch_run(call("bash", command=f"echo {TOKEN}"), reply(text, deltas=len(text)), task=TOKEN)
    assert TOKEN[:12] not in json.dumps([seen, answer])
    assert answer["content"][0]["text"] == "The token is [GITHUB_TOKEN_REDACTED]."
