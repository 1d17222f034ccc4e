"""Calls that outlast their requests: begun, asked after and cancelled by id, as the protocol's tasks are.

Knows nothing of the protocol's own types: `sdk` puts them around what stands here.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct, structs

from retinue.servers.mcp.tool_answers import (
    CANCELLED,
    COMPLETED,
    FAILED,
    START_TIMEOUT,
    WORKING,
    ReportProgress,
    ToolAnswer,
)
from retinue.support.safe_files import FileTooLargeError, read_regular_file

TASK_TTL = 7 * 24 * 3600.0
"""Seconds a task is kept at least, from its beginning."""
INTERRUPTED_MESSAGE = (
    "The server that carried it out has ended. What its agents had is in their sessions: `retinue sessions list`."
)
SUPPORTS_LOCKING = os.name != "nt"
"""Whether a file can be locked in such a way that it can still be read and replaced."""
_ID = re.compile(r"[0-9a-f]{32}")
_MAX_BYTES = 64 * 2**20


class StoredTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call as far as it has come."""

    id: str
    created: float
    """Wall clock, as `updated`."""
    updated: float
    state: str = WORKING
    """A tool that answers with an error has completed."""
    words: str = ""
    """What its agents do; why it failed."""
    answer: ToolAnswer | None = None
    """Once it has completed."""


class TaskFiles:
    """The calls of one client, in a folder only its user can read.

    The file of a call that is being carried out is locked, so that one whose server is gone is known.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locked: dict[str, int | None] = {}

    def create(self, task: StoredTask) -> None:
        """Returns when it would be found.

        Raises:
            OSError: it cannot be written.
        """
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        self._locked[task.id] = self._write(task)

    def finish(self, task: StoredTask) -> None:
        """Takes in what came of it.

        Raises:
            OSError: it cannot be written; it is then found as one that was interrupted.
        """
        try:
            _close_descriptor(self._write(task))
        finally:
            self.abandon(task.id)

    def abandon(self, id_: str) -> None:
        """Gives up a call that has not ended."""
        _close_descriptor(self._locked.pop(id_, None))

    def find(self, id_: str) -> StoredTask | None:
        """The call of this id; None if there is none."""
        if not _ID.fullmatch(id_):
            return None
        found = self._read(id_)
        if found is None or found.state != WORKING or id_ in self._locked or _is_locked(self._file(id_)):
            return found
        found = self._read(id_)  # it may have ended between the two looks
        if found is None or found.state != WORKING:
            return found
        return structs.replace(found, state=FAILED, words=INTERRUPTED_MESSAGE)

    def delete_expired(self) -> None:
        """Forgets the calls whose time is over."""
        with suppress(OSError):
            for file in self._folder.iterdir():
                with suppress(OSError):
                    if file.stat().st_mtime < time.time() - TASK_TTL and not _is_locked(file):
                        file.unlink()

    def _read(self, id_: str) -> StoredTask | None:
        try:
            return msgspec.json.decode(
                read_regular_file(self._file(id_), _MAX_BYTES, follow_link=False), type=StoredTask
            )
        except (OSError, FileTooLargeError, msgspec.DecodeError):
            return None

    def _write(self, task: StoredTask) -> int | None:
        """Writes a file whole or not at all; the descriptor that holds it, where files can be held.

        Not synced: it outlives its process, and after a power cut the sessions tell what the agents had.
        """
        scratch = self._folder / f".{task.id}"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=not SUPPORTS_LOCKING) as file:
                file.write(msgspec.json.encode(task))
            if SUPPORTS_LOCKING:
                _lock_file(descriptor)
            scratch.replace(self._file(task.id))
        except OSError:
            if SUPPORTS_LOCKING:
                os.close(descriptor)
            raise
        return descriptor if SUPPORTS_LOCKING else None

    def _file(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"


def _lock_file(descriptor: int) -> None:
    """Locks a file until its descriptor is closed or its process ends."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _close_descriptor(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _is_locked(file: Path) -> bool:
    """Whether a process that is alive carries out what the file tells of."""
    if not SUPPORTS_LOCKING:
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


UNEXPECTED_ERROR_MESSAGE = (
    "Something unexpected went wrong. What its agents had is in their sessions: `retinue sessions list`."
)

TaskWork = Callable[[ReportProgress], Awaitable[ToolAnswer]]


class RunningTask:
    """A call this server carries out."""

    def __init__(self) -> None:
        now = time.time()
        self.task = StoredTask(id=os.urandom(16).hex(), created=now, updated=now)
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()

    async def report(self, _: float, status: str) -> None:
        self.update(words=status)

    def update(self, **changes: object) -> None:
        self.task = structs.replace(self.task, updated=time.time(), **changes)


class TaskRegistry:
    """The tasks of one client. What is not done when the group ends is interrupted."""

    def __init__(self, folder: Path, group: TaskGroup) -> None:
        self._files = TaskFiles(folder)
        self._group = group
        self._running: dict[str, RunningTask] = {}
        self._files.delete_expired()

    async def start(self, work: TaskWork) -> StoredTask | ToolAnswer:
        """Begins work; returns its answer if it has one at once, else what it is known by, and goes on.

        Raises:
            OSError: it cannot be recorded; nothing goes on.
        """
        running = RunningTask()
        self._group.start_soon(self._run_work, work, running)
        try:
            with anyio.move_on_after(START_TIMEOUT):
                await running.ended.wait()
            if answer := running.task.answer:
                return answer
            self._files.create(running.task)
        except BaseException:
            running.scope.cancel()  # nobody would ever know its id
            raise
        self._running[running.task.id] = running
        if running.ended.is_set():
            self._store_result(running)
        return running.task

    def find(self, id_: str) -> StoredTask | None:
        """A task as far as it has come; None if there is none of this id."""
        if running := self._running.get(id_):
            return running.task
        return self._files.find(id_)

    def cancel(self, id_: str) -> None:
        """Stops a task; one that is done already, or carried out by another server, stays as it is."""
        if running := self._running.get(id_):
            running.scope.cancel()

    async def _run_work(self, work: TaskWork, running: RunningTask) -> None:
        try:
            with running.scope:
                running.update(state=COMPLETED, answer=await work(running.report), words="")
            if running.scope.cancelled_caught:
                running.update(state=CANCELLED, words="")
        except Exception:  # one call that breaks must not end those of all others
            logging.getLogger(__name__).exception("a task broke")
            running.update(state=FAILED, words=UNEXPECTED_ERROR_MESSAGE)
        finally:
            running.ended.set()
            if running.task.state == WORKING:
                self._files.abandon(running.task.id)
        if running.task.id in self._running:
            self._store_result(running)

    def _store_result(self, running: RunningTask) -> None:
        """Writes down what came of it. What cannot be written is told from memory as long as this server lives."""
        with suppress(OSError):
            self._files.finish(running.task)
            del self._running[running.task.id]
