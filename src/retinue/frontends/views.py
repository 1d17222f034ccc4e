"""Views of runs while they go on: how they are kept up to date, and the plain ones.

A view looks at the bus at its own pace and writes in a thread, so neither a slow reader nor a fault of the drawing
ever slows or ends a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TextIO

import anyio
import anyio.lowlevel
import anyio.to_thread

from retinue.bus import Watcher
from retinue.events import RunQueued, Stamped

PACE = 0.1
"""Seconds between two looks: ten pictures a second are enough for any eye."""
BREATH = 500
"""Events taken in before others have their turn."""


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


async def show(watcher: Watcher, view: View) -> None:
    """Shows what the watcher sees until it is cancelled, and then the last state.

    Returns early if the view fails: nobody's work depends on being looked at.
    """
    try:
        while True:
            await _take(watcher, view)
            await anyio.to_thread.run_sync(view.draw)
            await anyio.sleep(PACE)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _close(watcher, view)
        raise
    except Exception:  # noqa: BLE001 - whatever is wrong with the drawing, the runs go on
        view.restore()


async def _take(watcher: Watcher, view: View) -> None:
    for number, stamped in enumerate(watcher.waiting(), 1):
        view.take(stamped)
        if number % BREATH == 0:
            await anyio.lowlevel.checkpoint()


async def _close(watcher: Watcher, view: View) -> None:
    try:
        await _take(watcher, view)
        await anyio.to_thread.run_sync(view.close)
    except Exception:  # noqa: BLE001 - the same: there is a result to be shown yet
        view.restore()


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


class LinesView:
    """Lines, as what happens makes someone say them."""

    wants_deltas = False

    def __init__(self, stream: TextIO | None, *tellers: Callable[[Stamped], Iterable[str]]) -> None:
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
