"""A run as seed 004 tells it: one `subagentStart`, one `subagentComplete`, whatever happens between them.

Made of the events every engine's runs have, so no engine can tell it differently or lose whose run it was.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import RunEnded, RunQueued
from retinue.model.results import AnswerStatus


class SubagentStart(Struct, frozen=True, kw_only=True, tag_field="type", tag="subagentStart", rename="camel"):
    """A run was accepted."""

    subagent_id: str
    parent_tool_use_id: str
    """Of the tool call that asked for it, at every depth."""
    agent: str
    prompt: str
    """The task as the caller gave it."""
    root_conversation_id: str
    """Of the conversation at the top, not of the nearest caller."""


class SubagentComplete(Struct, frozen=True, kw_only=True, tag_field="type", tag="subagentComplete", rename="camel"):
    """The same run ended, over all its attempts."""

    subagent_id: str
    parent_tool_use_id: str
    result: str
    """The answer; of a failed run why it failed and, below it, what it had written."""
    is_error: bool


SubagentEvent = SubagentStart | SubagentComplete

_encode = msgspec.json.Encoder().encode


def to_subagent_event(stamped: EventRecord) -> SubagentEvent | None:
    """The event in seed 004's words; None if it has none for it."""
    match stamped.event:
        case RunQueued() as queued:
            return _make_start(stamped.origin, queued)
        case RunEnded() as ended:
            return _make_complete(stamped.origin, ended)
        case _:
            return None


def to_subagent_line(stamped: EventRecord) -> bytes | None:
    """The same as one line of JSON, newline included."""
    event = to_subagent_event(stamped)
    return None if event is None else _encode(event) + b"\n"


def _make_start(origin: EventSource, queued: RunQueued) -> SubagentStart:
    return SubagentStart(
        subagent_id=origin.run,
        parent_tool_use_id=origin.parent_tool_use_id,
        agent=queued.agent,
        prompt=queued.task,
        root_conversation_id=origin.root,
    )


def _make_complete(origin: EventSource, ended: RunEnded) -> SubagentComplete:
    failure = ended.failure
    result = ended.text
    if failure:
        has_answer = ended.answer in {AnswerStatus.FINAL, AnswerStatus.PARTIAL}
        result = f"{failure.message}\n\n{ended.text}" if has_answer and ended.text else failure.message
    return SubagentComplete(
        subagent_id=origin.run,
        parent_tool_use_id=origin.parent_tool_use_id,
        result=result,
        is_error=failure is not None,
    )
