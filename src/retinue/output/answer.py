"""Collect the events of an attempt, within bounds, and choose its answer or failure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, NamedTuple

import msgspec

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    CONTINUED_NOTICE_CODE,
    EngineSessionStarted,
    Event,
    Finalized,
    MessageEnded,
    Notice,
    OutputBytesCounted,
    ProcessEnded,
    ProcessUsageCounted,
    SteeringDelivered,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.model.results import AnswerStatus, Finalization, ProcessEnd, ProcessUsage, Usage
from retinue.model.runs import ToolUse
from retinue.model.tool_names import FINALIZE_TOOL
from retinue.output.provider_errors import classify_error

MAX_MESSAGE_CHARS = 8 * 2**20
MAX_ITEMS = 500
MAX_ITEM_CHARS = 2**20
"""Characters of all display items together."""

_encode = msgspec.json.Encoder().encode


MAX_TOOL_NAMES = 200
"""Tool names counted separately; further ones a child may invent count as one."""
MAX_NOTICES = 100
MAX_ERROR_CHARS = 2000
"""Characters of a provider's message in a failure."""

MESSAGE_START_EVENTS = (TextDelta, ThinkingDelta, Thinking, Text, ToolCalled, SteeringDelivered)
"""Events after which a message is still to end: its own parts, or steering that the agent has to answer."""
WORK_EVENTS = (*MESSAGE_START_EVENTS, ToolDelta, ToolReturned, MessageEnded, Finalized)
"""Events of the agent's own work."""

KEPT_TEXT = "The partial answer was kept."
KEPT_SESSION = "The answer is empty; the session has the tool calls."
RETRY_ADVICE = "Run the task again, or resume the session."
OUTPUT_LIMIT_REACHED = "The model reached its output limit before the answer was complete."
SHORTEN_ADVICE = "Ask for a shorter answer, split the task, or use a model with a larger limit."
TURN_ABORTED = "The agent's last turn was aborted."
EMPTY_MESSAGE = "The agent's last message is empty."
NO_FINAL_MESSAGE = "The agent ended without a final message."

PROVIDER_ADVICE: Mapping[str, str] = {
    "rate_limit": "Try again later, or give the agent {models}.",
    "quota": "Check the provider's plan and billing, or give the agent {models}.",
    "auth": "Check the provider's key or login.",
    "model_unavailable": "Check the model's name and your access to it, or give the agent {models}.",
    "network": "Check the connection and try again.",
    "overloaded": "Try again later, or give the agent {models}.",
    "context_overflow": "Split the task, or use a model with a larger context.",
    "refused": "Rephrase the task, or use another model.",
    "bad_request": "The provider does not accept this request: the same request will fail again. Check the task, its "
    "files, and the agent's model and settings.",
    "server_error": "Try again later, or give the agent {models}.",
    "tool": "Check the tool's error message and run the task again.",
    "other": "Run the task again, or use another model.",
}
"""What to do next, by the reason of the provider's error."""


class BoundedText:
    """The text of an unfinished message: complete blocks, and the deltas after the last of them."""

    def __init__(self, limit: int = MAX_MESSAGE_CHARS) -> None:
        self._limit = limit
        self._blocks: list[str] = []
        self._blocks_chars = 0
        self._deltas: StringIO | None = None  # compact, and the cost of a delta does not grow with the text
        self._deltas_chars = 0

    def add_delta(self, text: str) -> int:
        """Append to the unfinished block; return how many characters had no room."""
        room = self._limit - self._blocks_chars - self._deltas_chars
        kept = text if len(text) <= room else text[:room]
        if self._deltas is None:
            self._deltas = StringIO()
        self._deltas.write(kept)
        self._deltas_chars += len(kept)
        return len(text) - len(kept)

    def add_block(self, text: str) -> int:
        """Append a complete block, which replaces the deltas before it; return how many characters had no room."""
        self._deltas, self._deltas_chars = None, 0
        kept = text[: self._limit - self._blocks_chars]
        self._blocks.append(kept)
        self._blocks_chars += len(kept)
        return len(text) - len(kept)

    def text(self) -> str:
        """Return the blocks that are not blank, each on its own line."""
        open_block = self._deltas.getvalue() if self._deltas else ""
        return "\n".join(block for block in (*self._blocks, open_block) if block.strip())


class BoundedItems:
    """The newest texts and tool calls, in order."""

    def __init__(self, limit: int = MAX_ITEMS, limit_chars: int = MAX_ITEM_CHARS) -> None:
        self._limit = limit
        self._limit_chars = limit_chars
        self._items: list[tuple[str | ToolUse, int]] = []
        self._chars = 0

    def add(self, item: str | ToolUse) -> None:
        if isinstance(item, str):
            item = item[: self._limit_chars]
            size = len(item)
        else:
            size = _json_size(item.args)
            if size > self._limit_chars:
                item, size = ToolUse(item.id, item.name, {"[left out]": f"{size} characters"}), 0
        self._items.append((item, size))
        self._chars += size
        while len(self._items) > self._limit or self._chars > self._limit_chars:
            self._chars -= self._items.pop(0)[1]

    def to_tuple(self) -> tuple[str | ToolUse, ...]:
        return tuple(item for item, _ in self._items)


def _json_size(value: Any) -> int:
    """Return the approximate size of a JSON-like value; one that cannot be encoded counts as too large."""
    try:
        return len(_encode(value))
    except (UnicodeEncodeError, RecursionError, TypeError):
        return MAX_ITEM_CHARS + 1


class CollectedAnswer(NamedTuple):
    text: str
    kind: AnswerStatus


class _FinishedMessage(NamedTuple):
    """The parts of a finished message that matter if it is the answer."""

    text: str
    stop_reason: StopReason
    model: str | None


class AnswerCollector:
    """The state of one attempt: its texts, usage, tools, end and possible answer."""

    def __init__(self, fallback_models: Sequence[str] = ()) -> None:
        """Start empty; failures advise models other than `fallback_models`, which the agent has already."""
        self._fallback_models = fallback_models
        self.native_session: str | None = None
        self.process: ProcessEnd | None = None
        self.process_usage: ProcessUsage | None = None
        """What the processes of the attempt used, as far as it is known."""
        self.finalized: Finalization | None = None
        """The last valid finalization."""
        self.rejected_finalizations = 0
        """Finalize calls that were answered with an error."""
        self.stop_reason: StopReason | None = None
        """The stop reason of the last message."""
        self.provider_error: str | None = None
        """The provider's message, if the last message ended with an error."""
        self.dropped_bytes = 0
        """Output that was dropped: lines too long for the engine, and text beyond the bounds."""
        self._usage = Usage()
        self._model: str | None = None
        self._finished: _FinishedMessage | None = None
        self._is_continued = False
        """Whether the next message continues the last one, which was cut off."""
        self._draft = BoundedText()
        self._writing = False
        self._items = BoundedItems()
        self._tools: dict[str, int] = {}
        self._returned = 0
        self.not_applied: tuple[str, ...] = ()
        """The preferences that the engine did not apply, beside those it does not support at all."""
        self._notices: list[str] = []
        self._seen = False
        self._worked: type[Event] | None = None

    def observe(self, event: Event) -> None:
        """Update the state by an event; the cost of a delta does not grow with the text."""
        self._seen = True
        if isinstance(event, TextDelta):  # by far the most frequent
            self._worked, self._writing = TextDelta, True
            self.dropped_bytes += self._draft.add_delta(event.text)
        elif isinstance(event, WORK_EVENTS):
            self._worked = type(event)
            self._writing = isinstance(event, MESSAGE_START_EVENTS)
            self._observe_work(event)
        else:
            self._observe_fact(event)

    def _observe_work(self, event: Event) -> None:
        match event:
            case Text(text):
                self.dropped_bytes += self._draft.add_block(text)
                if text.strip():
                    self._items.add(text)
            case ToolCalled():
                self._observe_call(event)
            case ToolReturned(name=name, is_error=is_error):
                self._returned += 1
                self.rejected_finalizations += name == FINALIZE_TOOL and is_error
            case MessageEnded():
                self._observe_message_end(event)
            case Finalized(finalization) if finalization.is_valid:
                self.finalized = finalization

    def _observe_fact(self, event: Event) -> None:
        match event:
            case OutputBytesCounted(dropped=dropped):
                self.dropped_bytes += dropped
            case ProcessUsageCounted(usage):
                self.process_usage = usage if self.process_usage is None else self.process_usage + usage
            case Notice(code=code, message=message, preference=preference):
                if preference and preference not in self.not_applied:
                    self.not_applied = (*self.not_applied, preference)
                self._is_continued = self._is_continued or code == CONTINUED_NOTICE_CODE
                if message not in self._notices:
                    self._notices = [*self._notices[1 - MAX_NOTICES :], message]
            case ProcessEnded(end):
                self.process = end
            case EngineSessionStarted(session):
                self.native_session = session

    @property
    def usage(self) -> Usage:
        """Return the sum over the assistant messages; each is a turn, unless its provider failed."""
        return self._usage

    @property
    def tools_used(self) -> Mapping[str, int]:
        """Return the number of calls of each tool."""
        return dict(self._tools)

    @property
    def items(self) -> tuple[str | ToolUse, ...]:
        """Return the newest texts and tool calls, in order, for display."""
        return self._items.to_tuple()

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self._notices)

    @property
    def model(self) -> str | None:
        """Return the model that gave the answer, else the last one reported."""
        return (self._finished and self._finished.model) or self._model

    @property
    def has_final_answer(self) -> bool:
        """Return whether a good answer is complete: a later failure of the attempt does not invalidate it."""
        if self.finalized is not None:
            return True
        return self.stop_reason == "stop" and not self._writing and self.find_failure() is None

    @property
    def ended_normally(self) -> bool:
        """Return whether the agent ended by itself: nothing was cut off and no process failed."""
        end = self.process
        return self.stop_reason in ("stop", "tool_use") and not (end and (end.code or end.signal))

    def best_answer(self) -> CollectedAnswer:
        """Return the final answer, else a partial text, else a diagnosis; nothing if there was no event."""
        if self.finalized and (text := self.finalized.result or self.finalized.error):
            return CollectedAnswer(text, AnswerStatus.FINAL)
        if self._finished and self._finished.stop_reason == "stop":
            return CollectedAnswer(self._finished.text, AnswerStatus.FINAL)
        if text := self._current_text() or (self._finished.text if self._finished else ""):
            return CollectedAnswer(text, AnswerStatus.PARTIAL)
        return (
            CollectedAnswer(self._build_diagnosis(), AnswerStatus.DIAGNOSIS)
            if self._seen
            else CollectedAnswer("", AnswerStatus.NONE)
        )

    def find_failure(self) -> Failure | None:
        """Return why the attempt failed although the engine returned normally; None if it has a good answer."""
        if self.finalized:
            return None
        match self.stop_reason:
            case "error":
                return self._make_provider_failure()
            case "aborted":
                return Failure(ErrorCode.ABORTED, self._explain(TURN_ABORTED), "aborted")
            case "length":
                return Failure(ErrorCode.OUTPUT_LIMIT, self._explain(OUTPUT_LIMIT_REACHED, SHORTEN_ADVICE), "length")
            case "stop" if self.best_answer().kind is AnswerStatus.FINAL:
                return None
            case "stop":
                return Failure(ErrorCode.ENGINE, self._explain(EMPTY_MESSAGE), "empty_answer")
            case _:
                return self._make_process_failure()

    def _observe_call(self, event: ToolCalled) -> None:
        name = event.name if event.name in self._tools or len(self._tools) < MAX_TOOL_NAMES else "(others)"
        self._tools[name] = self._tools.get(name, 0) + 1
        self._items.add(ToolUse(event.call, event.name, event.args))

    def _observe_message_end(self, event: MessageEnded) -> None:
        self._usage += event.turn
        self._model = event.model or self._model
        if event.stop_reason == "aborted" and self.stop_reason == "stop" and not self._current_text():
            return  # nothing of it arrived: the answer before it is the last one
        self.stop_reason = event.stop_reason
        self.provider_error = event.error if event.stop_reason == "error" else None
        text = self._draft.text() if event.stop_reason == "tool_use" else self._current_text()
        self.dropped_bytes += max(0, len(text) - MAX_MESSAGE_CHARS)
        text, self._draft, self._is_continued = text[:MAX_MESSAGE_CHARS], BoundedText(), False
        # Text before a tool call is an answer only as long as there is no other.
        if text and (
            event.stop_reason != "tool_use" or self._finished is None or self._finished.stop_reason == "tool_use"
        ):
            self._finished = _FinishedMessage(text, event.stop_reason, event.model)

    def _current_text(self) -> str:
        """Return the text of the unfinished message, after the one that it continues."""
        text = self._draft.text()
        if text and self._is_continued and self._finished and self._finished.stop_reason == "length":
            return self._finished.text + text
        return text

    def _make_process_failure(self) -> Failure:
        """Return the failure of an agent that ended without a final message, by the end of its process."""
        end = self.process or ProcessEnd()
        if end.signal:
            message = self._explain(f"The agent's process {end.describe()}.") + end.quote_stderr()
            return Failure(ErrorCode.SIGNALLED, message, end.signal_reason, {"signal": end.signal})
        if end.code:
            message = self._explain(f"{NO_FINAL_MESSAGE} Its process {end.describe()}.") + end.quote_stderr()
            return Failure(ErrorCode.ENGINE, message, "no_final_message", {"exitCode": end.code})
        return Failure(ErrorCode.ENGINE, self._explain(NO_FINAL_MESSAGE) + end.quote_stderr(), "no_final_message")

    def _make_provider_failure(self) -> Failure:
        text = (self.provider_error or "no reason given").strip()[:MAX_ERROR_CHARS]
        reason = classify_error(self.provider_error)
        known = f" other than {', '.join(self._fallback_models)}" if self._fallback_models else ""
        advice = PROVIDER_ADVICE[reason].format(models=f"fallback_models{known}")
        return Failure(
            ErrorCode.PROVIDER, self._explain(f"The model provider failed: {text}", advice, separator="\n"), reason
        )

    def _explain(self, problem: str, advice: str = RETRY_ADVICE, separator: str = " ") -> str:
        """Return the problem, what was kept, and what to do next."""
        has_text = self.best_answer().kind.is_text
        return f"{problem}{separator}{KEPT_TEXT if has_text else KEPT_SESSION} {advice}"

    def _build_diagnosis(self) -> str:
        if self._worked is None:
            return "The subagent ended without a message and without a tool call."
        lines = [
            "Subagent produced JSONL events but no final assistant text could be extracted.",
            f"Last event type: {self._worked.__struct_config__.tag}.",
        ]
        if self.stop_reason:
            lines.append(f"Last assistant stop reason: {self.stop_reason}.")
        if self._returned:
            lines.append(f"Tool executions completed: {self._returned}.")
        return "\n".join(lines)


MAX_CLAIM_CHARS = 300
"""Characters at the beginning of an answer in which it claims that the work is done."""

_WORK = (
    "implemented|fixed|created|updated|added|removed|deleted|refactored|renamed|migrated|installed|committed|"
    "deployed|rewrote|rewritten|wrote|written|changed|applied|ran|tested"
)
_CLAIM = re.compile(
    rf"\A\W*(?:all )?(?:done|finished|completed?|implemented|fixed)\b"
    rf"|\bI(?:'ve| have)? (?:now |successfully |also )*(?:{_WORK})\b"
    r"|\b(?:has|have) been (?:successfully )?(?:implemented|fixed|created|updated|added|removed|completed)\b"
    r"|\ball (?:the )?tests (?:now )?pass",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:not|never|cannot|unable|could ?n[o']t|have ?n't|did ?n[o']t)\b", re.IGNORECASE)


def claims_work(answer: str) -> bool:
    """Return whether an answer begins with the claim that something was done or changed."""
    start = answer[:MAX_CLAIM_CHARS].replace("’", "'")
    return bool(_CLAIM.search(start)) and not _DENIAL.search(start)
