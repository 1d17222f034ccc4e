"""A folder of one sandboxed program in place of the user's configuration: with copies, and back with little."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread

from retinue.support.safe_files import FileTooLargeError, read_regular_file

MAX_COPY_BYTES = 512 << 20
"""Size of a file that is copied into or out of a sandbox: a session, with all its messages."""


@asynccontextmanager
async def open_private_folder() -> AsyncIterator[Path]:
    """Provide an empty folder that only this user can read; it is removed with all it contains."""
    folder = await anyio.to_thread.run_sync(_make_folder)
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


def _make_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="retinue-home-")).resolve()


def read_file(path: Path, limit: int = MAX_COPY_BYTES) -> bytes | None:
    """Return the content of a regular file; None where there is none. A link is not followed.

    What a sandboxed program wrote may be a link to a file that it could not read itself.
    """
    try:
        return read_regular_file(path, limit, follow_link=False)
    except (OSError, FileTooLargeError, ValueError):
        return None


def write_private_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole; only this user can read it.

    Raises:
        OSError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
