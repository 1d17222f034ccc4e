"""The transcripts of the `fanout` toolset: for the run that continues a session, and for `get_subagent_session`.

Text of agents and tools is data: it is sanitized, and cannot pass for a line of the transcript's own.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import EventRecord
from retinue.model.events import MessageEnded, RunEnded, RunQueued, Text
from retinue.model.results import Finalization
from retinue.model.runs import ToolArguments
from retinue.output.untrusted_text import sanitize_text
from retinue.sessions.store import INTERRUPTED, StoredEvents
from retinue.transcripts.text import MAX_ARGS_CHARS, MAX_RESULT_CHARS, TranscriptRenderer, call_line

MAX_RESUME_CHARS = 4 * 2**20
"""Characters of earlier runs in a prompt, the newest: more than any model accepts."""

DescribeFailure = Callable[[Failure], str]
"""Returns the message of a failure as the toolset words it."""

# Lines that would end the block, or start an entry of another role in it.
_FORGED_LINE = re.compile(
    r"^(?=[ \t]*(?:(?:User|Assistant|Tool Call|Tool Result): |(?:Previously|Instructions):[ \t]*$|--- Run \d))",
    re.MULTILINE,
)


async def render_resume_context(events: StoredEvents) -> str:
    """Return the earlier runs of a session as the block before the prompt: `Previously:` … `Instructions:`."""
    runs = await _render_runs(events, ResumeTranscript, limit=MAX_RESUME_CHARS)
    blocks = [
        "\n".join([f"--- Run {number} ({run.status}, {run.messages} messages) ---", *run.lines()])
        for number, run in enumerate(runs, 1)
    ]
    return "\n\n".join(["Previously:", *blocks, "Instructions:"])


async def render_transcript(
    events: StoredEvents, *, live: bool = False, describe_failure: DescribeFailure | None = None
) -> tuple[str, int]:
    """Return the transcript for `get_subagent_session`, empty if there is nothing to show, and its message count.

    `live` means that the last run may still be running.
    """
    runs = await _render_runs(events, lambda: SessionTranscript(describe_failure), live=live)
    blocks = [
        "\n".join([*([f"=== Run {number}/{len(runs)} ({run.status}) ==="] if len(runs) > 1 else []), *run.lines()])
        for number, run in enumerate(runs, 1)
    ]
    if events.damaged_count:
        blocks.append(f"[Error: {events.damaged_count} records of this session could not be read and were skipped]")
    return "\n---\n".join(filter(None, blocks)), sum(run.messages for run in runs)


async def find_latest_text(events: StoredEvents) -> str:
    """Return the text of the newest message that has any, of a run that has not ended."""
    complete, current = "", list[str]()
    async for record in events:
        match record.event:
            case Text(text) if text.strip():
                current.append(text)
            case MessageEnded() if current:
                complete, current = "\n".join(current), []
    return "\n".join(current) or complete


class SessionTranscript(TranscriptRenderer):
    """One run of a session for a reader: texts as they are, tool calls and results in brief."""

    labels: ClassVar[Mapping[str, str]] = {"steering": "[steered]: ", "text": "", "result": "[tool result]: "}

    def __init__(self, describe_failure: DescribeFailure | None = None) -> None:
        self.status = "running"
        self.messages = 0
        self.entries: deque[str] = deque()
        self.dropped = 0
        """How many of the oldest entries were dropped."""
        self._describe_failure = describe_failure
        self._has_text = False
        self._has_failed_message = False

    def lines(self) -> list[str]:
        dropped = [f"[{self.dropped} earlier entries left out]"] if self.dropped else []
        return [*dropped, *self.entries]

    def add(self, record: EventRecord) -> int:
        """Append the entries of an event and return how many characters they have."""
        entries = list(self.render(record))
        self.entries += entries
        return sum(map(len, entries))

    def mark_interrupted(self) -> None:
        """End a run of which no end was recorded."""
        if self.status == "running":
            self.status = "error"
            self.entries.append(self.error(INTERRUPTED.message))

    def escape(self, text: str) -> str:
        """Return sanitized text as an entry may contain it."""
        return text

    def error(self, message: str) -> str:
        return f"[Error: {self.escape(sanitize_text(message)).strip()}]"

    def run_queued(self, event: RunQueued, record: EventRecord) -> Iterable[str]:
        self.messages += 1
        return ()

    def steering(self, text: str) -> str:
        self.messages += 1
        return self.labels["steering"] + self.escape(sanitize_text(text))

    def text(self, text: str) -> str:
        self._has_text = True
        return self.labels["text"] + self.escape(sanitize_text(text))

    def finalization(self, finalization: Finalization) -> str:
        return self.text(finalization.result or finalization.error or "")

    def tool_call(self, name: str, args: ToolArguments) -> str:
        return sanitize_text(call_line(name, args)).replace("\n", " ")

    def tool_result(self, name: str, text: str, is_error: bool) -> str:
        self.messages += 1
        return self.labels["result"] + self.escape(_shorten_result(text))

    def message_ended(self, error: str | None) -> str | None:
        self.messages += 1
        self._has_failed_message = bool(error)
        return self.error(error) if error else None

    def run_ended(self, event: RunEnded) -> Iterable[str]:
        failure, describe = event.failure, self._describe_failure
        self.status = "error" if failure else "completed"
        if not self._has_text and event.text and event.answer.is_text:
            self.messages += 1  # the events between start and end have been pruned
            yield self.text(event.text)
        # The provider's own message is already an entry.
        if failure and not (failure.code is ErrorCode.PROVIDER and self._has_failed_message):
            yield self.error(describe(failure) if describe else failure.message)


class ResumeTranscript(SessionTranscript):
    """One run of a session for the model that continues it: every entry names its role."""

    labels: ClassVar[Mapping[str, str]] = {"steering": "User: ", "text": "Assistant: ", "result": "Tool Result: "}

    def escape(self, text: str) -> str:
        return _FORGED_LINE.sub("› ", text)

    def run_queued(self, event: RunQueued, record: EventRecord) -> Iterable[str]:
        return [self.steering(event.task)]

    def tool_call(self, name: str, args: ToolArguments) -> str:
        return f"Tool Call: {self.escape(sanitize_text(f'{name}({_format_arguments(args)})'))}"


async def _render_runs(
    events: StoredEvents, new_run: Callable[[], SessionTranscript], *, live: bool = False, limit: int | None = None
) -> list[SessionTranscript]:
    """Return the runs of a session; where a limit of characters is given, with their newest entries."""
    runs: list[SessionTranscript] = []
    size = 0
    async for record in events:
        if isinstance(record.event, RunQueued) or not runs:
            runs.append(new_run())
        size += runs[-1].add(record)
        while limit is not None and size > limit:
            oldest = next(run for run in runs if run.entries)
            oldest.dropped += 1
            size -= len(oldest.entries.popleft())
    for run in runs[: -1 if live else None]:
        run.mark_interrupted()
    return runs


def _format_arguments(args: ToolArguments) -> str:
    """Return the only argument if that is a text (`src/index.ts`), else all of them as JSON."""
    match list(args.values()):
        case [str(only)]:
            text = only
        case []:
            text = ""
        case _:
            text = json.dumps(args, ensure_ascii=False, separators=(",", ":"), default=repr)
    return text[:MAX_ARGS_CHARS]


def _shorten_result(text: str) -> str:
    """Return the start of a tool's result, sanitized, and `...` if there is more."""
    head = text[: 8 * MAX_RESULT_CHARS]  # sanitizing removes less than that, however long the rest is
    clean = sanitize_text(head)
    return clean if len(clean) <= MAX_RESULT_CHARS and len(head) == len(text) else f"{clean[:MAX_RESULT_CHARS]}..."
