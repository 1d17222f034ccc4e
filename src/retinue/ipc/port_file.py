"""On which port a process of this user serves: said in a locked file, which is true as long as the lock is held.

Whoever finds a port taken learns here whether it is Retinue who has it, without a word to whoever else that may be.
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
    """Says, for the block, that this process serves on a port. Where that cannot be written, nobody is told."""
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
    """The address of the process of this user that serves on a port; None if there is none."""
    path = _port_file(state, port)
    if not is_held(path):
        return None
    with suppress(OSError, UnicodeDecodeError), open_for_reading(path) as file:
        return file.read(MAX_ADDRESS_BYTES).decode() or None
    return None


def _write_address(descriptor: int, address: str) -> bool:
    """Whether the file is now ours: another server on this port, of another address, may have it."""
    with suppress(OSError):
        if try_lock(descriptor):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, address.encode())
            return True
    return False


def _port_file(state: Path, port: int) -> Path:
    return state / "serving" / str(port)
