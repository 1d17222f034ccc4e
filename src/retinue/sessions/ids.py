"""Unique ids: the first 8 digits of every session and run are claimed by an exclusive create.

A session's claim is its folder. A later run's claim is a small file beside it that names the session and, once the
run has started, the position of its first event. So every printed form of an id resolves by reading one file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.sessions.paths import StateLayout, make_folder, open_for_reading, open_private
from retinue.sessions.segments import RecordPosition


class RunPointer(Struct, frozen=True):
    """The first line in the claim of a later run."""

    session: str
    run: str


class RunLocation(Struct, frozen=True):
    """The second line, written when the run starts."""

    number: int
    """1 for the session's first run."""
    at: RecordPosition


def make_random_id() -> str:
    """Return a random id, 32 hex digits that are a valid version 4 UUID."""
    data = bytearray(os.urandom(16))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    return data.hex()


def claim_id(layout: StateLayout, session: str | None, new_id: Callable[[], str]) -> str:
    """Return a new id for a session, or for a later run of the given session.

    The id is returned even if nothing can be written: opening the record reports why.
    """
    while True:
        fresh = new_id()
        try:
            _write_claim(layout.session(fresh), session, fresh)
        except FileExistsError:
            continue
        except OSError:
            pass
        return fresh


def read_run_pointer(path: Path) -> tuple[RunPointer, RunLocation | None] | None:
    """Return the content of a later run's claim; None if the file is not one."""
    try:
        with open_for_reading(path) as file:
            first, _, second = file.read().partition(b"\n")
        claimed = msgspec.json.decode(first, type=RunPointer)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return claimed, msgspec.json.decode(second, type=RunLocation)
    return claimed, None


def write_run_location(layout: StateLayout, claimed: RunPointer, location: RunLocation) -> None:
    """Write where a later run starts; without this line the record has to be searched."""
    path = layout.session(claimed.run)
    with contextlib.suppress(OSError):
        if not path.exists():
            _write(path, claimed, os.O_EXCL)
        _write(path, location, os.O_APPEND)


def _write_claim(path: Path, session: str | None, fresh: str) -> None:
    if session is not None:
        _write(path, RunPointer(session, fresh), os.O_EXCL)
        return
    try:
        path.mkdir(0o700)
    except FileNotFoundError:
        make_folder(path.parent)
        path.mkdir(0o700)
    path.chmod(0o700)


def _write(path: Path, content: Struct, flags: int) -> None:
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | flags)
    try:
        os.write(descriptor, msgspec.json.encode(content) + b"\n")
    finally:
        os.close(descriptor)
