"""A session retold as text: for the run that continues it, and for whoever reads it. Seed 003's two forms.

Both are folds over the events, so a record of any size is told while it is read. Child text is data: it loses what is
no text, and cannot pass for a line of ours.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from typing import Protocol

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    Event,
    Finalized,
    MessageEnded,
    RunEnded,
    RunQueued,
    SteeringDelivered,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import AnswerStatus
from retinue.model.runs import ToolArguments
from retinue.output.untrusted_text import defang_markup, strip_control_characters
from retinue.sessions.messages import MAX_ARGS_CHARS, MAX_RESULT_CHARS, format_call
from retinue.sessions.store import INTERRUPTED, StoredEvents

MAX_RESUME_CHARS = 4 * 2**20
"""Of earlier runs in a prompt, the newest: more than any model takes."""

DescribeFailure = Callable[[Failure], str]
"""A failure in the words of a surface."""

# What would end the block, or begin another speech in it.
_FORGED_LINE = re.compile(
    r"^(?=[ \t]*(?:(?:User|Assistant|Tool Call|Tool Result): |(?:Previously|Instructions):[ \t]*$|--- Run \d))",
    re.MULTILINE,
)


async def render_resume_context(events: StoredEvents) -> str:
    """What stands before the prompt of a run that continues a session: `Previously:` … `Instructions:`."""
    runs = await _render_runs(events, ResumeStyle(), limit=MAX_RESUME_CHARS)
    blocks = [
        "\n".join([f"--- Run {number} ({run.status}, {run.messages} messages) ---", *run.render_lines()])
        for number, run in enumerate(runs, 1)
    ]
    return "\n\n".join(["Previously:", *blocks, "Instructions:"])


async def render_transcript(
    events: StoredEvents, *, live: bool = False, describe_failure: DescribeFailure | None = None
) -> tuple[str, int]:
    """A session as `get_subagent_session` tells it, and how many messages it has; no text if nothing is to be told.

    `live` says that its last run may still be at work.
    """
    runs = await _render_runs(events, ReadableStyle(), live=live, describe_failure=describe_failure)
    several = len(runs) > 1
    blocks = [
        "\n".join([*([f"=== Run {number}/{len(runs)} ({run.status}) ==="] if several else []), *run.render_lines()])
        for number, run in enumerate(runs, 1)
    ]
    if events.damaged_count:
        blocks.append(f"[Error: {events.damaged_count} records of this session could not be read and were skipped]")
    return "\n---\n".join(filter(None, blocks)), sum(run.messages for run in runs)


async def find_latest_text(events: StoredEvents) -> str:
    """The last text of a run that has not ended: of its newest message that has any."""
    finished, writing = "", list[str]()
    async for stamped in events:
        match stamped.event:
            case Text(text) if text.strip():
                writing.append(text)
            case MessageEnded() if writing:
                finished, writing = "\n".join(writing), []
    return "\n".join(writing) or finished


def sanitize_text(text: str) -> str:
    """Child text as it may leave: verbatim but for what is no text, or would pass for another's."""
    return defang_markup(strip_control_characters(text))


# -- who tells ---------------------------------------------------------------------------------------


class TranscriptStyle(Protocol):
    """How the parts of a run read; None: not told."""

    def render_task(self, task: str) -> str | None: ...

    def render_steering(self, text: str) -> str: ...

    def render_text(self, text: str) -> str: ...

    def render_call(self, name: str, args: ToolArguments) -> str: ...

    def render_result(self, text: str) -> str: ...

    def render_failure(self, message: str) -> str: ...


class ReadableStyle:
    """For a reader: texts as they are, calls and results in brief."""

    def render_task(self, task: str) -> str | None:
        return None

    def render_steering(self, text: str) -> str:
        return f"[steered]: {sanitize_text(text)}"

    def render_text(self, text: str) -> str:
        return sanitize_text(text)

    def render_call(self, name: str, args: ToolArguments) -> str:
        return sanitize_text(format_call(name, args)).replace("\n", " ")

    def render_result(self, text: str) -> str:
        return f"[tool result]: {_shorten_result(text)}"

    def render_failure(self, message: str) -> str:
        return f"[Error: {sanitize_text(message).strip()}]"


class ResumeStyle:
    """For the run that continues: who said what."""

    def render_task(self, task: str) -> str | None:
        return f"User: {_indent_speech(task)}"

    def render_steering(self, text: str) -> str:
        return f"User: {_indent_speech(text)}"

    def render_text(self, text: str) -> str:
        return f"Assistant: {_indent_speech(text)}"

    def render_call(self, name: str, args: ToolArguments) -> str:
        return f"Tool Call: {_indent_speech(f'{name}({_format_arguments(args)})')}"

    def render_result(self, text: str) -> str:
        return f"Tool Result: {_FORGED_LINE.sub('› ', _shorten_result(text))}"

    def render_failure(self, message: str) -> str:
        return f"[Error: {_indent_speech(message).strip()}]"


def _indent_speech(text: str) -> str:
    return _FORGED_LINE.sub("› ", sanitize_text(text))


def _format_arguments(args: ToolArguments) -> str:
    """`src/index.ts` where a path is all that was given, else all of it as JSON."""
    match list(args.values()):
        case [str(only)]:
            text = only
        case []:
            text = ""
        case _:
            text = json.dumps(args, ensure_ascii=False, separators=(",", ":"), default=repr)
    return text[:MAX_ARGS_CHARS]


def _shorten_result(text: str) -> str:
    """The beginning of a tool's result, and `...` if there is more."""
    head = text[: 8 * MAX_RESULT_CHARS]  # what is shown is found in there, however long the rest is
    brief = sanitize_text(head)
    return brief if len(brief) <= MAX_RESULT_CHARS and len(head) == len(text) else f"{brief[:MAX_RESULT_CHARS]}..."


# -- what is told ------------------------------------------------------------------------------------


class RunText:
    """One run, as far as it has been told."""

    def __init__(self) -> None:
        self.status = "running"
        self.messages = 0
        self.lines: deque[str] = deque()
        self.left_out = 0
        """Lines that were dropped, the oldest."""
        self.is_silent = True
        """Whether no text of it was met."""
        self.has_failed_message = False

    def render_lines(self) -> list[str]:
        left_out = [f"[{self.left_out} earlier entries are left out]"] if self.left_out else []
        return [*left_out, *self.lines]


async def _render_runs(
    events: StoredEvents,
    style: TranscriptStyle,
    *,
    live: bool = False,
    limit: int | None = None,
    describe_failure: DescribeFailure | None = None,
) -> list[RunText]:
    """The runs of a session; the newest lines of them, if they have more characters than the limit."""
    runs: list[RunText] = []
    size = 0
    async for stamped in events:
        if isinstance(stamped.event, RunQueued) or not runs:
            runs.append(RunText())
        for line in _render_event(runs[-1], stamped.event, style, describe_failure):
            runs[-1].lines.append(line)
            size += len(line)
        while limit is not None and size > limit:
            size -= _drop_oldest_line(runs)
    for run in runs[: -1 if live else None]:
        if run.status == "running":
            run.status = "error"
            run.lines.append(style.render_failure(INTERRUPTED.message))
    return runs


def _drop_oldest_line(runs: list[RunText]) -> int:
    """Drops the oldest line of all; how long it was."""
    oldest = next(run for run in runs if run.lines)
    oldest.left_out += 1
    return len(oldest.lines.popleft())


def _render_event(
    run: RunText, event: Event, style: TranscriptStyle, describe_failure: DescribeFailure | None
) -> list[str]:
    """What is told of one event; notes in the run what it means for it."""
    match event:
        case RunQueued(task=task):
            run.messages += 1
            line = style.render_task(task)
            return [line] if line else []
        case SteeringDelivered(text):
            run.messages += 1
            return [style.render_steering(text)]
        case Text(text) if text.strip():
            run.is_silent = False
            return [style.render_text(text)]
        case ToolCalled(_, name, args):
            return [style.render_call(name, args)]
        case ToolReturned(text=text):
            run.messages += 1
            return [style.render_result(text)]
        case MessageEnded(error=error):
            run.messages += 1
            run.has_failed_message = bool(error)
            return [style.render_failure(error)] if error else []
        case Finalized(finalization):
            run.is_silent = False
            return [style.render_text(finalization.result or finalization.error or "")]
        case RunEnded():
            return _render_end(run, event, style, describe_failure)
        case _:
            return []


def _render_end(
    run: RunText, event: RunEnded, style: TranscriptStyle, describe_failure: DescribeFailure | None
) -> list[str]:
    failure = event.failure
    run.status = "error" if failure else "completed"
    lines: list[str] = []
    if run.is_silent and event.text and event.answer in {AnswerStatus.FINAL, AnswerStatus.PARTIAL}:
        run.messages += 1  # the detail has been pruned
        lines.append(style.render_text(event.text))
    # A provider's own words stand there already.
    if failure and not (failure.code is ErrorCode.PROVIDER and run.has_failed_message):
        lines.append(style.render_failure(describe_failure(failure) if describe_failure else failure.message))
    return lines
