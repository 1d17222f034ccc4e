"""Begins a run: takes the session's lease and opens its record, new or to be continued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from retinue.events import Stamped
from retinue.sessions import faults
from retinue.sessions.facts import read_facts
from retinue.sessions.framing import Header, Newer
from retinue.sessions.lease import Lease, Owner, busy, read_owner, take
from retinue.sessions.paths import Layout
from retinue.sessions.reading import read_header, session_parts
from retinue.sessions.repair import end_unfinished, reopen
from retinue.sessions.summary import Facts
from retinue.sessions.writer import Bounds, Writer
from retinue.types import Code, Failure, Refused


class Opened(Struct, frozen=True, kw_only=True):
    """A session ready for one more run."""

    lease: Lease | None
    writer: Writer
    number: int
    """Of the run, from 1."""
    interrupted: Stamped | None = None
    """The end that the run before was missing."""


def create(layout: Layout, bounds: Bounds, owner: Owner) -> Opened:
    """A new session. Where it cannot be written, the writer's fault says so.

    Raises:
        Refused: `session_busy`.
    """
    path = layout.lease(owner.session)
    try:
        lease = take(path, owner)
    except OSError:
        # Nobody else knows the id: without a lease only the news of a crash is less exact.
        lease = None
    else:
        if lease is None:
            raise Refused(busy(owner.session, read_owner(path)))
    writer = Writer(layout.session(owner.session), Header(id=owner.session, created=owner.started), bounds)
    writer.open()
    return Opened(lease=lease, writer=writer, number=1)


def resume(layout: Layout, bounds: Bounds, owner: Owner, clock: Callable[[], float]) -> Opened | None:
    """A session to be continued, mended where its last owner died; None while another holds its lease.

    Raises:
        Refused: `session_not_found` or `storage`.
    """
    folder = layout.session(owner.session)
    try:
        _known(folder, owner.session)
        lease = take(layout.lease(owner.session), owner)
        if lease is None:
            return None
        try:
            return _mended(layout, bounds, owner.session, lease, clock())
        except BaseException:
            lease.abandon()
            raise
    except OSError as error:
        raise Refused(faults.unreadable(owner.session, error)) from error


def _mended(layout: Layout, bounds: Bounds, session: str, lease: Lease, now: float) -> Opened:
    folder = layout.session(session)
    # Looked at again under the lease: it may have been pruned since.
    head = _known(folder, session)
    facts = read_facts(layout, folder)
    if not isinstance(facts, Facts):
        raise Refused(_not_found(session, folder))
    writer = reopen(folder, head, bounds)
    try:
        interrupted = end_unfinished(writer, folder, head, now)
    except BaseException:
        writer.close()
        raise
    return Opened(lease=lease, writer=writer, number=facts.number + 1, interrupted=interrupted)


def _known(folder: Path, session: str) -> Header:
    head = None if folder.is_symlink() else read_header(session_parts(folder))
    if isinstance(head, Newer):
        raise Refused(faults.too_new(session, head))
    if head is None or head.id != session:
        raise Refused(_not_found(session, folder))
    return head


def _not_found(session: str, folder: Path) -> Failure:
    message = (
        f"Session {session} was not found in {folder.parent}. It may have been pruned, or the id is not right: "
        f"`retinue sessions list` shows those that exist."
    )
    return Failure(Code.SESSION_NOT_FOUND, message, detail={"session": session})
