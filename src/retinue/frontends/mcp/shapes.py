"""What the protocol wants to know of a tool beside its input: the shape of its output, and what it touches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer"}
THING: Schema = {"type": "object"}
TEXTS: Schema = {"type": "array", "items": TEXT}


class Shape(Struct, frozen=True):
    """One tool's output, and whether it dispatches: one that only looks touches nothing."""

    output: Schema
    """Of its structured content. Most hosts show their model this and not the text, so it says what the text says."""
    dispatches: bool = False
    at_once: bool = False
    """Whether it answers before the agents it dispatches are done."""

    is_own: bool = False
    """Whether the tool's details are this output; those of a surface are its host's to draw, and long."""

    def structured(self, text: str, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """The structured content of an answer."""
        if self.is_own:
            return details
        return {"text": text, **{key: details[key] for key in self.output["properties"] if key in details}}


def _object(**properties: Schema) -> Schema:
    """An object with these properties; none is required, as a refusal may have an error instead of them."""
    return {"type": "object", "properties": {**properties, "error": THING}}


def _said(**properties: Schema) -> Schema:
    """The same with what the surface's text says."""
    return _object(text=TEXT, **properties)


SHAPES: Mapping[tuple[str, str], Shape] = {
    ("single", "subagent"): Shape(_said(runId=TEXT), dispatches=True),
    ("sticky", "subagent"): Shape(_said(sessionId=TEXT), dispatches=True),
    ("fanout", "delegate_to_subagents"): Shape(_said(globalStatus=TEXT, sessionIds=TEXTS), dispatches=True),
    ("fanout", "get_subagent_output"): Shape(_said(sessionId=TEXT, status=TEXT)),
    ("fanout", "get_subagent_session"): Shape(_said(sessionId=TEXT, status=TEXT)),
    ("fanout", "list_subagent_profiles"): Shape(_said(count=COUNT)),
    ("nested", "spawn_subagent"): Shape(_said(mode=TEXT), dispatches=True),
    ("nested", "agent_info"): Shape(_said(name=TEXT)),
    ("background", "subagent_start"): Shape(_object(id=TEXT, state=TEXT), dispatches=True, at_once=True, is_own=True),
    ("background", "subagent_status"): Shape(_object(id=TEXT, state=TEXT, doing=TEXT), is_own=True),
    ("background", "subagent_wait"): Shape(_object(id=TEXT, state=TEXT, result=TEXT), is_own=True),
    ("background", "subagent_steer"): Shape(_object(id=TEXT, state=TEXT), dispatches=True, at_once=True, is_own=True),
    ("background", "subagent_cancel"): Shape(_object(id=TEXT, state=TEXT), is_own=True),
}
"""The tools there are, by surface and name. Only what a program would look for is spelled out: every word of the list
costs its host tokens."""


def clash(surfaces: Sequence[str]) -> str | None:
    """Why these surfaces cannot be mounted together; None if they can."""
    owners: dict[str, str] = {}
    for surface, tool in SHAPES:
        if surface in surfaces and owners.setdefault(tool, surface) != surface:
            return f"The surfaces {owners[tool]} and {surface} both have a tool {tool}: mount one of them."
    return None
