"""The views of events that a command shows while it runs, and the plain lines of notes among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TextIO, runtime_checkable

import anyio
import anyio.lowlevel
import anyio.to_thread

from retinue.model.event_codec import EventRecord
from retinue.model.events import Notice, RunQueued
from retinue.model.providers import join_model
from retinue.output.untrusted_text import strip_control_characters
from retinue.runtime.event_bus import SubscriberLaggedError

if TYPE_CHECKING:
    from retinue.tui.answer_stream import AnswerPrinter

MIN_UPDATE_INTERVAL = 0.1
"""Seconds between two frames."""
CHECKPOINT_EVERY = 500
"""Events handled before other tasks get their turn."""
CLOSE_TIMEOUT = 2.0
"""Seconds for drawing the last state: the answer is printed after it."""
NoteSource = Callable[[EventRecord], Iterable[str]]
"""Returns the notes about an event; most events have none."""
LAGGED_MESSAGE = (
    "Some events were not shown, because too many occurred at once; the runs continue. All events are stored: "
    "retinue events"
)


class PendingEvents(Protocol):
    """A source of events, such as a subscription to the event bus."""

    def drain(self) -> tuple[EventRecord, ...]:
        """Return the events that have arrived, without waiting.

        Raises:
            SubscriberLaggedError: events were dropped.
        """


class EventView(Protocol):
    """A view of events. `draw` and `close` are called in a thread."""

    wants_deltas: bool
    """Whether the view shows text while it is streamed."""

    def add_event(self, record: EventRecord) -> None: ...

    def show_message(self, text: str) -> None:
        """Show a message of the program with the next frame."""

    def draw(self) -> None: ...

    def close(self) -> None:
        """Draw the last state, to stay."""

    def restore(self) -> None:
        """Make the terminal usable again at any moment, for an exit without `close`."""


@runtime_checkable
class KeyHandler(Protocol):
    """A view that reacts to keys."""

    def press(self, key: str) -> None: ...


async def run_view(source: PendingEvents, view: EventView) -> None:
    """Show the events of the source until cancelled, then the last state.

    An exception of the view loses one event or one frame, never more: no run may fail because of its view. Returns
    early if the source lagged, after a message about that.
    """
    try:
        while await _drain_into(source, view):
            await _run_in_thread(view.draw)
            await anyio.sleep(MIN_UPDATE_INTERVAL)
        await _close_view(view)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _drain_into(source, view)
            await _close_view(view)
        raise


async def _drain_into(source: PendingEvents, view: EventView) -> bool:
    """Pass pending events to the view; return False if events were dropped."""
    try:
        pending = source.drain()
    except SubscriberLaggedError:
        view.show_message(LAGGED_MESSAGE)
        return False
    for number, record in enumerate(pending, 1):
        with suppress(Exception):
            view.add_event(record)
        if number % CHECKPOINT_EVERY == 0:
            await anyio.lowlevel.checkpoint()
    return True


async def _close_view(view: EventView) -> None:
    is_closed = False
    with anyio.move_on_after(CLOSE_TIMEOUT):
        is_closed = await _run_in_thread(view.close)
    if not is_closed:
        view.restore()


async def _run_in_thread(work: Callable[[], None]) -> bool:
    """Run the work in a thread, abandoned if cancelled, and return whether it succeeded."""
    with suppress(Exception):
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return True
    return False


def is_screen(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return whether frames can be drawn on the stream."""
    return stream is not None and stream.isatty() and environ.get("TERM", "dumb") not in {"dumb", "unknown", ""}


class EngineNote:
    """Notes once which engine `auto` chose, with the model of its first run."""

    def __init__(self, describe: Mapping[str, Callable[[str | None], str]]) -> None:
        """Take the function that describes a run of each engine by its model; none if the user chose the engine."""
        self._describe = dict(describe)

    def __call__(self, record: EventRecord) -> Iterator[str]:
        event = record.event
        if isinstance(event, RunQueued) and (describe := self._describe.pop(event.engine, None)):
            about = strip_control_characters(describe(join_model(event.provider, event.model))).replace("\n", " ")
            yield f"engine: {event.engine} ({about})"


def storage_losses(record: EventRecord) -> Iterator[str]:
    """Yield the message of a storage notice: data is lost, so no option hides it."""
    if isinstance(record.event, Notice) and record.event.code == "storage":
        yield record.event.message


class LinesView:
    """The notes of its sources as plain lines, beside an answer that is printed while it is written."""

    def __init__(self, stream: TextIO | None, *note_sources: NoteSource, answer: AnswerPrinter | None = None) -> None:
        self._stream = stream
        self._note_sources = note_sources
        self._answer = answer
        self.wants_deltas = answer is not None
        self._pending: list[str] = []

    def add_event(self, record: EventRecord) -> None:
        if self._answer:
            self._answer.observe(record)
        for note_source in self._note_sources:
            self._pending += note_source(record)

    def show_message(self, text: str) -> None:
        self._pending.append(text)

    def draw(self) -> None:
        lines, self._pending = self._pending, []
        if lines and self._stream is not None:
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()
        if self._answer:
            self._answer.print_pending()

    def close(self) -> None:
        self.draw()

    def restore(self) -> None:
        """Lines leave nothing to restore."""
