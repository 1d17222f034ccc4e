"""What the background tools take and say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from retinue.events import RunEnded
from retinue.frontends.mcp.answers import CANCELLED, COMPLETED, FAILED, WORKING
from retinue.frontends.mcp.following import Doing
from retinue.frontends.wording import counted
from retinue.output.frame import framed, neutralise, one_line, plain
from retinue.results import AnswerKind
from retinue.surfaces.base import BEFORE_THE_RUN, JsonObject, ToolResult, required_text
from retinue.types import Code, Failure, Task, refused

SHOWN_ID = 16
"""Digits of a session's id."""
PATIENCE = 30.0
"""Seconds a call waits if it does not say how long: less than most hosts wait for a tool."""
MOST_PATIENCE = 600.0
ENDED = "has ended, and nothing was said to it. subagent_start with this id goes on with its context."
MOST_WORDS = 200
"""Characters of what a run is doing."""

_ID: JsonObject = {"type": "string", "description": "The id that subagent_start returned"}
_BY_ID: JsonObject = {"type": "object", "properties": {"id": _ID}, "required": ["id"]}

SCHEMAS: Mapping[str, JsonObject] = {
    "subagent_start": {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "minLength": 1, "description": "Name of the agent to delegate to"},
            "task": {
                "type": "string",
                "minLength": 1,
                "description": "The focused task, with all the context it needs",
            },
            "id": {"type": "string", "description": "An earlier id, to go on with its context"},
            "timeout": {"type": "number", "minimum": 1, "description": "Seconds it may take"},
        },
        "required": ["agent", "task"],
    },
    "subagent_status": _BY_ID,
    "subagent_wait": {
        "type": "object",
        "properties": {
            "id": _ID,
            "seconds": {
                "type": "number",
                "minimum": 0,
                "maximum": MOST_PATIENCE,
                "description": f"How long to wait at most (default: {PATIENCE:g})",
            },
        },
        "required": ["id"],
    },
    "subagent_steer": {
        "type": "object",
        "properties": {
            "id": _ID,
            "text": {"type": "string", "minLength": 1, "description": "What the agent should know or do differently"},
        },
        "required": ["id", "text"],
    },
    "subagent_cancel": _BY_ID,
}

ABOUT: Mapping[str, str] = {
    "subagent_start": "Start an agent on a focused task in the background; returns an id at once. The agent works in "
    "its own context and does not see this conversation: give it everything it needs.",
    "subagent_status": "What a background agent is doing, without waiting.",
    "subagent_wait": "Wait until a background agent is done, for a bounded time, and return its result.",
    "subagent_steer": "Say something to a background agent while it works; it goes on with that in mind.",
    "subagent_cancel": "Stop a background agent; what it had is kept.",
}


# -- what is given ---------------------------------------------------------------------------------


def decoded(arguments: Any) -> Task:
    """The task of `subagent_start`.

    Raises:
        Refused: `invalid_input`, naming the field.
    """
    if not isinstance(arguments, dict):
        raise refused(Code.INVALID_INPUT, "The input of subagent_start must be an object with agent and task")
    session = arguments.get("id")
    if session is not None and not isinstance(session, str):
        raise refused(Code.INVALID_INPUT, "Parameter id must be a string")
    return Task(
        agent=required_text(arguments, "agent"),
        prompt=required_text(arguments, "task"),
        session=session or None,
        timeout=_number(arguments, "timeout", low=1.0),
    )


def seconds(arguments: Any) -> float | None:
    """How long `subagent_wait` may take; None if it does not say.

    Raises:
        Refused: the same.
    """
    found = _number(arguments, "seconds", low=0.0) if isinstance(arguments, dict) else None
    return None if found is None else min(found, MOST_PATIENCE)


def _number(arguments: Mapping[str, Any], name: str, *, low: float) -> float | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < math.inf:
        raise refused(Code.INVALID_INPUT, f"Parameter {name} must be a number of seconds, at least {low:g}")
    return float(value)


# -- what is said ----------------------------------------------------------------------------------


def never_ran(run: Doing | None) -> Failure | None:
    """Why a run that was recorded could not begin; None if it could."""
    ended = run.ended if run else None
    if ended is None or ended.failure is None or ended.answer is not AnswerKind.NONE:
        return None
    return ended.failure if ended.failure.code in BEFORE_THE_RUN else None


def doing(run: Doing) -> ToolResult:
    """How far a run has come, without what it said."""
    if run.ended:
        state = _state(run.ended)
        return _told(run, state, f"{state} after {run.ended.elapsed:.1f}s; subagent_wait returns what it said")
    words = f"{one_line(run.words, MOST_WORDS)} ({counted(run.tools, 'tool call')} so far)"
    return _told(run, WORKING, words, doing=words)


def told(run: Doing) -> ToolResult:
    """That the agent of a run has been told something."""
    return _told(run, WORKING, "told; it reads that before it asks its model again")


def answer_of(run: Doing) -> ToolResult:
    """What came of a run, its text framed; or that it still works."""
    ended = run.ended
    if ended is None:
        return _told(run, WORKING, "working; subagent_wait returns the result once it is done")
    state, text = _state(ended), neutralise(plain(ended.text))
    facts: dict[str, Any] = {"elapsed": round(ended.elapsed, 3)}
    if text and ended.answer in {AnswerKind.FINAL, AnswerKind.PARTIAL}:
        facts["result"] = text
    if ended.failure:
        message = neutralise(plain(ended.failure.message))
        facts["error"] = {"code": str(ended.failure.code), "message": message}
        words = f"{state}: {message}"
    else:
        words = f"{state} after {ended.elapsed:.1f}s"
    told = _told(run, state, words, **facts)
    body = f"\n\n{framed(ended.text, run.agent)}" if ended.text else ""
    return ToolResult(text=told.text + body, details=told.details, is_error=state == FAILED)


def _told(run: Doing, state: str, words: str, **facts: Any) -> ToolResult:
    shown, agent = run.session[:SHOWN_ID], one_line(run.agent, MOST_WORDS)
    return ToolResult(
        text=f"{agent} (id {shown}): {words}", details={"id": shown, "agent": agent, "state": state, **facts}
    )


def _state(ended: RunEnded) -> str:
    if ended.failure is None:
        return COMPLETED
    return CANCELLED if ended.failure.code is Code.ABORTED else FAILED
