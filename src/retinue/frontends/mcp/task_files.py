"""What came of calls that outlast their requests, a file each: whoever serves next can tell it, too."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from retinue.frontends.mcp.answers import FAILED, WORKING, Answer
from retinue.regular_files import TooLarge, read_regular

KEPT = 7 * 24 * 3600.0
"""Seconds a task is kept at least, from its beginning."""
INTERRUPTED = (
    "The server that carried it out has ended. What its agents had is in their sessions: `retinue sessions list`."
)
CAN_HOLD = os.name != "nt"
"""Whether a file can be locked in such a way that it can still be read and replaced."""
_ID = re.compile(r"[0-9a-f]{32}")
_MOST_BYTES = 64 * 2**20


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call as far as it has come."""

    id: str
    created: float
    """Wall clock, as `updated`."""
    updated: float
    state: str = WORKING
    """A tool that answers with an error has completed."""
    words: str = ""
    """What its agents do; why it failed."""
    answer: Answer | None = None
    """Once it has completed."""


class TaskFiles:
    """The calls of one client, in a folder only its user can read.

    The file of a call that is being carried out is locked, so that one whose server is gone is known.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locked: dict[str, int | None] = {}

    def begin(self, kept: Kept) -> None:
        """Returns when it would be found.

        Raises:
            OSError: it cannot be written.
        """
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        self._locked[kept.id] = self._write(kept)

    def end(self, kept: Kept) -> None:
        """Takes in what came of it.

        Raises:
            OSError: it cannot be written; it is then found as one that was interrupted.
        """
        try:
            _let_go(self._write(kept))
        finally:
            self.leave(kept.id)

    def leave(self, id_: str) -> None:
        """Gives up a call that has not ended."""
        _let_go(self._locked.pop(id_, None))

    def find(self, id_: str) -> Kept | None:
        """The call of this id; None if there is none."""
        if not _ID.fullmatch(id_):
            return None
        found = self._read(id_)
        if found is None or found.state != WORKING or id_ in self._locked or _is_held(self._file(id_)):
            return found
        found = self._read(id_)  # it may have ended between the two looks
        if found is None or found.state != WORKING:
            return found
        return structs.replace(found, state=FAILED, words=INTERRUPTED)

    def forget_old(self) -> None:
        """Forgets the calls whose time is over."""
        with suppress(OSError):
            for file in self._folder.iterdir():
                with suppress(OSError):
                    if file.stat().st_mtime < time.time() - KEPT and not _is_held(file):
                        file.unlink()

    def _read(self, id_: str) -> Kept | None:
        try:
            return msgspec.json.decode(read_regular(self._file(id_), _MOST_BYTES, follow_link=False), type=Kept)
        except (OSError, TooLarge, msgspec.DecodeError):
            return None

    def _write(self, kept: Kept) -> int | None:
        """Writes a file whole or not at all; the descriptor that holds it, where files can be held.

        Not synced: it outlives its process, and after a power cut the sessions tell what the agents had.
        """
        scratch = self._folder / f".{kept.id}"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=not CAN_HOLD) as file:
                file.write(msgspec.json.encode(kept))
            if CAN_HOLD:
                _hold(descriptor)
            scratch.replace(self._file(kept.id))
        except OSError:
            if CAN_HOLD:
                os.close(descriptor)
            raise
        return descriptor if CAN_HOLD else None

    def _file(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"


def _hold(descriptor: int) -> None:
    """Locks a file until its descriptor is closed or its process ends."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _let_go(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _is_held(file: Path) -> bool:
    """Whether a process that is alive carries out what the file tells of."""
    if not CAN_HOLD:
        return False
    import fcntl

    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
