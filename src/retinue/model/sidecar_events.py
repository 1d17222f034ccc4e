"""The events of the `nested` toolset's conversation log: one `subagentStart` and one `subagentComplete` per run.

They are derived from events that the runs of every engine have.
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
    """Id of the tool call that started the run, at every depth."""
    agent: str
    prompt: str
    """The task as the caller gave it."""
    root_conversation_id: str
    """Id of the root conversation, not of the parent run."""


class SubagentComplete(Struct, frozen=True, kw_only=True, tag_field="type", tag="subagentComplete", rename="camel"):
    """The run ended, after all its attempts."""

    subagent_id: str
    parent_tool_use_id: str
    result: str
    """The answer; of a failed run the failure message and, below it, the partial answer."""
    is_error: bool


SubagentEvent = SubagentStart | SubagentComplete

_encode = msgspec.json.Encoder().encode


def to_subagent_event(record: EventRecord) -> SubagentEvent | None:
    """Return the event of the conversation log; None for events that the log does not have."""
    match record.event:
        case RunQueued() as queued:
            return _make_start(record.origin, queued)
        case RunEnded() as ended:
            return _make_complete(record.origin, ended)
        case _:
            return None


def to_subagent_line(record: EventRecord) -> bytes | None:
    """Return the event of the conversation log as one JSON line, newline included."""
    event = to_subagent_event(record)
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
