"""The session store in files: one append-only record per session, written at once, synced in groups."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import anyio
import msgspec
from msgspec.structs import replace

from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord, from_line, to_line
from retinue.model.runs import RunSpec
from retinue.sessions import storage_errors as faults
from retinue.sessions.conversation_log import RootEventSource, RootLogs
from retinue.sessions.flusher import RELEASE_TIMEOUT, FileRecord, RecordFlusher
from retinue.sessions.lease import (
    SessionLease,
    acquire_lease,
    boot_id,
    busy_failure,
    is_held,
    live_owners,
    read_owner,
)
from retinue.sessions.paths import (
    RunPointer,
    StateLayout,
    claim_id,
    make_random_id,
    parse_id_digits,
    read_run_pointer,
)
from retinue.sessions.recovery import InterruptedRun, OpenSession, create_session, recover_runs, resume_session
from retinue.sessions.segments import SegmentedFile, SegmentHeader
from retinue.sessions.store import (
    EVERY_SESSION,
    Conversation,
    IndexProgress,
    LeaseOwner,
    PruneReport,
    SessionFilter,
    SessionSummary,
    group_conversations,
)
from retinue.sessions.writer import WriterLimits

if TYPE_CHECKING:
    from retinue.sessions.index import SessionIndex
    from retinue.sessions.reader import EventReader
    from retinue.sessions.summary import CachedSummary

T = TypeVar("T")

POLL_INTERVAL = 0.1
"""Seconds between two reads of a log that is followed."""
MAX_UNSAVED_BYTES = 64 * 2**20
"""Bytes of unsaved lines that are kept; the oldest sessions are dropped first."""
_MTIME_RESOLUTION_NS = 2 * 10**9
"""Nanoseconds after a change in which a folder is read again."""
_OPEN_RETRY_DELAYS = (0.0, 0.01, 0.03, 0.06)
"""Pauses before a session is reported as busy: checks of its lease lock it for an instant, too."""


class JsonlStore:
    """The store of one state folder. Sessions can be read at any time; runs are recorded inside `async with` only."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: WriterLimits = WriterLimits(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = make_random_id,
    ) -> None:
        self._layout = StateLayout(folder)
        self._description = f"The state folder {folder}"
        self._limits = limits
        self._clock = clock
        self._new_id = new_id
        self._logs = RootLogs(self._layout, limits)
        self._records: dict[str, FileRecord] = {}
        self._names: tuple[int, frozenset[str]] = (0, frozenset())
        self._flusher: RecordFlusher | None = None
        self._unsaved = UnsavedSessions()

    async def __aenter__(self) -> Self:
        self._flusher = RecordFlusher()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._flusher.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(RELEASE_TIMEOUT, shield=True):
            async with anyio.create_task_group() as finishing:
                for record in self._records.values():
                    finishing.start_soon(record.finish)
        for record in list(self._records.values()):
            record.close()
        if self._flusher:
            self._flusher.stop()
            self._flusher = None
        # Without the error: it belongs to the block, and the group would wrap it in another.
        await self._tasks.__aexit__(None, None, None)

    def claim(self, session: str | None = None) -> str:
        return claim_id(self._layout, session, self._new_id)

    async def open_record(self, spec: RunSpec, *, control: str | None = None) -> FileRecord:
        flusher = self._flusher
        if flusher is None:
            raise RuntimeError("runs are recorded within `async with store:` only")
        owner = self._make_owner(spec.session, spec.run, control)
        opened = await self._open(owner, resumes=spec.resumes)
        if opened.interrupted:
            self._log_interruption(opened.interrupted)
        root, vault = spec.lineage.root, spec.vault_path
        record = FileRecord(
            layout=self._layout,
            pointer=RunPointer(spec.session, spec.run),
            opened=opened,
            log=self._logs.open(root, vault),
            flusher=flusher,
            on_closed=partial(self._forget_record, spec.session, root, vault),
            keep_unsaved=partial(self._unsaved.add, spec.session),
        )
        self._records[spec.session] = record
        return record

    async def find(self, name: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        prefix = parse_id_digits(name)
        if prefix is None:
            return None
        if unsaved := self._find_unsaved(prefix):
            return unsaved
        if claimed := read_run_pointer(self._layout.session(prefix)):
            pointer, _ = claimed
            return self._find_session_id(pointer.session) if pointer.run.startswith(prefix) else None
        return self._find_session_id(prefix)

    async def is_locked(self, session: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return parse_id_digits(session) is not None and self._is_live(session)

    async def owner(self, session: str) -> LeaseOwner | None:
        """Return the process that executes the session's current run; None if none does or its lease is empty."""
        return read_owner(self._layout.lease(session)) if await self.is_locked(session) else None

    async def owners(self) -> Sequence[LeaseOwner]:
        """Return every process that executes a run in this state folder now.

        Raises:
            RefusedError: `storage`.
        """
        return await self._in_thread(lambda: tuple(live_owners(self._layout.leases)))

    async def summary(self, session: str) -> SessionSummary | None:
        if self._waiting_lines(session):
            from retinue.sessions.summary import summarize_events

            events = [record async for record in self.events(session)]
            return summarize_events(session, events, is_live=self._is_live(session))
        found = await anyio.to_thread.run_sync(self._find_summary, self._folder(session))
        return found.summary if found and session.startswith(found.summary.session) else None

    async def list(
        self, session_filter: SessionFilter = EVERY_SESSION, *, refresh: bool = True
    ) -> Sequence[SessionSummary]:
        """Return the sessions that match the filter, last changed first; without `refresh`, as last indexed."""
        return await anyio.to_thread.run_sync(partial(self._index.list, session_filter, refresh=refresh))

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int, refresh: bool = True
    ) -> Sequence[Conversation]:
        return await anyio.to_thread.run_sync(
            partial(self._index.conversations, session_filter, max_sessions, refresh=refresh)
        )

    def has_scanned_records(self) -> bool:
        return self._index.scans_records

    async def advance_index(self, max_seconds: float, *, for_search: bool = False) -> IndexProgress:
        """Read changed records into the index for at most so many seconds, the latest first."""
        return await anyio.to_thread.run_sync(partial(self._index.advance, max_seconds, for_search=for_search))

    async def names(self) -> frozenset[str]:
        """Return the first digits of every id, of sessions and of later runs; fast for any number of them.

        Raises:
            RefusedError: `storage`.
        """

        def read_names() -> frozenset[str]:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                changed = self._layout.sessions.stat().st_mtime_ns
                # File systems have coarse clocks: a folder may change twice at the same time.
                if changed != self._names[0] or time.time_ns() - changed < _MTIME_RESOLUTION_NS:
                    self._names = (changed, frozenset(os.listdir(self._layout.sessions)))  # noqa: PTH208 - the names
                return self._names[1]
            return frozenset()

        return await self._in_thread(read_names)

    def events(self, session: str, *, run: str | None = None) -> EventReader | UnsavedReader:
        from retinue.sessions.reader import EventReader, SessionEventSource

        stored = EventReader(SessionEventSource(self._layout, self._folder(session), session, run))
        waiting = self._waiting_lines(session)
        return UnsavedReader(stored, decode_lines(waiting, run)) if waiting else stored

    async def tail(self, session: str, count: int) -> Sequence[EventRecord]:
        from retinue.sessions.reader import read_last_events

        waiting = decode_lines(self._waiting_lines(session)[-count:]) if count > 0 else []
        if len(waiting) == count:
            return waiting
        stored = await anyio.to_thread.run_sync(
            read_last_events, self._folder(session), session, count - len(waiting)
        )
        return [*stored, *waiting]

    async def recover(self) -> Sequence[SessionSummary]:
        def end_runs() -> tuple[Sequence[InterruptedRun], Sequence[CachedSummary | None]]:
            runs = list(recover_runs(self._layout, self._limits, self._clock))
            return runs, [self._find_summary(self._layout.session(run.ended.origin.session)) for run in runs]

        runs, found = await anyio.to_thread.run_sync(end_runs)
        for run in runs:
            self._log_interruption(run)
        return [one.summary for one in found if one]

    async def prune(self, *, older_than: float, keep_results: bool = True, vault: Path | None = None) -> PruneReport:
        """Delete the details of sessions and logs unchanged for so many seconds, or all of them without results."""
        from retinue.sessions.retention import SessionPruner

        await self.recover()  # runs that pruning would have to end are then recorded in the logs, too
        texts = self._index.collect_pruned_texts()
        pruner = SessionPruner(
            self._layout,
            self._limits,
            now=self._clock(),
            older_than=older_than,
            acquire_lease=self._acquire_for_pruning,
            on_prune=texts.add,
            vault=vault,
        )
        try:
            return await self._in_thread(lambda: pruner.prune(keep_results=keep_results))
        finally:
            await anyio.to_thread.run_sync(texts.flush)
            await anyio.to_thread.run_sync(self._index.discard_pruned_texts)

    async def _in_thread(self, read: Callable[[], T]) -> T:
        def read_or_refuse() -> T:
            with faults.raise_storage_errors(self._description):
                return read()

        return await anyio.to_thread.run_sync(read_or_refuse)

    def root_events(self, root: str) -> EventReader:
        """Return all stored events of a root conversation, in the order they were written."""
        from retinue.sessions.reader import EventReader

        return EventReader(RootEventSource(self._layout, root))

    def follow(self, root: str) -> EventReader:
        """Return the stored events of a root conversation, then new ones as they are written, without end."""
        from retinue.sessions.reader import EventReader

        return EventReader(RootEventSource(self._layout, root), poll=POLL_INTERVAL)

    @cached_property
    def _host_and_boot(self) -> tuple[str, str | None]:
        return socket.gethostname(), boot_id()

    def _make_owner(self, session: str, run: str, control: str | None = None) -> LeaseOwner:
        host, boot = self._host_and_boot
        return LeaseOwner(
            session=session, run=run, pid=os.getpid(), host=host, boot=boot, started=self._clock(), control=control
        )

    async def _open(self, owner: LeaseOwner, *, resumes: bool) -> OpenSession:
        for pause in _OPEN_RETRY_DELAYS:
            await anyio.sleep(pause)
            if not resumes:
                # A few quick calls, and appending blocks the loop no less; an old session must be read.
                opened = create_session(self._layout, self._limits, owner)
            elif (record := self._records.get(owner.session)) and record.is_late:
                return record.hand_over()
            elif self._unsaved.lines(owner.session):
                raise RefusedError(faults.only_in_memory_failure(owner.session))
            else:
                opened = await self._resume_in_thread(owner)
            if opened:
                return opened
        raise RefusedError(busy_failure(owner.session, read_owner(self._layout.lease(owner.session))))

    async def _resume_in_thread(self, owner: LeaseOwner) -> OpenSession | None:
        """Open an existing session in a thread; release it if the task is cancelled meanwhile."""
        found: list[OpenSession | RefusedError | None] = []

        async def resume() -> None:
            try:
                found.append(
                    await anyio.to_thread.run_sync(resume_session, self._layout, self._limits, owner, self._clock)
                )
            except RefusedError as refusal:
                found.append(refusal)

        try:
            # In a task of its own: asyncio's own cancellation ignores shields, and would leave the thread alone.
            async with anyio.create_task_group() as group:
                group.start_soon(resume)
        except anyio.get_cancelled_exc_class():
            for opened in found:
                if isinstance(opened, OpenSession):
                    self._abandon(opened)
            raise
        (result,) = found
        if isinstance(result, RefusedError):
            raise result
        return result

    def _abandon(self, opened: OpenSession) -> None:
        """Close a session whose run was never started."""
        if opened.interrupted:
            self._log_interruption(opened.interrupted)
        opened.writer.close()
        if opened.lease:
            opened.lease.release()

    def _folder(self, session: str) -> Path:
        """Return the folder of a session; for an invalid id, one that never exists."""
        return self._layout.session(session) if parse_id_digits(session) else self._layout.sessions / "-"

    def _acquire_for_pruning(self, session: str) -> SessionLease | None:
        return acquire_lease(self._layout.lease(session), self._make_owner(session, "(pruning)"))

    # Imported on use: a run needs neither lists nor summaries.

    @cached_property
    def _index(self) -> SessionIndex:
        from retinue.sessions.index import SessionIndex

        return SessionIndex(self._layout, self._find_summary)

    def _find_summary(self, folder: Path) -> CachedSummary | None:
        from retinue.sessions.summary import find_summary

        return find_summary(self._layout, folder, self._is_live)

    def _find_unsaved(self, prefix: str) -> str | None:
        """Return the session with unwritten lines whose id, or the id of one of whose runs, has the prefix."""
        sessions = [session for session, record in self._records.items() if record.waiting_bytes]
        run = b'"run":"%b' % prefix.encode()  # a quote inside a text would be escaped
        for session in chain(sessions, self._unsaved):
            if session.startswith(prefix) or any(run in line for line in self._waiting_lines(session)):
                return session
        return None

    def _waiting_lines(self, session: str) -> Sequence[bytes]:
        """Return the lines of a session that are not written, of open records and of those given up."""
        record = self._records.get(session)
        return (*self._unsaved.lines(session), *(record.waiting if record else ()))

    def _is_live(self, session: str) -> bool:
        if record := self._records.get(session):
            return not record.is_late
        return is_held(self._layout.lease(session))

    def _find_session_id(self, prefix: str) -> str | None:
        """Return the full id of the session whose id starts with the prefix; None if none has a record."""
        from retinue.sessions.reader import read_header

        with faults.raise_storage_errors(f"Session {prefix}"):
            head = read_header(SegmentedFile(self._folder(prefix)))
        return head.id if isinstance(head, SegmentHeader) and head.id.startswith(prefix) else None

    def _log_interruption(self, run: InterruptedRun) -> None:
        root, vault = run.ended.origin.root, run.vault
        self._logs.open(root, vault).append(run.ended, to_line(run.ended))
        self._logs.close(root, vault)

    def _forget_record(self, session: str, root: str, vault: str | None) -> None:
        self._records.pop(session, None)
        self._logs.close(root, vault)


class ClientStore(JsonlStore):
    """Finds and lists the sessions of one client only.

    The root conversation of a session tells its client: the roots of a client begin with its name.
    """

    def __init__(self, folder: Path, client: str) -> None:
        super().__init__(folder)
        self._roots = make_client_root(client, "")

    async def find(self, name: str) -> str | None:
        session = await super().find(name)
        return session if session and await self.summary(session) else None

    async def summary(self, session: str) -> SessionSummary | None:
        found = await super().summary(session)
        return found if found and found.root.startswith(self._roots) else None

    async def list(
        self, session_filter: SessionFilter = EVERY_SESSION, *, refresh: bool = True
    ) -> Sequence[SessionSummary]:
        every = await super().list(replace(session_filter, limit=None), refresh=refresh)
        return [each for each in every if each.root.startswith(self._roots)][: session_filter.limit]

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int, refresh: bool = True
    ) -> Sequence[Conversation]:
        sessions = await self.list(refresh=refresh)
        if session_filter.text is not None:
            found = await self.list(SessionFilter(text=session_filter.text), refresh=refresh)
            matching = {each.session: each for each in found}
            sessions = [matching.get(each.session, each) for each in sessions]
        return group_conversations(sessions, session_filter, max_sessions)


def make_client_root(client: str | None, conversation: str) -> str:
    """Return the id of a root conversation of a client, or of the user's own without a client."""
    return f"{client}-{conversation}" if client else conversation


# -- lines that could not be written ---------------------------------------------------------------


class UnsavedSessions:
    """Lines of sessions that could not be written, kept in bounded memory while the process lives."""

    def __init__(self, max_bytes: int = MAX_UNSAVED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lines: dict[str, list[bytes]] = {}
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def lines(self, session: str) -> Sequence[bytes]:
        return self._lines.get(session, ())

    def add(self, session: str, lines: Iterable[bytes]) -> None:
        """Keep lines of a session after its earlier ones; drop the oldest sessions if there is no space."""
        new = list(lines)
        self._lines[session] = [*self._lines.pop(session, ()), *new]
        self._size += sum(map(len, new))
        while self._size > self._max_bytes:
            oldest = next(iter(self._lines))
            self._size -= sum(map(len, self._lines.pop(oldest)))


class UnsavedReader:
    """An async iterator over the stored events of a session, then those that wait to be stored."""

    def __init__(self, stored: EventReader, unsaved: Sequence[EventRecord]) -> None:
        self._stored: EventReader | None = stored
        self._unsaved = iter(unsaved)
        self._newest: dict[str, int] = {}
        """The last stored event of each run, so that events written meanwhile are not read twice."""
        self.damaged_count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventRecord:
        while self._stored is not None:
            try:
                stored = await anext(self._stored)
                self._newest[stored.origin.run] = stored.seq
            except StopAsyncIteration:
                self.damaged_count, self._stored = self._stored.damaged_count, None
            else:
                return stored
        for record in self._unsaved:
            if record.seq > self._newest.get(record.origin.run, 0):
                return record
        raise StopAsyncIteration


def decode_lines(lines: Iterable[bytes], run: str | None = None) -> list[EventRecord]:
    """Return the events of the lines, or those of one run."""
    found = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            record = from_line(line)
            if run in {None, record.origin.run}:
                found.append(record)
    return found
