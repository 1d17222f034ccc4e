"""Work that outlasts the request that started it, and the tasks of the protocol built on it.

Nothing here uses the protocol's own types: `sdk` converts to them.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct, field, structs

from retinue.support.safe_files import FileTooLargeError, read_regular_file, try_lock

WORKING, COMPLETED, FAILED, CANCELLED = "working", "completed", "failed", "cancelled"
"""The states of a job, in the words of the protocol's tasks."""
START_TIMEOUT = 0.2
"""Seconds a start waits for the end of its job: work that fails or ends at once is answered without an id."""
TASK_TTL = 7 * 24 * 3600.0
"""Seconds a task is stored at least, from its start."""
INTERRUPTED_MESSAGE = (
    "The server that ran this task has ended. The output of its agents is in their sessions: `retinue sessions list`."
)
SUPPORTS_LOCKING = os.name != "nt"
"""Whether a locked file can still be read and replaced."""
_ID = re.compile(r"[0-9a-f]{32}")
_MAX_BYTES = 64 * 2**20
UNEXPECTED_ERROR_MESSAGE = "Internal error. The output of the agents is in their sessions: `retinue sessions list`."


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a tool call."""

    text: str
    structured: Mapping[str, Any]
    is_error: bool = False
    meta: Mapping[str, Any] | None = None


ReportProgress = Callable[[float, str], Awaitable[None]]
"""Takes the progress of a call, a number that grows, and a line about its runs."""

TaskWork = Callable[[ReportProgress], Awaitable[ToolAnswer]]


class Job:
    """Work that this server is doing."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.started, self.ended = anyio.Event(), anyio.Event()


JobKind = TypeVar("JobKind", bound=Job)


class JobRegistry(Generic[JobKind]):
    """The jobs of one client. They end with the task group at the latest."""

    def __init__(self, group: TaskGroup) -> None:
        self.active: dict[str, JobKind] = {}
        """The jobs a client can name, by id."""
        self._group = group

    async def start(self, job: JobKind, work: Callable[[JobKind], Awaitable[None]]) -> None:
        """Start a job, and return once it has started and either ended or run for `START_TIMEOUT`."""
        self._group.start_soon(self._run, job, work)
        try:
            await job.started.wait()
            with anyio.move_on_after(START_TIMEOUT):
                await job.ended.wait()
        except anyio.get_cancelled_exc_class():
            job.scope.cancel()  # no client would know its id
            raise

    async def _run(self, job: JobKind, work: Callable[[JobKind], Awaitable[None]]) -> None:
        try:
            await work(job)
        finally:
            job.ended.set()
            job.started.set()


# -- stored tasks ----------------------------------------------------------------------------------


class StoredTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a call, as it is stored."""

    id: str
    created: float
    """Wall clock, as `updated`."""
    updated: float
    state: str = WORKING
    """A tool that answers with an error has completed."""
    message: str = field(default="", name="words")
    """A line about its agents, or why it failed."""
    answer: ToolAnswer | None = None
    """Once it has completed."""


class TaskFiles:
    """The tasks of one client, in a folder only its user can read.

    The file of a running task is locked, so that a task whose server is gone can be recognized.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locked: dict[str, int | None] = {}

    def create(self, task: StoredTask) -> None:
        """Store a new task and lock its file.

        Raises:
            OSError: the file cannot be written.
        """
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        self._locked[task.id] = self._write(task)

    def finish(self, task: StoredTask) -> None:
        """Store the end of a task and unlock its file.

        Raises:
            OSError: the file cannot be written; the task then counts as interrupted.
        """
        try:
            _close_descriptor(self._write(task))
        finally:
            self.abandon(task.id)

    def abandon(self, id_: str) -> None:
        """Unlock the file of a task that has not ended."""
        _close_descriptor(self._locked.pop(id_, None))

    def find(self, id_: str) -> StoredTask | None:
        """Return the task with this id, failed if its server is gone; None if there is no such task."""
        if not _ID.fullmatch(id_):
            return None
        found = self._read(id_)
        if found is None or found.state != WORKING or id_ in self._locked or _is_locked(self._file(id_)):
            return found
        found = self._read(id_)  # it may have ended between the two reads
        if found is None or found.state != WORKING:
            return found
        return structs.replace(found, state=FAILED, message=INTERRUPTED_MESSAGE)

    def delete_expired(self) -> None:
        """Delete the tasks that are older than `TASK_TTL` and not running."""
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
        """Replace the file of a task in one step, and return the descriptor that locks it, where files can be locked.

        Not synced: the file outlives the process, and after a power cut the sessions have what the agents did.
        """
        scratch = self._folder / f".{task.id}"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=not SUPPORTS_LOCKING) as file:
                file.write(msgspec.json.encode(task))
            if SUPPORTS_LOCKING:
                try_lock(descriptor)  # nobody else knows the file yet
            scratch.replace(self._file(task.id))
        except OSError:
            if SUPPORTS_LOCKING:
                os.close(descriptor)
            raise
        return descriptor if SUPPORTS_LOCKING else None

    def _file(self, id_: str) -> Path:
        return self._folder / f"{id_}.json"


def _close_descriptor(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _is_locked(file: Path) -> bool:
    """Return whether a live process runs the task of this file."""
    if not SUPPORTS_LOCKING:
        return False
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


# -- running tasks ---------------------------------------------------------------------------------


class RunningTask(Job):
    """A task that this server runs."""

    def __init__(self) -> None:
        super().__init__()
        now = time.time()
        self.task = StoredTask(id=os.urandom(16).hex(), created=now, updated=now)
        self.started.set()

    async def report(self, _: float, status: str) -> None:
        self.update(message=status)

    def update(self, **changes: object) -> None:
        self.task = structs.replace(self.task, updated=time.time(), **changes)


class TaskRegistry:
    """The tasks of one client. Tasks that run when the group ends are interrupted."""

    def __init__(self, folder: Path, group: TaskGroup) -> None:
        self._files = TaskFiles(folder)
        self._jobs: JobRegistry[RunningTask] = JobRegistry(group)
        self._files.delete_expired()

    async def start(self, work: TaskWork) -> StoredTask | ToolAnswer:
        """Start work, and return its answer if it ends at once, else the task under which it continues.

        Raises:
            OSError: the task cannot be stored; its work is cancelled.
        """
        running = RunningTask()
        await self._jobs.start(running, partial(self._run_work, work))
        if answer := running.task.answer:
            return answer
        try:
            self._files.create(running.task)
        except OSError:
            running.scope.cancel()  # no client would know its id
            raise
        self._jobs.active[running.task.id] = running
        if running.ended.is_set():
            self._store_result(running)
        return running.task

    def find(self, id_: str) -> StoredTask | None:
        """Return the task with this id; None if there is no such task."""
        if running := self._jobs.active.get(id_):
            return running.task
        return self._files.find(id_)

    def cancel(self, id_: str) -> None:
        """Cancel a task; a task that has ended, or runs in another server, stays as it is."""
        if running := self._jobs.active.get(id_):
            running.scope.cancel()

    async def _run_work(self, work: TaskWork, running: RunningTask) -> None:
        try:
            with running.scope:
                running.update(state=COMPLETED, answer=await work(running.report), message="")
            if running.scope.cancelled_caught:
                running.update(state=CANCELLED, message="")
        except Exception:  # one call that breaks must not end those of all others
            logging.getLogger(__name__).exception("a task broke")
            running.update(state=FAILED, message=UNEXPECTED_ERROR_MESSAGE)
        finally:
            if running.task.state == WORKING:
                self._files.abandon(running.task.id)
        if running.task.id in self._jobs.active:
            self._store_result(running)

    def _store_result(self, running: RunningTask) -> None:
        """Store the end of a task. If it cannot be written, it stays in memory as long as this server lives."""
        with suppress(OSError):
            self._files.finish(running.task)
            del self._jobs.active[running.task.id]
