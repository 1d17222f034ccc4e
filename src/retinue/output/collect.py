"""Folds the events of one attempt into what its answer needs. Pure, and bounded in memory whatever the child does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from retinue.events import (
    CONTINUED,
    Event,
    Finalized,
    MessageEnded,
    NativeSession,
    Notice,
    OutputCounted,
    ProcessEnded,
    Steered,
    StopReason,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.output.bounded import MESSAGE_CHARS, Draft, Items
from retinue.output.provider_errors import classify
from retinue.results import AnswerKind, Finalization, ProcessEnd
from retinue.types import Code, Failure, ToolUse, Usage

TOOL_NAMES = 200
"""Told apart; all further ones a child may invent count as one."""
NOTICES = 100
ERROR_CHARS = 2000
"""Of a provider's words in a failure's message."""

OPENING = (TextDelta, ThinkingDelta, Thinking, Text, ToolCalled, Steered)
"""Events after which a message is still to end: of its own, or what the agent was told and has to answer."""
WORK = (*OPENING, ToolDelta, ToolReturned, MessageEnded, Finalized)
"""Events in which the agent did something."""


class Answer(NamedTuple):
    text: str
    kind: AnswerKind


class _Said(NamedTuple):
    """A message that ended, as far as it may be the answer."""

    text: str
    stop_reason: StopReason
    model: str | None


class Collector:
    """What one attempt amounts to so far."""

    def __init__(self, fallback_models: Sequence[str] = ()) -> None:
        """`fallback_models` are those the agent has: others than these may be advised."""
        self._fallback_models = fallback_models
        self.native_session: str | None = None
        self.process: ProcessEnd | None = None
        self.finalized: Finalization | None = None
        """The last valid one."""
        self.stop_reason: StopReason | None = None
        """Of the last message."""
        self.provider_error: str | None = None
        """The provider's words, if the last message ended with an error."""
        self.dropped_bytes = 0
        """Not kept: lines too long for the engine, and text beyond what is held here."""
        self._usage = Usage()
        self._model: str | None = None
        self._said: _Said | None = None
        self._goes_on = False
        """Whether the message to come goes on where the last one was cut off."""
        self._draft = Draft()
        self._writing = False
        self._items = Items()
        self._tools: dict[str, int] = {}
        self._returned = 0
        self._notices: list[str] = []
        self._seen = False
        self._worked: type[Event] | None = None

    def observe(self, event: Event) -> None:
        """Takes an event into account; a delta costs the same however long the text has become."""
        self._seen = True
        if isinstance(event, TextDelta):  # by far the most frequent
            self._worked, self._writing = TextDelta, True
            self.dropped_bytes += self._draft.delta(event.text)
        elif isinstance(event, WORK):
            self._worked = type(event)
            self._writing = isinstance(event, OPENING)
            self._observe_work(event)
        else:
            self._observe_fact(event)

    def _observe_work(self, event: Event) -> None:
        match event:
            case Text(text):
                self.dropped_bytes += self._draft.block(text)
                if text.strip():
                    self._items.add(text)
            case ToolCalled():
                self._called(event)
            case ToolReturned():
                self._returned += 1
            case MessageEnded():
                self._ended(event)
            case Finalized(finalization) if finalization.is_valid:
                self.finalized = finalization

    def _observe_fact(self, event: Event) -> None:
        match event:
            case OutputCounted(dropped=dropped):
                self.dropped_bytes += dropped
            case Notice(code, message):
                self._goes_on = self._goes_on or code == CONTINUED
                if message not in self._notices:
                    self._notices = [*self._notices[1 - NOTICES :], message]
            case ProcessEnded(end):
                self.process = end
            case NativeSession(session):
                self.native_session = session

    @property
    def usage(self) -> Usage:
        """Summed over the assistant messages; each is a turn, unless its provider failed."""
        return self._usage

    @property
    def tools_used(self) -> Mapping[str, int]:
        """How often each tool was called."""
        return dict(self._tools)

    @property
    def items(self) -> tuple[str | ToolUse, ...]:
        """What a screen shows: texts and tool calls in the order they came, the newest of them."""
        return self._items.all()

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self._notices)

    @property
    def model(self) -> str | None:
        """The model that gave the answer, else the last one heard of."""
        return (self._said and self._said.model) or self._model

    @property
    def complete(self) -> bool:
        """Whether a good answer stands and nothing follows it: whatever ends the attempt now is its echo."""
        if self.finalized is not None:
            return True
        return self.stop_reason == "stop" and not self._writing and self.failure() is None

    @property
    def ended_by_itself(self) -> bool:
        """Whether the agent came to its own end, whatever it said last: nothing was cut off and no process failed."""
        end = self.process
        return self.stop_reason in ("stop", "tool_use") and not (end and (end.code or end.signal))

    def answer(self) -> Answer:
        """The best there is: the final answer, a partial text, a diagnosis; nothing if nothing was observed."""
        if self.finalized and (text := self.finalized.result or self.finalized.error):
            return Answer(text, AnswerKind.FINAL)
        if self._said and self._said.stop_reason == "stop":
            return Answer(self._said.text, AnswerKind.FINAL)
        if text := self._written() or (self._said.text if self._said else ""):
            return Answer(text, AnswerKind.PARTIAL)
        return Answer(self._diagnosis(), AnswerKind.DIAGNOSIS) if self._seen else Answer("", AnswerKind.NONE)

    def failure(self) -> Failure | None:
        """Why the attempt failed, if the engine returned normally; None: the agent ended with a good answer."""
        if self.finalized:
            return None
        match self.stop_reason:
            case "error":
                return self._provider_failure()
            case "aborted":
                return Failure(Code.ABORTED, f"The agent's last turn was aborted. {self._kept} {AGAIN}", "aborted")
            case "length":
                return Failure(Code.OUTPUT_LIMIT, f"{TOO_LONG} {self._kept} {SHORTER}", "length")
            case "stop" if self.answer().kind is AnswerKind.FINAL:
                return None
            case "stop":
                return Failure(
                    Code.ENGINE, f"The agent's last message is empty. {self._kept} {AGAIN}", "empty_answer"
                )
            case _:
                return self._unfinished()

    def _called(self, event: ToolCalled) -> None:
        name = event.name if event.name in self._tools or len(self._tools) < TOOL_NAMES else "(others)"
        self._tools[name] = self._tools.get(name, 0) + 1
        self._items.add(ToolUse(event.call, event.name, event.args))

    def _ended(self, event: MessageEnded) -> None:
        self._usage += event.turn
        self._model = event.model or self._model
        self.stop_reason = event.stop_reason
        self.provider_error = event.error if event.stop_reason == "error" else None
        text = self._draft.text() if event.stop_reason == "tool_use" else self._written()
        self.dropped_bytes += max(0, len(text) - MESSAGE_CHARS)
        text, self._draft, self._goes_on = text[:MESSAGE_CHARS], Draft(), False
        # Text before a tool call is an answer only as long as there is no other.
        if text and (event.stop_reason != "tool_use" or self._said is None or self._said.stop_reason == "tool_use"):
            self._said = _Said(text, event.stop_reason, event.model)

    def _written(self) -> str:
        """The text of the message at hand, after the one that it goes on from."""
        text = self._draft.text()
        if text and self._goes_on and self._said and self._said.stop_reason == "length":
            return self._said.text + text
        return text

    def _unfinished(self) -> Failure:
        """Return the failure of an agent that ended without a final message, by how its process ended."""
        end = self.process or ProcessEnd()
        if end.signal:
            message = f"The agent's process {end.describe()}. {self._kept} {AGAIN}{end.quote_stderr()}"
            return Failure(Code.SIGNALLED, message, "child_signal", {"signal": end.signal})
        if end.code:
            message = f"{NO_FINAL} Its process {end.describe()}. {self._kept} {AGAIN}{end.quote_stderr()}"
            return Failure(Code.ENGINE, message, "no_final_message", {"exitCode": end.code})
        return Failure(Code.ENGINE, f"{NO_FINAL} {self._kept} {AGAIN}{end.quote_stderr()}", "no_final_message")

    def _provider_failure(self) -> Failure:
        words = (self.provider_error or "no reason given").strip()[:ERROR_CHARS]
        reason = classify(self.provider_error)
        known = f" other than {', '.join(self._fallback_models)}" if self._fallback_models else ""
        advice = ADVICE[reason].format(models=f"fallback_models{known}")
        return Failure(Code.PROVIDER, f"The model provider failed: {words}\n{self._kept} {advice}", reason)

    @property
    def _kept(self) -> str:
        return KEPT_TEXT if self.answer().kind in (AnswerKind.FINAL, AnswerKind.PARTIAL) else KEPT_SESSION

    def _diagnosis(self) -> str:
        if self._worked is None:
            return "The subagent ended before it did anything: it wrote no message and called no tool."
        lines = [
            "Subagent produced JSONL events but no final assistant text could be extracted.",
            f"Last event type: {self._worked.__struct_config__.tag}.",
        ]
        if self.stop_reason:
            lines.append(f"Last assistant stop reason: {self.stop_reason}.")
        if self._returned:
            lines.append(f"Tool executions completed: {self._returned}.")
        return "\n".join(lines)


# -- what failures say: what was kept, what to do next -----------------------------------------------

KEPT_TEXT = "What it wrote is kept."
KEPT_SESSION = "It left no text; its session keeps what it did."
AGAIN = "Run the task again, or resume the session."
TOO_LONG = "The model reached its output limit before the answer was complete."
SHORTER = "Ask for a shorter answer, split the task, or use a model with a larger limit."
NO_FINAL = "The agent ended without a final message."

ADVICE: Mapping[str, str] = {
    "rate_limit": "Try again later, or give the agent {models}.",
    "quota": "Check the provider's plan and billing, or give the agent {models}.",
    "auth": "Check the provider's key or login.",
    "model_unavailable": "Check the model's name and your access to it, or give the agent {models}.",
    "network": "Check the connection and try again.",
    "overloaded": "Try again later, or give the agent {models}.",
    "context_overflow": "Split the task, or use a model with a larger context.",
    "bad_request": "The provider does not accept this request: sending it again does not help. Check the task, its "
    "files, and the agent's model and settings.",
    "server_error": "Try again later, or give the agent {models}.",
    "tool": "Look at what the tool reported and run the task again.",
    "other": "Run the task again, or use another model.",
}
