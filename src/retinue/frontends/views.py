"""Views of runs while they go on: how they are kept up to date, and the plain ones.

A view looks at the bus at its own pace and writes in a thread, so neither a slow reader nor a fault of the drawing
ever slows or ends a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol, TextIO

import anyio
import anyio.lowlevel
import anyio.to_thread

from retinue.bus import Lagged
from retinue.events import Notice, RunQueued, Stamped

PACE = 0.1
"""Seconds between two looks: ten pictures a second are enough for any eye."""
BREATH = 500
"""Events taken in before others have their turn."""
CLOSING = 2.0
"""Seconds the last state may take to be drawn: the answer waits for it."""
Teller = Callable[[Stamped], Iterable[str]]
"""Makes lines of an event; none of one that is not its matter."""

LAGGED = "More happened than could be shown; the runs go on. All of it is kept: retinue events"


class Source(Protocol):
    """Where events come from."""

    def waiting(self) -> tuple[Stamped, ...]:
        """Takes what has arrived, without waiting.

        Raises:
            Lagged: not all of it could be kept.
        """


class View(Protocol):
    """What is done with events. `draw` and `close` are called in a thread."""

    wants_deltas: bool
    """Whether text is shown while it is being written."""

    def take(self, stamped: Stamped) -> None: ...

    def say(self, text: str) -> None:
        """Shows a line of the program's own with the next drawing."""

    def draw(self) -> None: ...

    def close(self) -> None:
        """Draws the last state, to stay."""

    def restore(self) -> None:
        """Leaves the terminal usable; for an end without `close`, at any moment."""


async def show(source: Source, view: View) -> None:
    """Shows what comes from the source until it is cancelled, and then the last state.

    A fault costs one event or one picture, never the rest: nobody's work depends on being looked at. Returns early if
    the source was cut off, once that is said.
    """
    try:
        while await _took(source, view):
            await _done(view.draw)
            await anyio.sleep(PACE)
        await _close(view)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _took(source, view)
            await _close(view)
        raise


async def _took(source: Source, view: View) -> bool:
    """Hands on what has happened; false if not all of it could be seen."""
    try:
        news = source.waiting()
    except Lagged:
        view.say(LAGGED)
        return False
    for number, stamped in enumerate(news, 1):
        with suppress(Exception):
            view.take(stamped)
        if number % BREATH == 0:
            await anyio.lowlevel.checkpoint()
    return True


async def _close(view: View) -> None:
    is_closed = False
    with anyio.move_on_after(CLOSING):
        is_closed = await _done(view.close)
    if not is_closed:
        view.restore()


async def _done(work: Callable[[], None]) -> bool:
    """Whether it could be done. In a thread, and left behind there if it waits for a reader who does not read."""
    with suppress(Exception):
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        return True
    return False


def is_screen(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether pictures can be drawn on a stream."""
    return stream is not None and stream.isatty() and environ.get("TERM", "dumb") not in {"dumb", "unknown", ""}


class EngineNote:
    """Says once which engine `auto` chose."""

    def __init__(self, about: Mapping[str, str]) -> None:
        """Takes what there is to say of each engine; nothing, where the choice was the user's own."""
        self._about = dict(about)

    def __call__(self, stamped: Stamped) -> Iterator[str]:
        if isinstance(stamped.event, RunQueued) and (about := self._about.pop(stamped.event.engine, "")):
            yield f"engine: {stamped.event.engine} ({about})"


def losses(stamped: Stamped) -> Iterator[str]:
    """Says what of a run is not being stored, and what to do about it: something is lost, so nothing silences it."""
    if isinstance(stamped.event, Notice) and stamped.event.code == "storage":
        yield stamped.event.message


class LinesView:
    """Lines, as what happens makes someone say them."""

    wants_deltas = False

    def __init__(self, stream: TextIO | None, *tellers: Teller) -> None:
        self._stream = stream
        self._tellers = tellers
        self._waiting: list[str] = []

    def take(self, stamped: Stamped) -> None:
        for tell in self._tellers:
            self._waiting += tell(stamped)

    def say(self, text: str) -> None:
        self._waiting.append(text)

    def draw(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting and self._stream is not None:
            self._stream.write("".join(f"{line}\n" for line in waiting))
            self._stream.flush()

    def close(self) -> None:
        self.draw()

    def restore(self) -> None:
        """Lines leave nothing to restore."""
