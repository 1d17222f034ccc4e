"""Check the contract of the `nested` toolset with a front end, for a run of any engine.

`check_contract` fails if a run has an event without a tool call, more or fewer than one start and one complete, other
fields than documented, or other events in the vault's log than on the event bus. `check_delegation` lets the agents of
the engine delegate; it fails, too, if a run is in no session below its parent's, or its usage is counted twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.client import Retinue
from retinue.model.event_codec import EventRecord, to_line, to_subagent_line
from retinue.model.events import EphemeralEvent, MessageEnded, RunEnded, RunQueued, ToolCalled, ToolReturned
from retinue.model.results import Usage
from retinue.model.tasks import CallContext, Lineage
from retinue.sessions.paths import vault_log_folder

SPAWN = "spawn_subagent"
ROOT = "conversation/../1"
"""The conversation id of a host, to be given to Retinue as `root`."""


async def check_contract(retinue: Retinue, vault: Path, agent: str, task: str, *, fails: bool = False) -> None:
    """Call `spawn_subagent` as the root conversation does, and as a run one and two levels below it does."""
    spawn = retinue.toolset("nested").handlers[SPAWN]
    line = retinue.call("nested", parent_call="toolu_0").lineage
    assert line == Lineage(root=ROOT, parent_call="toolu_0")
    found: list[tuple[Lineage, dict[str, Any]]] = []
    async with retinue.events() as watcher:
        for depth in range(3):
            # Each level has a different task: the same one would be refused as delegated unchanged.
            arguments = {"agent": agent, "task": f"{task} ({depth})"}
            result = await spawn(arguments, _make_context(retinue, line), None)
            (one,) = result.details["results"]
            assert one["isError"] is fails, one
            found.append((line, one))
            line = Lineage(
                root=ROOT, parent_call=f"toolu_{depth + 1}", parent_run=one["subagentId"], depth=line.depth + 1
            )
        events = list(watcher.drain())
    _check_origins(events, found)
    records = [json.loads(each) for each in map(to_subagent_line, events) if each]
    assert records == [event for line, one in found for event in _expected_events(line, one, records)]
    lines = b"".join(each for each in map(to_subagent_line, events) if each)
    assert (vault_log_folder(vault, ROOT) / "events.jsonl").read_bytes() == lines
    stored = [record async for record in retinue.root_history(ROOT)]
    assert b"".join(each for each in map(to_subagent_line, stored) if each) == lines


async def check_delegation(
    retinue: Retinue, vault: Path, agent: str, task: str, *, engines: list[str]
) -> list[EventRecord]:
    """Call `spawn_subagent` for an agent that delegates; expect one run on each of the engines, in turn."""
    spawn = retinue.toolset("nested").handlers[SPAWN]
    async with retinue.events() as watcher:
        result = await spawn({"agent": agent, "task": task}, retinue.call("nested", parent_call="toolu_0"), None)
        events = list(watcher.drain())
    assert not result.is_error, result.text
    runs = _group_by_run(events)
    line, call = None, "toolu_0"
    for depth, (run, records) in enumerate(runs.items(), 1):
        origin, queued = records[0].origin, records[0].event
        assert (origin.root, origin.parent_run, origin.parent_tool_use_id, origin.depth) == (ROOT, line, call, depth)
        assert isinstance(queued, RunQueued)
        assert queued.engine == engines[depth - 1]
        await _check_session(retinue, records)
        line, call = run, _find_delegation_call(records) if depth < len(runs) else ""
    assert len(runs) == len(engines)
    _check_usage(list(runs.values()))
    lines = [each for each in map(to_subagent_line, events) if each]
    assert [json.loads(each)["type"] for each in lines] == [
        *["subagentStart"] * len(runs),
        *["subagentComplete"] * len(runs),
    ]
    assert (vault_log_folder(vault, ROOT) / "events.jsonl").read_bytes() == b"".join(lines)
    return events


def _group_by_run(events: list[EventRecord]) -> dict[str, list[EventRecord]]:
    """Return the events of each run, and check that they have one source and one end."""
    runs: dict[str, list[EventRecord]] = {}
    for record in events:
        runs.setdefault(record.origin.run, []).append(record)
    for records in runs.values():
        assert {record.origin for record in records} == {records[0].origin}
        assert [type(record.event) for record in records].count(RunEnded) == 1
        assert isinstance(records[-1].event, RunEnded)
    return runs


def _find_delegation_call(records: list[EventRecord]) -> str:
    """Return the id of the tool call by which a run delegated, and check that it was answered."""
    calls = [one.event.call for one in records if isinstance(one.event, ToolCalled) and one.event.name == SPAWN]
    answered = [one.event.call for one in records if isinstance(one.event, ToolReturned) and one.event.name == SPAWN]
    (call,) = calls
    assert answered == [call]
    return call


async def _check_session(retinue: Retinue, records: list[EventRecord]) -> None:
    """Check that the published events of a run are stored in a session with the lineage of the run."""
    origin = records[0].origin
    session = await retinue.session(origin.session)
    assert session
    assert (session.root, session.parent_run, session.parent_call) == (
        ROOT,
        origin.parent_run,
        origin.parent_tool_use_id,
    )
    assert session.depth == origin.depth
    stored = [to_line(record) async for record in retinue.history(origin.session)]
    assert stored == [to_line(record) for record in records if not isinstance(record.event, EphemeralEvent)]


def _check_usage(runs: list[list[EventRecord]]) -> None:
    """Check that each message counts for its run, and once for every run above it."""
    below = Usage()
    for records in reversed(runs):
        ended = records[-1].event
        assert isinstance(ended, RunEnded)
        own = [one.event.usage for one in records if isinstance(one.event, MessageEnded)]
        assert _round_cost(ended.usage) == _round_cost(sum(own[1:], own[0]))
        assert _round_cost(ended.actual.nested_usage) == _round_cost(below)
        below += ended.usage


def _round_cost(usage: Usage) -> Usage:
    """Round the cost: sums differ in their last digits by the order of their parts."""
    return usage if usage.cost is None else structs.replace(usage, cost=round(usage.cost, 9))


def _make_context(retinue: Retinue, line: Lineage) -> CallContext:
    return structs.replace(retinue.call("nested"), lineage=line)


def _check_origins(events: list[EventRecord], found: list[tuple[Lineage, dict[str, Any]]]) -> None:
    """Check that every event names its run, its parent call and the root conversation."""
    lines = {one["subagentId"]: line for line, one in found}
    assert {record.origin.run for record in events} == set(lines)
    for record in events:
        written, line = json.loads(to_line(record)), lines[record.origin.run]
        assert written["root"] == ROOT
        assert written["parentToolUseId"] == line.parent_call
        assert written["parentRun"] == line.parent_run
        assert written["depth"] == line.depth + 1


def _expected_events(line: Lineage, one: dict[str, Any], records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ids = {"subagentId": one["subagentId"], "parentToolUseId": line.parent_call}
    failed = next(
        each["result"] for each in records if each["type"] == "subagentComplete" and ids.items() <= each.items()
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
