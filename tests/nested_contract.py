"""What seed 004 promises a front end of every run, whatever engine carries it out: one test for all of them.

It fails if an engine's run has an event that belongs to no tool call (GAP-A3), more or fewer than one start and one
complete, another field than the seed's, or another story in the vault's log than on the bus.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec import structs

from retinue.app import Retinue
from retinue.events import Stamped, to_line
from retinue.sessions.paths import vault_log
from retinue.subagent_events import subagent_line
from retinue.types import Call, Lineage

ROOT = "conversation/../1"
"""Of a host with ids of its own: give it to Retinue as `root`."""


async def check_contract(retinue: Retinue, vault: Path, agent: str, task: str, *, fails: bool = False) -> None:
    """Calls `spawn_subagent` as the root conversation does, and as a run one and two levels below it does."""
    spawn = retinue.surface("nested").calls["spawn_subagent"]
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
        events = list(watcher.waiting())
    _check_origins(events, found)
    told = [json.loads(each) for each in map(subagent_line, events) if each]
    assert told == [event for line, one in found for event in _expected(line, one, told)]
    lines = b"".join(each for each in map(subagent_line, events) if each)
    assert (vault_log(vault, ROOT) / "events.jsonl").read_bytes() == lines
    stored = [stamped async for stamped in retinue.root_history(ROOT)]
    assert b"".join(each for each in map(subagent_line, stored) if each) == lines


def _below(retinue: Retinue, line: Lineage) -> Call:
    return structs.replace(retinue.call("nested"), lineage=line)


def _check_origins(events: list[Stamped], found: list[tuple[Lineage, dict[str, Any]]]) -> None:
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
