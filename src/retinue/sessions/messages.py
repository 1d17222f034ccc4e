"""The messages of a session, rebuilt from its events for an engine that continues it."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.model.event_codec import EventRecord
from retinue.model.events import (
    MessageEnded,
    Notice,
    RunEnded,
    RunQueued,
    SteeringDelivered,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import Compaction, Message, ToolUse, apply_compaction
from retinue.sessions.store import SessionStore

NO_RESULT_TEXT = "(no result: the run ended before this tool returned)"
TASK_UNREADABLE = "(the task could not be read)"


async def load_messages(store: SessionStore, session: str) -> tuple[Message, ...]:
    """Return the messages of all runs of a session.

    Raises:
        RefusedError: `storage`.
    """
    messages, _ = await load_session(store, session)
    return messages


async def load_session(store: SessionStore, session: str) -> tuple[tuple[Message, ...], RunQueued | None]:
    """Return the messages of all runs of a session, and what its last run was planned with.

    Raises:
        RefusedError: `storage`.
    """
    builder, last = MessageBuilder(), None
    async for record in store.events(session):
        builder.add(record)
        if isinstance(record.event, RunQueued):
            last = record.event
    return builder.messages(), last


class MessageBuilder:
    """Builds messages from events, in the form that every provider accepts.

    The first message is the user's, messages of user and assistant alternate, and every tool call has one result,
    directly after the message that made the call.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._texts: list[str] = []
        self._calls: dict[str, ToolUse] = {}
        """Calls of the message that is not complete yet."""
        self._open: dict[str, None] = {}
        """Calls of the last assistant message without a result yet."""
        self._task = ""
        """The task of the run whose events are added."""

    def add(self, record: EventRecord) -> None:
        match record.event:
            case RunQueued(task=task):
                self._close()
                self._task = task
                self._append(Message(role="user", text=task))
            case SteeringDelivered(text):
                self._close()
                self._append(Message(role="user", text=text))
            case Text(text) if text.strip():
                self._texts.append(text)
            case ToolCalled(call, name, args) if call not in self._open:
                self._calls[call] = ToolUse(call, name, args)
            case ToolReturned(call, _, text, is_error):
                self._add_tool_result(call, text, is_error=is_error)
            case MessageEnded(stop_reason="error"):
                # Cut off: the next message is another attempt at the same one.
                self._texts.clear()
                self._calls.clear()
            case MessageEnded():
                self._flush_assistant()
            case Notice(compaction=Compaction() as compaction):
                self._close()
                self._messages = apply_compaction(self._messages, self._task, compaction)
            case RunEnded() as ended:
                self._end_run(ended)
            case _:
                pass

    def _end_run(self, event: RunEnded) -> None:
        self._close()
        is_answer = event.text and event.answer.is_text
        if is_answer and self._last_role in {None, "user"}:
            # The events in between have been pruned, or none of them completed a message.
            self._append(Message(role="assistant", text=event.text))

    def messages(self) -> tuple[Message, ...]:
        """Return all messages; a call without a result gets an error result."""
        self._close()
        return tuple(self._messages)

    @property
    def _last_role(self) -> str | None:
        return self._messages[-1].role if self._messages else None

    def _append(self, message: Message) -> None:
        """Add a message, joined with the last one if that has the same role."""
        if self._last_role == message.role:
            last = self._messages.pop()
            text = "\n\n".join(filter(None, (last.text, message.text)))
            message = replace(last, text=text, calls=last.calls + message.calls)
        elif not self._messages and message.role == "assistant":
            self._messages.append(Message(role="user", text=TASK_UNREADABLE))
        self._messages.append(message)

    def _flush_assistant(self) -> None:
        """Add the texts and calls since the last message as one assistant message."""
        if not self._texts and not self._calls:
            return
        if self._last_role == "tool":
            self._answer_open_calls()
        self._append(Message(role="assistant", text="\n\n".join(self._texts), calls=tuple(self._calls.values())))
        self._open.update(dict.fromkeys(self._calls))
        self._texts, self._calls = [], {}

    def _add_tool_result(self, call: str, text: str, *, is_error: bool) -> None:
        if call in self._calls:
            self._flush_assistant()
        if call in self._open:
            del self._open[call]
            self._messages.append(Message(role="tool", text=text, call=call, is_error=is_error))

    def _answer_open_calls(self) -> None:
        for call in list(self._open):
            self._add_tool_result(call, NO_RESULT_TEXT, is_error=True)

    def _close(self) -> None:
        self._flush_assistant()
        self._answer_open_calls()
