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

from retinue.events import (
    Event,
    Finalized,
    MessageEnded,
    RunEnded,
    RunQueued,
    Steered,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.output.frame import neutralise, plain
from retinue.results import AnswerKind
from retinue.sessions.store import INTERRUPTED, Events
from retinue.sessions.transcript import ARGS, RESULT, call_line
from retinue.types import Args, Code, Failure

RESUMED_CHARS = 4 * 2**20
"""Of earlier runs in a prompt, the newest: more than any model takes."""

Sentence = Callable[[Failure], str]
"""A failure in the words of a surface."""

# What would end the block, or begin another speech in it.
_FORGED = re.compile(
    r"^(?=[ \t]*(?:(?:User|Assistant|Tool Call|Tool Result): |(?:Previously|Instructions):[ \t]*$|--- Run \d))",
    re.MULTILINE,
)


async def previously(events: Events) -> str:
    """What stands before the prompt of a run that continues a session: `Previously:` … `Instructions:`."""
    runs = await _told(events, Speaker(), limit=RESUMED_CHARS)
    blocks = [
        "\n".join([f"--- Run {number} ({run.status}, {run.messages} messages) ---", *run.told()])
        for number, run in enumerate(runs, 1)
    ]
    return "\n\n".join(["Previously:", *blocks, "Instructions:"])


async def transcript(events: Events, *, live: bool = False, sentence: Sentence | None = None) -> tuple[str, int]:
    """A session as `get_subagent_session` tells it, and how many messages it has; no text if nothing is to be told.

    `live` says that its last run may still be at work.
    """
    runs = await _told(events, Reader(), live=live, sentence=sentence)
    several = len(runs) > 1
    blocks = [
        "\n".join([*([f"=== Run {number}/{len(runs)} ({run.status}) ==="] if several else []), *run.told()])
        for number, run in enumerate(runs, 1)
    ]
    if events.damaged:
        blocks.append(f"[Error: {events.damaged} records of this session could not be read and were skipped]")
    return "\n---\n".join(filter(None, blocks)), sum(run.messages for run in runs)


async def latest_text(events: Events) -> str:
    """The last text of a run that has not ended: of its newest message that has any."""
    said, writing = "", list[str]()
    async for stamped in events:
        match stamped.event:
            case Text(text) if text.strip():
                writing.append(text)
            case MessageEnded() if writing:
                said, writing = "\n".join(writing), []
    return "\n".join(writing) or said


def clean(text: str) -> str:
    """Child text as it may leave: verbatim but for what is no text, or would pass for another's."""
    return neutralise(plain(text))


# -- who tells ---------------------------------------------------------------------------------------


class Voice(Protocol):
    """How the parts of a run read; None: not told."""

    def asked(self, task: str) -> str | None: ...

    def told(self, text: str) -> str: ...

    def said(self, text: str) -> str: ...

    def called(self, name: str, args: Args) -> str: ...

    def returned(self, text: str) -> str: ...

    def failed(self, message: str) -> str: ...


class Reader:
    """For a reader: texts as they are, calls and results in brief."""

    def asked(self, task: str) -> str | None:
        return None

    def told(self, text: str) -> str:
        return f"[steered]: {clean(text)}"

    def said(self, text: str) -> str:
        return clean(text)

    def called(self, name: str, args: Args) -> str:
        return clean(call_line(name, args)).replace("\n", " ")

    def returned(self, text: str) -> str:
        return f"[tool result]: {_brief(text)}"

    def failed(self, message: str) -> str:
        return f"[Error: {clean(message).strip()}]"


class Speaker:
    """For the run that continues: who said what."""

    def asked(self, task: str) -> str | None:
        return f"User: {_speech(task)}"

    def told(self, text: str) -> str:
        return f"User: {_speech(text)}"

    def said(self, text: str) -> str:
        return f"Assistant: {_speech(text)}"

    def called(self, name: str, args: Args) -> str:
        return f"Tool Call: {_speech(f'{name}({_arguments(args)})')}"

    def returned(self, text: str) -> str:
        return f"Tool Result: {_FORGED.sub('› ', _brief(text))}"

    def failed(self, message: str) -> str:
        return f"[Error: {_speech(message).strip()}]"


def _speech(text: str) -> str:
    return _FORGED.sub("› ", clean(text))


def _arguments(args: Args) -> str:
    """`src/index.ts` where a path is all that was given, else all of it as JSON."""
    match list(args.values()):
        case [str(only)]:
            told = only
        case []:
            told = ""
        case _:
            told = json.dumps(args, ensure_ascii=False, separators=(",", ":"), default=repr)
    return told[:ARGS]


def _brief(text: str) -> str:
    """The beginning of a tool's result, and `...` if there is more."""
    head = text[: 8 * RESULT]  # what is shown is found in there, however long the rest is
    told = clean(head)
    return told if len(told) <= RESULT and len(head) == len(text) else f"{told[:RESULT]}..."


# -- what is told ------------------------------------------------------------------------------------


class Run:
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

    def told(self) -> list[str]:
        left_out = [f"[{self.left_out} earlier entries are left out]"] if self.left_out else []
        return [*left_out, *self.lines]


async def _told(
    events: Events, voice: Voice, *, live: bool = False, limit: int | None = None, sentence: Sentence | None = None
) -> list[Run]:
    """The runs of a session; the newest lines of them, if they have more characters than the limit."""
    runs: list[Run] = []
    size = 0
    async for stamped in events:
        if isinstance(stamped.event, RunQueued) or not runs:
            runs.append(Run())
        for line in _lines(runs[-1], stamped.event, voice, sentence):
            runs[-1].lines.append(line)
            size += len(line)
        while limit is not None and size > limit:
            size -= _dropped(runs)
    for run in runs[: -1 if live else None]:
        if run.status == "running":
            run.status = "error"
            run.lines.append(voice.failed(INTERRUPTED.message))
    return runs


def _dropped(runs: list[Run]) -> int:
    """Drops the oldest line of all; how long it was."""
    oldest = next(run for run in runs if run.lines)
    oldest.left_out += 1
    return len(oldest.lines.popleft())


def _lines(run: Run, event: Event, voice: Voice, sentence: Sentence | None) -> list[str]:
    """What is told of one event; notes in the run what it means for it."""
    match event:
        case RunQueued(task=task):
            run.messages += 1
            told = voice.asked(task)
            return [told] if told else []
        case Steered(text):
            run.messages += 1
            return [voice.told(text)]
        case Text(text) if text.strip():
            run.is_silent = False
            return [voice.said(text)]
        case ToolCalled(_, name, args):
            return [voice.called(name, args)]
        case ToolReturned(text=text):
            run.messages += 1
            return [voice.returned(text)]
        case MessageEnded(error=error):
            run.messages += 1
            run.has_failed_message = bool(error)
            return [voice.failed(error)] if error else []
        case Finalized(finalization):
            run.is_silent = False
            return [voice.said(finalization.result or finalization.error or "")]
        case RunEnded():
            return _ending(run, event, voice, sentence)
        case _:
            return []


def _ending(run: Run, event: RunEnded, voice: Voice, sentence: Sentence | None) -> list[str]:
    failure = event.failure
    run.status = "error" if failure else "completed"
    lines: list[str] = []
    if run.is_silent and event.text and event.answer in {AnswerKind.FINAL, AnswerKind.PARTIAL}:
        run.messages += 1  # the detail has been pruned
        lines.append(voice.said(event.text))
    # A provider's own words stand there already.
    if failure and not (failure.code is Code.PROVIDER and run.has_failed_message):
        lines.append(voice.failed(sentence(failure) if sentence else failure.message))
    return lines
