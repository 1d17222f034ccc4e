"""The port on which a process of this user serves HTTP, in a file that is valid while it is locked.

A process that finds a port taken learns here whether Retinue has it, without contacting an unknown program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from retinue.sessions.lease import is_held, try_lock
from retinue.sessions.paths import open_for_reading, open_private

MAX_ADDRESS_BYTES = 1024


@contextmanager
def publish_port(state: Path, port: int, address: str) -> Iterator[None]:
    """Publish, for the block, that this process serves on a port; skipped if the file cannot be written."""
    path = _port_file(state, port)
    try:
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT)
    except OSError:
        yield
        return
    is_ours = _write_address(descriptor, address)
    try:
        yield
    finally:
        if is_ours:
            with suppress(OSError):
                path.unlink()
        os.close(descriptor)


def find_server(state: Path, port: int) -> str | None:
    """Return the address of the process of this user that serves on a port; None if there is none."""
    path = _port_file(state, port)
    if not is_held(path):
        return None
    with suppress(OSError, UnicodeDecodeError), open_for_reading(path) as file:
        return file.read(MAX_ADDRESS_BYTES).decode() or None
    return None


def _write_address(descriptor: int, address: str) -> bool:
    """Lock the file and write the address; false if a server on this port at another address holds the lock."""
    with suppress(OSError):
        if try_lock(descriptor):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, address.encode())
            return True
    return False


def _port_file(state: Path, port: int) -> Path:
    return state / "serving" / str(port)
