"""What the protocol wants to know of a tool beside its input: the shape of its output, and what it touches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer"}
THING: Schema = {"type": "object"}
THINGS: Schema = {"type": "array", "items": THING}
TEXTS: Schema = {"type": "array", "items": TEXT}


class Shape(Struct, frozen=True):
    """One tool's output, and whether it dispatches: one that only looks touches nothing."""

    output: Schema
    dispatches: bool = False


def _object(**properties: Schema) -> Schema:
    """An object with these properties; none is required, as a refusal may have an error instead of them."""
    return {"type": "object", "properties": {**properties, "error": THING}}


SHAPES: Mapping[tuple[str, str], Shape] = {
    ("single", "subagent"): Shape(_object(mode=TEXT, runId=TEXT, results=THINGS), dispatches=True),
    ("sticky", "subagent"): Shape(_object(sessionId=TEXT, finalized=THING), dispatches=True),
    ("fanout", "delegate_to_subagents"): Shape(
        _object(windows=THINGS, globalStatus=TEXT, sessionIds=TEXTS), dispatches=True
    ),
    ("fanout", "get_subagent_output"): Shape(_object(sessionId=TEXT, status=TEXT)),
    ("fanout", "get_subagent_session"): Shape(_object(sessionId=TEXT, status=TEXT)),
    ("fanout", "list_subagent_profiles"): Shape(_object(count=COUNT, profiles=THING)),
    ("nested", "spawn_subagent"): Shape(_object(mode=TEXT, results=THINGS), dispatches=True),
    ("nested", "agent_info"): Shape(_object(name=TEXT, description=TEXT, body=TEXT)),
    ("background", "subagent_start"): Shape(_object(id=TEXT, state=TEXT), dispatches=True),
    ("background", "subagent_status"): Shape(_object(id=TEXT, state=TEXT, doing=TEXT)),
    ("background", "subagent_wait"): Shape(_object(id=TEXT, state=TEXT, result=TEXT)),
    ("background", "subagent_cancel"): Shape(_object(id=TEXT, state=TEXT)),
}
"""The tools there are, by surface and name. Only what a program would look for is spelled out: every word of the list
costs its host tokens."""
