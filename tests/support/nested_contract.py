"""What seed 004 promises a front end of every run, whatever engine carries it out: one test for all of them.

It fails if an engine's run has an event that belongs to no tool call (GAP-A3), more or fewer than one start and one
complete, another field than the seed's, or another story in the vault's log than on the bus. A second one has the
engine's own agents delegate: then it fails, too, if a run is in no session below its parent's, or is counted twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.client import Retinue
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import EphemeralEvent, MessageEnded, RunEnded, RunQueued, ToolCalled, ToolReturned
from retinue.model.results import Usage
from retinue.model.sidecar_events import to_subagent_line
from retinue.model.tasks import CallContext, Lineage
from retinue.sessions.paths import vault_log_folder

SPAWN = "spawn_subagent"
ROOT = "conversation/../1"
"""Of a host with ids of its own: give it to Retinue as `root`."""


async def check_contract(retinue: Retinue, vault: Path, agent: str, task: str, *, fails: bool = False) -> None:
    """Calls `spawn_subagent` as the root conversation does, and as a run one and two levels below it does."""
    spawn = retinue.toolset("nested").handlers[SPAWN]
    line = retinue.call("nested", parent_call="toolu_0").lineage
    assert line == Lineage(root=ROOT, parent_call="toolu_0")
    found: list[tuple[Lineage, dict[str, Any]]] = []
    async with retinue.events() as watcher:
        for depth in range(3):
            # Each level has a task of its own: the same one would be refused as handed on.
            arguments = {"agent": agent, "task": f"{task} ({depth})"}
            result = await spawn(arguments, _below(retinue, line), None)
            (one,) = result.details["results"]
            assert one["isError"] is fails, one
            found.append((line, one))
            line = Lineage(
                root=ROOT, parent_call=f"toolu_{depth + 1}", parent_run=one["subagentId"], depth=line.depth + 1
            )
        events = list(watcher.drain())
    _check_origins(events, found)
    told = [json.loads(each) for each in map(to_subagent_line, events) if each]
    assert told == [event for line, one in found for event in _expected(line, one, told)]
    lines = b"".join(each for each in map(to_subagent_line, events) if each)
    assert (vault_log_folder(vault, ROOT) / "events.jsonl").read_bytes() == lines
    stored = [stamped async for stamped in retinue.root_history(ROOT)]
    assert b"".join(each for each in map(to_subagent_line, stored) if each) == lines


async def check_delegation(
    retinue: Retinue, vault: Path, agent: str, task: str, *, engines: list[str]
) -> list[EventRecord]:
    """Calls `spawn_subagent` for an agent that delegates by itself; there is one run on each of the engines, in turn."""
    spawn = retinue.toolset("nested").handlers[SPAWN]
    async with retinue.events() as watcher:
        result = await spawn({"agent": agent, "task": task}, retinue.call("nested", parent_call="toolu_0"), None)
        events = list(watcher.drain())
    assert not result.is_error, result.text
    runs = _runs(events)
    line, call = None, "toolu_0"
    for depth, (run, told) in enumerate(runs.items(), 1):
        origin, queued = told[0].origin, told[0].event
        assert (origin.root, origin.parent_run, origin.parent_tool_use_id, origin.depth) == (ROOT, line, call, depth)
        assert isinstance(queued, RunQueued)
        assert queued.engine == engines[depth - 1]
        await _check_session(retinue, told)
        line, call = run, _call_of(told) if depth < len(runs) else ""
    assert len(runs) == len(engines)
    _check_usage(list(runs.values()))
    lines = [each for each in map(to_subagent_line, events) if each]
    assert [json.loads(each)["type"] for each in lines] == [
        *["subagentStart"] * len(runs),
        *["subagentComplete"] * len(runs),
    ]
    assert (vault_log_folder(vault, ROOT) / "events.jsonl").read_bytes() == b"".join(lines)
    return events


def _runs(events: list[EventRecord]) -> dict[str, list[EventRecord]]:
    """The events of each run, all of one origin, from its first to its last."""
    runs: dict[str, list[EventRecord]] = {}
    for stamped in events:
        runs.setdefault(stamped.origin.run, []).append(stamped)
    for told in runs.values():
        assert {stamped.origin for stamped in told} == {told[0].origin}
        assert [type(stamped.event) for stamped in told].count(RunEnded) == 1
        assert isinstance(told[-1].event, RunEnded)
    return runs


def _call_of(told: list[EventRecord]) -> str:
    """The one tool call by which a run delegated; it was answered."""
    calls = [one.event.call for one in told if isinstance(one.event, ToolCalled) and one.event.name == SPAWN]
    answered = [one.event.call for one in told if isinstance(one.event, ToolReturned) and one.event.name == SPAWN]
    (call,) = calls
    assert answered == [call]
    return call


async def _check_session(retinue: Retinue, told: list[EventRecord]) -> None:
    """What was shown of a run is stored, in a session that says whose it is."""
    origin = told[0].origin
    session = await retinue.session(origin.session)
    assert session
    assert (session.root, session.parent_run, session.parent_call) == (
        ROOT,
        origin.parent_run,
        origin.parent_tool_use_id,
    )
    assert session.depth == origin.depth
    stored = [to_line(stamped) async for stamped in retinue.history(origin.session)]
    assert stored == [to_line(stamped) for stamped in told if not isinstance(stamped.event, EphemeralEvent)]


def _check_usage(runs: list[list[EventRecord]]) -> None:
    """Each message counts for the run that received it, and once for every run above it."""
    below = Usage()
    for told in reversed(runs):
        ended = told[-1].event
        assert isinstance(ended, RunEnded)
        own = [one.event.usage for one in told if isinstance(one.event, MessageEnded)]
        assert _rounded(ended.usage) == _rounded(sum(own[1:], own[0]))
        assert _rounded(ended.actual.nested_usage) == _rounded(below)
        below += ended.usage


def _rounded(usage: Usage) -> Usage:
    """Sums of prices differ in their last digits by the order of their parts."""
    return usage if usage.cost is None else structs.replace(usage, cost=round(usage.cost, 9))


def _below(retinue: Retinue, line: Lineage) -> CallContext:
    return structs.replace(retinue.call("nested"), lineage=line)


def _check_origins(events: list[EventRecord], found: list[tuple[Lineage, dict[str, Any]]]) -> None:
    """Every event on the wire says whose it is: its run, the call that asked for it, the conversation at the top."""
    lines = {one["subagentId"]: line for line, one in found}
    assert {stamped.origin.run for stamped in events} == set(lines)
    for stamped in events:
        written, line = json.loads(to_line(stamped)), lines[stamped.origin.run]
        assert written["root"] == ROOT
        assert written["parentToolUseId"] == line.parent_call
        assert written["parentRun"] == line.parent_run
        assert written["depth"] == line.depth + 1


def _expected(line: Lineage, one: dict[str, Any], told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = {"subagentId": one["subagentId"], "parentToolUseId": line.parent_call}
    failed = next(
        each["result"] for each in told if each["type"] == "subagentComplete" and ids.items() <= each.items()
    )
    if one["isError"]:
        assert failed.startswith(one["error"]["message"])
    return [
        {
            "type": "subagentStart",
            **ids,
            "agent": one["agent"],
            "prompt": one["task"],
            "rootConversationId": ROOT,
        },
        {
            "type": "subagentComplete",
            **ids,
            "result": failed if one["isError"] else one["result"],
            "isError": one["isError"],
        },
    ]
