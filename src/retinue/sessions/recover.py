"""After a crash: ends the runs whose process is gone, and makes their records fit to be appended to.

Recovery looks only at the leases, so its cost is that of what broke.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from retinue.events import (
    AttemptStarted,
    Finalized,
    MessageEnded,
    RunEnded,
    RunQueued,
    RunStarted,
    Stamped,
    Text,
    ToolCalled,
    to_line,
)
from retinue.results import Actual, AnswerKind, Finalization, exit_code
from retinue.sessions import faults
from retinue.sessions.flusher import make_durable
from retinue.sessions.framing import Decoder, Header, Newer, header
from retinue.sessions.lease import Lease, adopt
from retinue.sessions.parts import Parts, backwards, session_parts
from retinue.sessions.paths import Layout, open_private
from retinue.sessions.reading import TORN, lines_backwards, read_header
from retinue.sessions.store import INTERRUPTED
from retinue.sessions.writer import Bounds, Line, Writer
from retinue.types import Refused, Usage

_PAUSE = 0.02
"""Seconds before a second look at leases that seemed held: others look at them for an instant, too."""
_TORN_BYTES = 2**20
"""Of a torn record, kept for whoever wants to look at it."""


class Interrupted(Struct, frozen=True):
    """The end that a run was missing."""

    ended: Stamped
    """Its `run_ended`."""
    vault: str | None
    """Where that is told, too."""


def recover(layout: Layout, bounds: Bounds, clock: Callable[[], float]) -> Iterator[Interrupted]:
    """Ends what nobody carries out any more; yields the end of each, once it is durable.

    Safe against a second process that does the same, and against being killed at any point: the end is written
    under the lease, and the lease goes only after it. What cannot be read now is left for the next time.
    """
    for path, lease in _orphans(layout.leases):
        try:
            ended = end_run(layout.sessions / path.name, bounds, clock())
        except (OSError, Refused):
            lease.abandon()
            continue
        lease.release()
        if ended:
            yield ended


def _orphans(leases: Path) -> Iterator[tuple[Path, Lease]]:
    """The leases that nobody holds, adopted."""
    held: list[Path] = []
    with contextlib.suppress(OSError):
        held = sorted(leases.iterdir())
    for pause in (0.0, _PAUSE):
        if held:
            time.sleep(pause)
        paths, held = held, []
        for path in paths:
            if lease := adopt(path):
                yield path, lease
            else:
                held.append(path)


def end_run(folder: Path, bounds: Bounds, now: float) -> Interrupted | None:
    """Ends the last run of the session in a folder, if it has not ended. The caller holds its lease.

    Raises:
        OSError: it cannot be read now.
        Refused: `storage`: it cannot be written now, or is of a newer format.
    """
    head = read_header(session_parts(folder))
    if head is None:
        return None
    if isinstance(head, Newer):
        raise Refused(faults.too_new(folder.name, head))
    writer, ended = reopen(folder, head, bounds, now)
    writer.close()
    return ended


def reopen(folder: Path, head: Header, bounds: Bounds, now: float) -> tuple[Writer, Interrupted | None]:
    """A writer that goes on with a record, and the end that its last run was missing, durably written by now.

    A torn tail is cut off first. The caller holds the session's lease.

    Raises:
        OSError: the record cannot be repaired now.
        Refused: `storage`.
    """
    writer = Writer(folder, head, bounds, _mended_size(folder))
    try:
        ended = _interruption(session_parts(folder), head, now)
        if ended:
            _write_durably(writer, head, ended.ended)
    except BaseException:
        writer.close()
        raise
    return writer, ended


# -- the torn tail ---------------------------------------------------------------------------------


def _mended_size(folder: Path) -> int | None:
    """Repairs the end of the newest part; returns its size, None if rotation had not made it yet."""
    path = session_parts(folder).newest
    try:
        descriptor = open_private(path, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        start, tail = next(iter(backwards(file)))
        if not tail:
            return start
        if Decoder().event(tail) or isinstance(header(tail), Header):
            # Only the newline is missing.
            os.write(descriptor, b"\n")
            return start + len(tail) + 1
        _keep(folder, tail)
        os.ftruncate(descriptor, start)
        return start


def _keep(folder: Path, torn: bytes) -> None:
    with contextlib.suppress(OSError):
        descriptor = open_private(folder / TORN, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, torn[:_TORN_BYTES] + b"\n")
        finally:
            os.close(descriptor)


# -- the missing end -------------------------------------------------------------------------------


def _write_durably(writer: Writer, head: Header, ended: Stamped) -> None:
    writer.write(Line(to_line(ended), ended.seq, must=True))
    if work := writer.unsynced():
        make_durable([work])
        writer.synced(work)
    if writer.fault:
        error = writer.error
        raise Refused(faults.not_continued(head.id, error, writer.path) if error else writer.fault)


def _interruption(parts: Parts, head: Header, now: float) -> Interrupted | None:
    """The end that the last run is missing, with what it had; None if it has ended or there is none."""
    found = _Unfinished()
    for stamped in _newest_first(parts, head):
        if found.takes_all(stamped):
            break
    return found.ended(now)


def _newest_first(parts: Parts, head: Header) -> Iterator[Stamped]:
    decoder = Decoder(head.id)
    for _, line in lines_backwards(parts, head):
        yield from reversed(list(decoder.events(line)))


class _Unfinished:
    """Gathers what a run had, reading it from its end."""

    def __init__(self) -> None:
        self._last: Stamped | None = None
        self._has_ended = False
        self._started: float | None = None
        self._texts: list[str] = []
        self._texts_done = False
        self._usage = Usage()
        self._tools: Counter[str] = Counter()
        self._finalized: Finalization | None = None
        self._vault: str | None = None

    def takes_all(self, stamped: Stamped) -> bool:
        """Takes the event before those it has; True when there are no more of the run."""
        last = self._last = self._last or stamped
        if stamped.origin.run != last.origin.run:
            return True
        match stamped.event:
            case RunEnded():
                self._has_ended = True
            case RunQueued(vault=vault):
                self._vault = vault
            case RunStarted():
                self._started = stamped.time
            case Text(text) if text.strip() and not self._texts_done:
                self._texts.append(text)
            case MessageEnded(turn=turn):
                self._usage += turn
                self._texts_done = bool(self._texts)
            case ToolCalled(name=name):
                self._tools[name] += 1
            case AttemptStarted():
                self._texts_done = bool(self._texts)
            case Finalized(finalization):
                self._finalized = self._finalized or finalization
        return isinstance(stamped.event, RunEnded | RunQueued)

    def ended(self, now: float) -> Interrupted | None:
        last = self._last
        if last is None or self._has_ended:
            return None
        text = "\n\n".join(reversed(self._texts))
        event = RunEnded(
            text=text,
            answer=AnswerKind.PARTIAL if text else AnswerKind.NONE,
            failure=INTERRUPTED,
            exit_code=exit_code(INTERRUPTED),
            usage=self._usage,
            elapsed=0.0 if self._started is None else max(0.0, last.time - self._started),
            finalized=self._finalized,
            actual=Actual(tools_used=dict(reversed(self._tools.items()))),
        )
        return Interrupted(Stamped(last.origin, last.seq + 1, now, event), self._vault)
