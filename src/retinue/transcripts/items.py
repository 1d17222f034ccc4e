"""Walk the events of a session once, for every transcript format: each event is one item that a format renders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from retinue.model.event_codec import EventRecord
from retinue.model.events import (
    DeadlineExtended,
    Event,
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    SteeringDelivered,
    Text,
    Thinking,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Finalization
from retinue.model.runs import ToolArguments

MAX_ARGS_CHARS = 120
"""Characters of a tool call's arguments in a transcript."""
MAX_RESULT_CHARS = 500
"""Characters of a tool's result in a transcript."""


class TranscriptRenderer:
    """Base of the transcript formats: a format overrides the methods of the items it shows.

    Items are rendered while the events are read, so a session of any size is never in memory as a whole.
    """

    def render(self, record: EventRecord) -> Iterator[str]:
        """Yield the entries of one event; none of an event that the format leaves out."""
        event = record.event
        if isinstance(event, RunQueued):
            yield from self.run_queued(event, record)
        elif isinstance(event, RunEnded):
            yield from self.run_ended(event)
        elif (entry := self._render_item(event)) is not None:
            yield entry

    def _render_item(self, event: Event) -> str | None:
        match event:
            case Text(text):
                return self.text(text) if text.strip() else None
            case Thinking(text):
                return self.thinking(text) if text.strip() else None
            case SteeringDelivered(text):
                return self.steering(text)
            case ToolCalled(_, name, args):
                return self.tool_call(name, args)
            case ToolReturned(_, name, text, is_error):
                return self.tool_result(name, text, is_error)
            case MessageEnded(error=error):
                return self.message_ended(error)
            case Finalized(finalization):
                return self.finalization(finalization)
            case ModelChanged() | Notice() | DeadlineExtended():
                return self.notice(event)
            case _:
                return None

    # The items of a run, in no order; by default an item is left out.

    def run_queued(self, event: RunQueued, record: EventRecord) -> Iterable[str]:
        return ()

    def run_ended(self, event: RunEnded) -> Iterable[str]:
        return ()

    def text(self, text: str) -> str | None: ...

    def thinking(self, text: str) -> str | None: ...

    def steering(self, text: str) -> str | None: ...

    def tool_call(self, name: str, args: ToolArguments) -> str | None: ...

    def tool_result(self, name: str, text: str, is_error: bool) -> str | None: ...

    def message_ended(self, error: str | None) -> str | None: ...

    def finalization(self, finalization: Finalization) -> str | None: ...

    def notice(self, event: ModelChanged | Notice | DeadlineExtended) -> str | None: ...


def call_line(name: str, args: ToolArguments) -> str:
    """Return a tool call as one line; lone surrogates, which no output accepts, are escaped."""
    text = json.dumps(args, ensure_ascii=False, separators=(",", ":"), default=repr)[:MAX_ARGS_CHARS]
    return f"→ {name}: {text}".encode("utf-8", "backslashreplace").decode()
