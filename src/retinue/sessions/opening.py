"""Begins a run: takes the session's lease and opens its record, new or to be continued."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from retinue.sessions import faults
from retinue.sessions.framing import Header, Newer
from retinue.sessions.lease import Lease, take
from retinue.sessions.owner import Owner
from retinue.sessions.parts import session_parts
from retinue.sessions.paths import Layout
from retinue.sessions.reading import read_header
from retinue.sessions.recover import Interrupted, reopen
from retinue.sessions.summary import Facts, read_facts
from retinue.sessions.writer import Bounds, Writer
from retinue.types import Code, Failure, Refused


class Opened(Struct, frozen=True, kw_only=True):
    """A session ready for one more run."""

    lease: Lease | None
    writer: Writer
    number: int
    """Of the run, from 1."""
    interrupted: Interrupted | None = None
    """The end that the run before was missing."""


def create(layout: Layout, bounds: Bounds, owner: Owner) -> Opened | None:
    """A new session; None while another holds its lease. Where it cannot be written, the writer's fault says so."""
    lease: Lease | None = None
    # Nobody else knows the id: where no lease can be taken, only the news of a crash is less exact.
    with contextlib.suppress(OSError):
        lease = take(layout.lease(owner.session), owner)
        if lease is None:
            return None
    writer = Writer(layout.session(owner.session), Header(id=owner.session, created=owner.started), bounds)
    writer.open()
    return Opened(lease=lease, writer=writer, number=1)


def resume(layout: Layout, bounds: Bounds, owner: Owner, clock: Callable[[], float]) -> Opened | None:
    """A session to be continued, mended where its last owner died; None while another holds its lease.

    Raises:
        Refused: `session_not_found` or `storage`.
    """
    with faults.refusing(f"Session {owner.session}"):
        _known(layout.session(owner.session), owner.session)
        lease = take(layout.lease(owner.session), owner)
        if lease is None:
            return None
        try:
            return _mended(layout, bounds, owner.session, lease, clock())
        except BaseException:
            lease.abandon()
            raise


def _mended(layout: Layout, bounds: Bounds, session: str, lease: Lease, now: float) -> Opened:
    folder = layout.session(session)
    # Looked at again under the lease: it may have been pruned since.
    head = _known(folder, session)
    facts = read_facts(layout, folder)
    if not isinstance(facts, Facts):
        raise Refused(_not_found(session, folder))
    writer, interrupted = reopen(folder, head, bounds, now)
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
