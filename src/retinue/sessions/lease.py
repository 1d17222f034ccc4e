"""Leases allow one run at a time per session: a locked file, whose lock ends with the process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from retinue.model.errors import ErrorCode, Failure
from retinue.sessions.paths import SHORT_ID_LENGTH, open_for_reading, open_private
from retinue.sessions.store import LeaseOwner
from retinue.support.safe_files import try_lock


class SessionLease:
    """A held lock. It ends with `release`, with `abandon`, or with the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the session. A second call does nothing: by then the file may belong to another process."""
        if self._descriptor is None:
            return
        if os.name != "nt":
            # Unlinked while locked: a process that opened it meanwhile sees another file, or none, and tries again.
            self._unlink()
            self.abandon()
        else:
            self.abandon()
            self._unlink()

    def abandon(self) -> None:
        """Drop the lock and leave the file, so that recovery ends the unfinished run."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _unlink(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()


def acquire_lease(path: Path, owner: LeaseOwner) -> SessionLease | None:
    """Acquire the lease for the owner; return None while another process, or another run of this one, holds it.

    Raises:
        OSError: no lease can be acquired here at all.
    """
    descriptor = _lock(path, os.O_CREAT)
    if descriptor is None:
        return None
    # The lock is the lease; the content only names the owner, and a full disk must not cost the session.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, msgspec.json.encode(owner) + b"\n")
    return SessionLease(path, descriptor)


def adopt_lease(path: Path) -> SessionLease | None:
    """Acquire the lease of a run whose process is gone; return None if it has an owner or no longer exists."""
    try:
        descriptor = _lock(path, 0)
    except OSError:
        return None
    return None if descriptor is None else SessionLease(path, descriptor)


def is_held(path: Path) -> bool:
    """Return whether a live process holds the lease."""
    try:
        descriptor = open_private(path, os.O_RDWR)
    except OSError:
        return False
    try:
        # Shared, so that two checks at the same time do not mistake each other for an owner.
        return not try_lock(descriptor, shared=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def read_owner(path: Path) -> LeaseOwner | None:
    """Return the process that wrote the lease, alive or not; None if the content cannot be read."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError), open_for_reading(path) as file:
        return msgspec.json.decode(file.read(), type=LeaseOwner)
    return None


def live_owners(leases: Path) -> Iterator[LeaseOwner]:
    """Yield the owners of all held leases.

    Raises:
        OSError: the leases cannot be listed.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(leases.iterdir()):
            if is_held(path) and (owner := read_owner(path)):
                yield owner


def boot_id() -> str | None:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return None


def busy_failure(session: str, owner: LeaseOwner | None) -> Failure:
    """Return the refusal to resume a session that is running."""
    what, advice = f"Session {session} is still running", "Wait until the run has ended"
    detail: dict[str, str | int | float] = {"session": session}
    if owner:
        since = datetime.fromtimestamp(owner.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        what += f": process {owner.pid} on {owner.host} is running its run {owner.run} since {since}"
        advice += f", or cancel it: retinue cancel {session[:SHORT_ID_LENGTH]}"
        detail |= {"run": owner.run, "pid": owner.pid, "host": owner.host, "since": owner.started}
    return Failure(ErrorCode.SESSION_BUSY, f"{what}. Nothing was changed. {advice}.", detail=detail)


def _lock(path: Path, flags: int) -> int | None:
    """Open and lock the file; return None if another process holds the lock or the file is gone."""
    while True:
        try:
            descriptor = open_private(path, os.O_RDWR | flags)
        except FileNotFoundError:
            if flags & os.O_CREAT:
                raise
            return None
        try:
            locked = try_lock(descriptor)
            if locked and _is_same_file(path, descriptor):
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not locked:
            return None
        # Its owner released it between our open and our lock: the path is now another file, or none.


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
