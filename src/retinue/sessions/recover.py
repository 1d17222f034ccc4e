"""After a crash: ends the runs whose process is gone. Looks only at the leases, so its cost is that of what broke."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from retinue.events import Stamped
from retinue.sessions import faults
from retinue.sessions.framing import Newer
from retinue.sessions.lease import Lease, adopt
from retinue.sessions.paths import Layout
from retinue.sessions.reading import read_header, session_parts
from retinue.sessions.repair import end_unfinished, reopen
from retinue.sessions.writer import Bounds
from retinue.types import Refused

_PAUSE = 0.02
"""Seconds before a second look at leases that seemed held: others look at them for an instant, too."""


def recover(layout: Layout, bounds: Bounds, clock: Callable[[], float]) -> Iterator[Stamped]:
    """Ends what nobody carries out any more; yields the `run_ended` of each, once it is durable.

    Safe against a second process that does the same, and against being killed at any point: the end is written
    under the lease, and the lease goes only after it.
    """
    for path, lease in _orphans(layout.leases):
        try:
            ended = end_run(layout.sessions / path.name, bounds, clock())
        except (OSError, Refused):
            # Left as it is for the next start, or for the newer program that wrote it.
            lease.abandon()
            continue
        lease.release()
        if ended:
            yield ended


def _orphans(leases: Path) -> Iterator[tuple[Path, Lease]]:
    """The leases that nobody holds, adopted."""
    held = sorted(leases.iterdir()) if leases.is_dir() else []
    for pause in (0.0, _PAUSE):
        if held:
            time.sleep(pause)
        paths, held = held, []
        for path in paths:
            if lease := adopt(path):
                yield path, lease
            else:
                held.append(path)


def end_run(folder: Path, bounds: Bounds, now: float) -> Stamped | None:
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
    writer = reopen(folder, head, bounds)
    try:
        return end_unfinished(writer, folder, head, now)
    finally:
        writer.close()
