"""The output schemas of all tools, and whether each tool dispatches agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

Schema = Mapping[str, Any]

TEXT_SCHEMA: Schema = {"type": "string"}
COUNT_SCHEMA: Schema = {"type": "integer"}
OBJECT_SCHEMA: Schema = {"type": "object"}
TEXT_LIST_SCHEMA: Schema = {"type": "array", "items": TEXT_SCHEMA}


class OutputSchema(Struct, frozen=True):
    """The output of one tool. A tool that does not dispatch agents changes nothing."""

    schema: Schema
    """Of the structured content. Most hosts show this to their model instead of the text, so it includes the text."""
    dispatches: bool = False
    is_immediate: bool = False
    """Whether it answers before the agents it dispatches are done."""
    uses_details_only: bool = False
    """Whether the output is the details of the result, which are long for other toolsets: hosts draw them."""

    def build_structured(self, text: str, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the structured content of an answer."""
        if self.uses_details_only:
            return details
        return {"text": text, **{key: details[key] for key in self.schema["properties"] if key in details}}


def _object_schema(**properties: Schema) -> Schema:
    """Return the schema of an object with these properties; none is required, as a refusal has only `error`."""
    return {"type": "object", "properties": {**properties, "error": OBJECT_SCHEMA}}


def _text_object_schema(**properties: Schema) -> Schema:
    """Return such a schema with the text of the result."""
    return _object_schema(text=TEXT_SCHEMA, **properties)


OUTPUT_SCHEMAS: Mapping[tuple[str, str], OutputSchema] = {
    ("single", "subagent"): OutputSchema(_text_object_schema(runId=TEXT_SCHEMA), dispatches=True),
    ("sticky", "subagent"): OutputSchema(_text_object_schema(sessionId=TEXT_SCHEMA), dispatches=True),
    ("fanout", "delegate_to_subagents"): OutputSchema(
        _text_object_schema(globalStatus=TEXT_SCHEMA, sessionIds=TEXT_LIST_SCHEMA), dispatches=True
    ),
    ("fanout", "get_subagent_output"): OutputSchema(_text_object_schema(sessionId=TEXT_SCHEMA, status=TEXT_SCHEMA)),
    ("fanout", "get_subagent_session"): OutputSchema(_text_object_schema(sessionId=TEXT_SCHEMA, status=TEXT_SCHEMA)),
    ("fanout", "list_subagent_profiles"): OutputSchema(_text_object_schema(count=COUNT_SCHEMA)),
    ("nested", "spawn_subagent"): OutputSchema(_text_object_schema(mode=TEXT_SCHEMA), dispatches=True),
    ("nested", "agent_info"): OutputSchema(_text_object_schema(name=TEXT_SCHEMA)),
    ("background", "subagent_start"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA), dispatches=True, is_immediate=True, uses_details_only=True
    ),
    ("background", "subagent_status"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA, doing=TEXT_SCHEMA), uses_details_only=True
    ),
    ("background", "subagent_wait"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA, result=TEXT_SCHEMA), uses_details_only=True
    ),
    ("background", "subagent_steer"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA), dispatches=True, is_immediate=True, uses_details_only=True
    ),
    ("background", "subagent_cancel"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA), uses_details_only=True
    ),
}
"""By toolset and tool. Only the properties a program would read are listed: every word costs the host tokens."""


def find_conflict(toolsets: Sequence[str]) -> str | None:
    """Return why these toolsets cannot be mounted together; None if they can."""
    owners: dict[str, str] = {}
    for toolset, tool in OUTPUT_SCHEMAS:
        if toolset in toolsets and owners.setdefault(tool, toolset) != toolset:
            return f"The toolsets {owners[tool]} and {toolset} both have a tool {tool}: mount one of them."
    return None
