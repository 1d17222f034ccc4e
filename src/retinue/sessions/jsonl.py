"""Sessions in files: an append-only record each, written at once, synced in groups, owned by one process."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.runs import RunSpec
from retinue.sessions import storage_errors as faults
from retinue.sessions.conversation_log import RootEventSource, RootLogs
from retinue.sessions.flusher import RecordFlusher
from retinue.sessions.ids import RunPointer, claim_id, make_random_id, read_run_pointer
from retinue.sessions.index import IndexedRecords, RecordStamp, SessionIndex, read_stamps
from retinue.sessions.lease import (
    SessionLease,
    acquire_lease,
    boot_id,
    busy_failure,
    is_held,
    live_owners,
    read_owner,
)
from retinue.sessions.paths import StateLayout, parse_id_digits
from retinue.sessions.reader import EventReader, SessionEventSource, read_header, read_last_events
from retinue.sessions.record_format import SegmentHeader
from retinue.sessions.recovery import InterruptedRun, recover_runs
from retinue.sessions.retention import PruneReport, SessionPruner
from retinue.sessions.segments import session_segments
from retinue.sessions.session_file import RELEASE_TIMEOUT, FileRecord, OpenSession, create_session, resume_session
from retinue.sessions.store import EVERY_SESSION, Conversation, LeaseOwner, SessionFilter, SessionSummary
from retinue.sessions.summary import CachedSummary, find_run_start, find_summary
from retinue.sessions.unsaved import UnsavedReader, UnsavedSessions, decode_lines, find_unsaved, summarize
from retinue.sessions.writer import WriterLimits

POLL_INTERVAL = 0.1
"""Seconds between two looks of a follower."""
_MTIME_RESOLUTION_NS = 2 * 10**9
"""Nanoseconds in which a folder that changed is read again."""
_OPEN_RETRY_DELAYS = (0.0, 0.01, 0.03, 0.06)
"""Pauses before a session is called busy: others look at its lease for an instant, too."""


class JsonlStore:
    """The store of one state folder. Reading needs no more; runs are recorded while its `async with` block lasts."""

    def __init__(
        self,
        folder: Path,
        *,
        limits: WriterLimits = WriterLimits(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = make_random_id,
    ) -> None:
        self.get_control_address: Callable[[], str | None] = lambda: None
        """Says on which socket this process takes orders: asked when a run begins, and noted in its lease."""
        self._layout = StateLayout(folder)
        self._whole = f"The state folder {folder}"
        self._limits = limits
        self._clock = clock
        self._new_id = new_id
        self._index = SessionIndex(self._layout.index)
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

    async def open_record(self, spec: RunSpec) -> FileRecord:
        flusher = self._flusher
        if flusher is None:
            raise RuntimeError("runs are recorded within `async with store:` only")
        opened = await self._open(
            self._owner(spec.session, spec.run, self.get_control_address()), resumes=spec.resumes
        )
        if opened.interrupted:
            self._log_interruption(opened.interrupted)
        root, vault = spec.lineage.root, spec.vault_path
        record = FileRecord(
            layout=self._layout,
            claim=RunPointer(spec.session, spec.run),
            opened=opened,
            log=self._logs.open(root, vault),
            flusher=flusher,
            on_closed=partial(self._release_log, spec.session, root, vault),
            unsaved=partial(self._unsaved.add, spec.session),
        )
        self._records[spec.session] = record
        return record

    async def find(self, name: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        session_filter = parse_id_digits(name)
        if session_filter is None:
            return None
        if held := find_unsaved(session_filter, self._unwritten(), self._waiting):
            return held
        if claimed := read_run_pointer(self._layout.session(session_filter)):
            found, _ = claimed
            return self._find_session_id(found.session) if found.run.startswith(session_filter) else None
        return self._find_session_id(session_filter)

    async def is_locked(self, session: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return parse_id_digits(session) is not None and self._is_live(session)

    async def owner(self, session: str) -> LeaseOwner | None:
        """Who carries out the session's current run; None if nobody does, or its lease does not say."""
        return read_owner(self._layout.lease(session)) if await self.is_locked(session) else None

    async def owners(self) -> Sequence[LeaseOwner]:
        """Everyone who carries out a run in this state folder at this moment.

        Raises:
            Refused: `storage`.
        """

        def look() -> Sequence[LeaseOwner]:
            with faults.raise_storage_errors(self._whole):
                return tuple(live_owners(self._layout.leases))

        return await anyio.to_thread.run_sync(look)

    async def summary(self, session: str) -> SessionSummary | None:
        if self._waiting(session):
            events = [stamped async for stamped in self.events(session)]
            return summarize(session, events, live=self._is_live(session))
        found = await anyio.to_thread.run_sync(self._find_summary, self._folder(session))
        return found.summary if found and session.startswith(found.summary.session) else None

    async def list(
        self, session_filter: SessionFilter = EVERY_SESSION, *, refresh: bool = True
    ) -> Sequence[SessionSummary]:
        """Sessions, last changed first; without a look at the records, as they were when someone last looked."""
        return await anyio.to_thread.run_sync(
            lambda: self._index.list(self._indexed_records(refresh=refresh), session_filter)
        )

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int, refresh: bool = True
    ) -> Sequence[Conversation]:
        def answer() -> Sequence[Conversation]:
            return self._index.conversations(self._indexed_records(refresh=refresh), session_filter, max_sessions)

        return await anyio.to_thread.run_sync(answer)

    async def names(self) -> frozenset[str]:
        """The first digits of every id there is, of sessions and of later runs; quick however many there are.

        Raises:
            Refused: `storage`.
        """

        def look() -> frozenset[str]:
            with faults.raise_storage_errors(self._whole), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                changed = self._layout.sessions.stat().st_mtime_ns
                # A clock that ticks coarsely: what changed a moment ago may change again at the same time.
                if changed != self._names[0] or time.time_ns() - changed < _MTIME_RESOLUTION_NS:
                    self._names = (changed, frozenset(os.listdir(self._layout.sessions)))  # noqa: PTH208 - the names
                return self._names[1]
            return frozenset()

        return await anyio.to_thread.run_sync(look)

    def events(self, session: str, *, run: str | None = None) -> EventReader | UnsavedReader:
        stored, waiting = self._reader(session, run), self._waiting(session)
        return UnsavedReader(stored, decode_lines(waiting, run)) if waiting else stored

    def _reader(self, session: str, run: str | None = None) -> EventReader:
        locate = partial(find_run_start, self._layout, run) if run else None
        return EventReader(SessionEventSource(self._folder(session), session, run, locate))

    async def tail(self, session: str, count: int) -> Sequence[EventRecord]:
        waiting = decode_lines(self._waiting(session)[-count:]) if count > 0 else []
        if len(waiting) == count:
            return waiting
        stored = await anyio.to_thread.run_sync(
            read_last_events, self._folder(session), session, count - len(waiting)
        )
        return [*stored, *waiting]

    async def recover(self) -> Sequence[SessionSummary]:
        def work() -> tuple[Sequence[InterruptedRun], Sequence[CachedSummary | None]]:
            runs = list(recover_runs(self._layout, self._limits, self._clock))
            return runs, [self._find_summary(self._layout.session(run.ended.origin.session)) for run in runs]

        runs, found = await anyio.to_thread.run_sync(work)
        for run in runs:
            self._log_interruption(run)
        return [one.summary for one in found if one]

    async def prune(self, *, older_than: float, keep_results: bool = True, vault: Path | None = None) -> PruneReport:
        """Forgets sessions and root logs unchanged for so many seconds: their detail, or all of them."""
        await self.recover()  # what pruning would have to end is told in the logs, too
        pruner = SessionPruner(
            self._layout,
            self._limits,
            now=self._clock(),
            older_than=older_than,
            acquire_lease=self._take_for_pruning,
            vault=vault,
        )

        def work() -> PruneReport:
            with faults.raise_storage_errors(self._whole):
                return pruner.prune(keep_results=keep_results)

        return await anyio.to_thread.run_sync(work)

    def root_events(self, root: str) -> EventReader:
        """Every durable event under a root that is kept, in the order they were written."""
        return EventReader(RootEventSource(self._layout, root))

    def follow(self, root: str, *, past: bool = True) -> EventReader:
        """The events under a root as they are written, for ever; with those of the past first, or without."""
        return EventReader(RootEventSource(self._layout, root, past=past), poll=POLL_INTERVAL)

    @cached_property
    def _host_and_boot(self) -> tuple[str, str | None]:
        return socket.gethostname(), boot_id()

    def _owner(self, session: str, run: str, control: str | None = None) -> LeaseOwner:
        host, boot = self._host_and_boot
        return LeaseOwner(
            session=session,
            run=run,
            pid=os.getpid(),
            host=host,
            boot=boot,
            started=self._clock(),
            control=control,
        )

    async def _open(self, owner: LeaseOwner, *, resumes: bool) -> OpenSession:
        for pause in _OPEN_RETRY_DELAYS:
            await anyio.sleep(pause)
            if resumes and (held := self._records.get(owner.session)) and held.is_late:
                return held.hand_over()
            if resumes and self._unsaved.lines(owner.session):
                raise RefusedError(faults.not_resumable(owner.session))
            if resumes:
                opened = await self._resume_in_thread(owner)
            else:
                # A few quick calls, and appending blocks the loop no less; an old session must be read.
                opened = create_session(self._layout, self._limits, owner)
            if opened:
                return opened
        raise RefusedError(busy_failure(owner.session, read_owner(self._layout.lease(owner.session))))

    async def _resume_in_thread(self, owner: LeaseOwner) -> OpenSession | None:
        """The session, opened in a thread; whoever is cancelled meanwhile leaves it free."""
        found: list[OpenSession | RefusedError | None] = []

        async def work() -> None:
            try:
                found.append(
                    await anyio.to_thread.run_sync(resume_session, self._layout, self._limits, owner, self._clock)
                )
            except RefusedError as refusal:
                found.append(refusal)

        try:
            # In a task of its own: asyncio's own cancelling knows no shields, and would leave the thread alone.
            async with anyio.create_task_group() as group:
                group.start_soon(work)
        except anyio.get_cancelled_exc_class():
            for opened in found:
                if isinstance(opened, OpenSession):
                    self._abandon(opened)
            raise
        (answer,) = found
        if isinstance(answer, RefusedError):
            raise answer
        return answer

    def _abandon(self, opened: OpenSession) -> None:
        """Closes a session in which nothing has begun."""
        if opened.interrupted:
            self._log_interruption(opened.interrupted)
        opened.writer.close()
        if opened.lease:
            opened.lease.release()

    def _folder(self, session: str) -> Path:
        """The folder of a session; for what is no id, one that never exists."""
        return self._layout.session(session) if parse_id_digits(session) else self._layout.sessions / "-"

    def _take_for_pruning(self, session: str) -> SessionLease | None:
        return acquire_lease(self._layout.lease(session), self._owner(session, "(pruning)"))

    def _indexed_records(self, *, refresh: bool) -> IndexedRecords:
        sessions = self._layout.sessions

        def all_stamps() -> Mapping[str, RecordStamp]:
            with faults.raise_storage_errors(self._whole):
                return read_stamps(sessions)

        return IndexedRecords(all_stamps, lambda name: self._find_summary(sessions / name), refresh=refresh)

    def _find_summary(self, folder: Path) -> CachedSummary | None:
        return find_summary(self._layout, folder, self._is_live)

    def _waiting(self, session: str) -> Sequence[bytes]:
        """The lines of a session that are not written: of a run that goes on or has ended, or that was given up."""
        record = self._records.get(session)
        return (*self._unsaved.lines(session), *(record.waiting if record else ()))

    def _unwritten(self) -> Sequence[str]:
        """The sessions of which something is not written."""
        return (*(session for session, record in self._records.items() if record.waiting_bytes), *self._unsaved)

    def _is_live(self, session: str) -> bool:
        if record := self._records.get(session):
            return not record.is_late
        return is_held(self._layout.lease(session))

    def _find_session_id(self, session_filter: str) -> str | None:
        """The full id of the session whose id begins like this; None if none has begun."""
        with faults.raise_storage_errors(f"Session {session_filter}"):
            head = read_header(session_segments(self._folder(session_filter)))
        return head.id if isinstance(head, SegmentHeader) and head.id.startswith(session_filter) else None

    def _log_interruption(self, run: InterruptedRun) -> None:
        root, vault = run.ended.origin.root, run.vault
        self._logs.open(root, vault).append(run.ended, to_line(run.ended))
        self._logs.close(root, vault)

    def _release_log(self, session: str, root: str, vault: str | None) -> None:
        self._records.pop(session, None)
        self._logs.close(root, vault)
