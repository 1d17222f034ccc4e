"""The idempotency keys of started runs: a repeated request gets the run of the first one, also after a restart.

Each key is a file with what identifies its request and its run, written before the run starts. The process that
starts the run holds a lock on it. A start that was cut off is found by its conversation.
"""

from __future__ import annotations

import os
import re
import time
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.servers.asgi.request_checks import HttpError
from retinue.support.safe_files import try_lock

IDEMPOTENCY_HEADER = "Idempotency-Key"
MAX_KEY_CHARS = 255
KEY_PATTERN = "^[!-~]+$"
MAX_KEY_AGE = 86400.0
"""Seconds for which a key is stored."""
MAX_KEYS = 10_000
"""Keys that are stored; the oldest are deleted first."""
PRUNE_EVERY = 500
"""New keys between two deletions of old ones."""
RUN_LINE = 1
RUN_PATTERN = re.compile(r"[0-9a-f]{32}")
_MAX_FILE_BYTES = 1024

KEY_REUSED = (
    f"This {IDEMPOTENCY_HEADER} was used with another body within the last {MAX_KEY_AGE / 3600:g} hours. Nothing was "
    "started. Use a new key for a new request."
)
KEY_BUSY = (
    f"Another process is starting the run of this {IDEMPOTENCY_HEADER}. Nothing was started here. Send the request "
    "again in a moment."
)
INVALID_KEY = (
    f"{IDEMPOTENCY_HEADER} is invalid: send it once, with 1 to {MAX_KEY_CHARS} visible ASCII characters. Nothing was "
    "started."
)


class KeyedStart(Struct, frozen=True):
    """The start that a key stands for."""

    body: str
    """Digest of the request body."""
    root: str
    """The conversation of the run."""


def parse_key(values: list[str]) -> str | None:
    """Return the key of a request, None if it has none.

    Raises:
        RefusedError: `invalid_input`.
    """
    if not values:
        return None
    key = values[0].strip()
    if len(values) > 1 or len(key) > MAX_KEY_CHARS or not re.fullmatch(KEY_PATTERN, key):
        raise refuse(ErrorCode.INVALID_INPUT, INVALID_KEY)
    return key


class ClaimedKey:
    """A key that this process has locked. It must be closed."""

    def __init__(self, path: Path, descriptor: int, start: KeyedStart, run: str | None) -> None:
        self.start = start
        self.run = run
        """The run that was started; None if that is not known."""
        self._path = path
        self._descriptor = descriptor

    def record_run(self, run: str) -> None:
        """Store the run that was started.

        Raises:
            OSError: it could not be stored; the run is then found by its conversation.
        """
        os.lseek(self._descriptor, 0, os.SEEK_END)
        os.write(self._descriptor, f"{run}\n".encode())
        os.fsync(self._descriptor)

    def forget(self) -> None:
        """Delete the key: nothing was started."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._descriptor)


class KeyStore:
    """The keys of one state folder. Its functions block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._until_prune = 0

    def claim(self, key: str, body: bytes) -> ClaimedKey:
        """Lock a key and return its start: the stored one, or a new one that is durable.

        Raises:
            HttpError: the key belongs to another request, or another process is starting its run.
            RefusedError: `storage`.
        """
        try:
            self._prune_sometimes()
            path = self._folder / sha256(key.encode()).hexdigest()
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
            try:
                return self._claim(path, descriptor, sha256(body).hexdigest())
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            message = f"The {IDEMPOTENCY_HEADER} could not be stored: {error.strerror or error}. Nothing was started."
            raise RefusedError(Failure(ErrorCode.STORAGE, message)) from error

    def _claim(self, path: Path, descriptor: int, body: str) -> ClaimedKey:
        if not try_lock(descriptor) or not _is_at(path, descriptor):
            raise HttpError(409, KEY_BUSY, **{"retry-after": "1"})
        known, run = _read(descriptor)
        if known is None or time.time() - os.fstat(descriptor).st_mtime > MAX_KEY_AGE:
            start = KeyedStart(body, os.urandom(16).hex())
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, msgspec.json.encode(start) + b"\n")
            os.fsync(descriptor)
            return ClaimedKey(path, descriptor, start, None)
        if known.body != body:
            raise HttpError(422, KEY_REUSED)
        return ClaimedKey(path, descriptor, known, run)

    def _prune_sometimes(self) -> None:
        """Delete keys that are too old, or too many."""
        self._until_prune -= 1
        if self._until_prune > 0 or not self._folder.is_dir():
            return
        self._until_prune = PRUNE_EVERY
        with os.scandir(self._folder) as entries:
            by_age = sorted((entry.stat().st_mtime, entry.path) for entry in entries)
        oldest = time.time() - MAX_KEY_AGE
        surplus = len(by_age) - MAX_KEYS
        for number, (changed, path) in enumerate(by_age):
            if changed < oldest or number < surplus:
                Path(path).unlink(missing_ok=True)


def _read(descriptor: int) -> tuple[KeyedStart | None, str | None]:
    """Return the start in a file and its run; None for what was never completely written."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    lines = os.read(descriptor, _MAX_FILE_BYTES).split(b"\n")
    try:
        start = msgspec.json.decode(lines[0], type=KeyedStart)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None, None
    run = lines[RUN_LINE].decode("latin-1") if len(lines) > RUN_LINE else ""
    return start, run if RUN_PATTERN.fullmatch(run) else None


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the file was not deleted by the process that held the lock before."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
