"""A folder of one sandboxed program in place of the user's configuration: with copies, and back with little."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec

from retinue.support.safe_files import FileTooLargeError, read_regular_file

T = TypeVar("T")
MAX_COPY_BYTES = 512 << 20
"""Size of a file that is copied into or out of a sandbox: a session, with all its messages."""


@asynccontextmanager
async def open_private_folder(make: Callable[[Path], T]) -> AsyncIterator[T]:
    """Make something in a folder that only this user can read, in a thread; the folder is removed after the block."""
    folder, made = await anyio.to_thread.run_sync(_make_folder, make)
    try:
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


def _make_folder(make: Callable[[Path], T]) -> tuple[Path, T]:
    folder = Path(tempfile.mkdtemp(prefix="retinue-home-")).resolve()
    try:
        return folder, make(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def read_file(path: Path, limit: int = MAX_COPY_BYTES) -> bytes | None:
    """Return the content of a regular file; None where there is none. A link is not followed.

    What a sandboxed program wrote may be a link to a file that it could not read itself.
    """
    try:
        return read_regular_file(path, limit, follow_link=False)
    except (OSError, FileTooLargeError, ValueError):
        return None


def read_json_object(content: bytes | None) -> dict[str, Any]:
    """Return the JSON object in a file's content; an empty one where there is none."""
    try:
        found = msgspec.json.decode(content) if content else {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def renew_fields(old: Any, new: Any, names: Iterable[str]) -> dict[str, Any] | None:
    """Return an object with these fields renewed; None if none was. Nothing else of it can change."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return None
    kept = ((name, old[name], new.get(name)) for name in names if name in old)
    renewed = {
        name: after
        for name, before, after in kept
        if type(after) is type(before) and isinstance(after, str | int) and after != before
    }
    return {**old, **renewed} if renewed else None


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
