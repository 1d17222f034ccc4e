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

from retinue.events import Stamped, to_line
from retinue.sessions import faults
from retinue.sessions.claims import Claim, claim, random_id, read_claim
from retinue.sessions.flusher import Flusher
from retinue.sessions.framing import Header
from retinue.sessions.index import Index, Records, Stamp, stamps
from retinue.sessions.lease import Lease, boot_id, busy, is_held, live_owners, read_owner, take
from retinue.sessions.opening import Opened, create, resume
from retinue.sessions.owner import Owner
from retinue.sessions.parts import session_parts
from retinue.sessions.paths import Layout, digits
from retinue.sessions.reading import EventReader, SessionSource, last_events, read_header
from retinue.sessions.record import RELEASE, FileRecord
from retinue.sessions.recover import Interrupted, recover
from retinue.sessions.retention import Pruned, Pruner
from retinue.sessions.rotating import RootLogs, RootSource
from retinue.sessions.store import ALL, Conversation, SessionSummary, Wanted
from retinue.sessions.summary import Found, find_beginning, find_summary
from retinue.sessions.unsaved import UnsavedReader, UnsavedSessions, decode_lines, find_unsaved, summarize
from retinue.sessions.writer import Bounds
from retinue.types import Refused, RunSpec

POLL = 0.1
"""Seconds between two looks of a follower."""
_A_MOMENT = 2 * 10**9
"""Nanoseconds in which a folder that changed is read again."""
_PATIENCE = (0.0, 0.01, 0.03, 0.06)
"""Pauses before a session is called busy: others look at its lease for an instant, too."""


class JsonlStore:
    """The store of one state folder. Reading needs no more; runs are recorded while its `async with` block lasts."""

    def __init__(
        self,
        folder: Path,
        *,
        bounds: Bounds = Bounds(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self.control: Callable[[], str | None] = lambda: None
        """Says on which socket this process takes orders: asked when a run begins, and noted in its lease."""
        self._layout = Layout(folder)
        self._whole = f"The state folder {folder}"
        self._bounds = bounds
        self._clock = clock
        self._new_id = new_id
        self._index = Index(self._layout.index)
        self._logs = RootLogs(self._layout, bounds)
        self._records: dict[str, FileRecord] = {}
        self._names: tuple[int, frozenset[str]] = (0, frozenset())
        self._flusher: Flusher | None = None
        self._unsaved = UnsavedSessions()

    async def __aenter__(self) -> Self:
        self._flusher = Flusher()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._flusher.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(RELEASE, shield=True):
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
        return claim(self._layout, session, self._new_id)

    async def begin(self, spec: RunSpec) -> FileRecord:
        flusher = self._flusher
        if flusher is None:
            raise RuntimeError("runs are recorded within `async with store:` only")
        opened = await self._open(self._owner(spec.session, spec.run, self.control()), resumes=spec.resumes)
        if opened.interrupted:
            self._log(opened.interrupted)
        root, vault = spec.lineage.root, spec.vault
        record = FileRecord(
            layout=self._layout,
            claim=Claim(spec.session, spec.run),
            opened=opened,
            log=self._logs.open(root, vault),
            flusher=flusher,
            closed=partial(self._closed, spec.session, root, vault),
            unsaved=partial(self._unsaved.add, spec.session),
        )
        self._records[spec.session] = record
        return record

    async def find(self, name: str) -> str | None:
        await anyio.lowlevel.checkpoint()
        wanted = digits(name)
        if wanted is None:
            return None
        if held := find_unsaved(wanted, self._unwritten(), self._waiting):
            return held
        if claimed := read_claim(self._layout.session(wanted)):
            found, _ = claimed
            return self._begun(found.session) if found.run.startswith(wanted) else None
        return self._begun(wanted)

    async def busy(self, session: str) -> bool:
        await anyio.lowlevel.checkpoint()
        return digits(session) is not None and self._is_live(session)

    async def owner(self, session: str) -> Owner | None:
        """Who carries out the session's current run; None if nobody does, or its lease does not say."""
        return read_owner(self._layout.lease(session)) if await self.busy(session) else None

    async def owners(self) -> Sequence[Owner]:
        """Everyone who carries out a run in this state folder at this moment.

        Raises:
            Refused: `storage`.
        """

        def look() -> Sequence[Owner]:
            with faults.refusing(self._whole):
                return tuple(live_owners(self._layout.leases))

        return await anyio.to_thread.run_sync(look)

    async def summary(self, session: str) -> SessionSummary | None:
        if self._waiting(session):
            events = [stamped async for stamped in self.events(session)]
            return summarize(session, events, live=self._is_live(session))
        found = await anyio.to_thread.run_sync(self._find_summary, self._folder(session))
        return found.summary if found and session.startswith(found.summary.session) else None

    async def list(self, wanted: Wanted = ALL, *, look: bool = True) -> Sequence[SessionSummary]:
        """Sessions, last changed first; without a look at the records, as they were when someone last looked."""
        return await anyio.to_thread.run_sync(lambda: self._index.list(self._records_of(look=look), wanted))

    async def conversations(self, wanted: Wanted = ALL, *, most: int, look: bool = True) -> Sequence[Conversation]:
        def answer() -> Sequence[Conversation]:
            return self._index.conversations(self._records_of(look=look), wanted, most)

        return await anyio.to_thread.run_sync(answer)

    async def names(self) -> frozenset[str]:
        """The first digits of every id there is, of sessions and of later runs; quick however many there are.

        Raises:
            Refused: `storage`.
        """

        def look() -> frozenset[str]:
            with faults.refusing(self._whole), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                changed = self._layout.sessions.stat().st_mtime_ns
                # A clock that ticks coarsely: what changed a moment ago may change again at the same time.
                if changed != self._names[0] or time.time_ns() - changed < _A_MOMENT:
                    self._names = (changed, frozenset(os.listdir(self._layout.sessions)))  # noqa: PTH208 - the names
                return self._names[1]
            return frozenset()

        return await anyio.to_thread.run_sync(look)

    def events(self, session: str, *, run: str | None = None) -> EventReader | UnsavedReader:
        stored, waiting = self._reader(session, run), self._waiting(session)
        return UnsavedReader(stored, decode_lines(waiting, run)) if waiting else stored

    def _reader(self, session: str, run: str | None = None) -> EventReader:
        locate = partial(find_beginning, self._layout, run) if run else None
        return EventReader(SessionSource(self._folder(session), session, run, locate))

    async def tail(self, session: str, count: int) -> Sequence[Stamped]:
        waiting = decode_lines(self._waiting(session)[-count:]) if count > 0 else []
        if len(waiting) == count:
            return waiting
        stored = await anyio.to_thread.run_sync(last_events, self._folder(session), session, count - len(waiting))
        return [*stored, *waiting]

    async def recover(self) -> Sequence[SessionSummary]:
        def work() -> tuple[Sequence[Interrupted], Sequence[Found | None]]:
            runs = list(recover(self._layout, self._bounds, self._clock))
            return runs, [self._find_summary(self._layout.session(run.ended.origin.session)) for run in runs]

        runs, found = await anyio.to_thread.run_sync(work)
        for run in runs:
            self._log(run)
        return [one.summary for one in found if one]

    async def prune(self, *, older_than: float, keep_results: bool = True, vault: Path | None = None) -> Pruned:
        """Forgets sessions and root logs unchanged for so many seconds: their detail, or all of them."""
        await self.recover()  # what pruning would have to end is told in the logs, too
        pruner = Pruner(
            self._layout,
            self._bounds,
            now=self._clock(),
            older_than=older_than,
            take=self._take_for_pruning,
            vault=vault,
        )

        def work() -> Pruned:
            with faults.refusing(self._whole):
                return pruner.prune(keep_results=keep_results)

        return await anyio.to_thread.run_sync(work)

    def root_events(self, root: str) -> EventReader:
        """Every durable event under a root that is kept, in the order they were written."""
        return EventReader(RootSource(self._layout, root))

    def follow(self, root: str, *, past: bool = True) -> EventReader:
        """The events under a root as they are written, for ever; with those of the past first, or without."""
        return EventReader(RootSource(self._layout, root, past=past), poll=POLL)

    @cached_property
    def _host_and_boot(self) -> tuple[str, str | None]:
        return socket.gethostname(), boot_id()

    def _owner(self, session: str, run: str, control: str | None = None) -> Owner:
        host, boot = self._host_and_boot
        return Owner(
            session=session,
            run=run,
            pid=os.getpid(),
            host=host,
            boot=boot,
            started=self._clock(),
            control=control,
        )

    async def _open(self, owner: Owner, *, resumes: bool) -> Opened:
        for pause in _PATIENCE:
            await anyio.sleep(pause)
            if resumes and (held := self._records.get(owner.session)) and held.is_late:
                return held.hand_over()
            if resumes and self._unsaved.lines(owner.session):
                raise Refused(faults.not_resumable(owner.session))
            if resumes:
                opened = await self._resumed(owner)
            else:
                # A few quick calls, and appending blocks the loop no less; an old session must be read.
                opened = create(self._layout, self._bounds, owner)
            if opened:
                return opened
        raise Refused(busy(owner.session, read_owner(self._layout.lease(owner.session))))

    async def _resumed(self, owner: Owner) -> Opened | None:
        """The session, opened in a thread; whoever is cancelled meanwhile leaves it free."""
        found: list[Opened | Refused | None] = []

        async def work() -> None:
            try:
                found.append(await anyio.to_thread.run_sync(resume, self._layout, self._bounds, owner, self._clock))
            except Refused as refusal:
                found.append(refusal)

        try:
            # In a task of its own: asyncio's own cancelling knows no shields, and would leave the thread alone.
            async with anyio.create_task_group() as group:
                group.start_soon(work)
        except anyio.get_cancelled_exc_class():
            for opened in found:
                if isinstance(opened, Opened):
                    self._give_up(opened)
            raise
        (answer,) = found
        if isinstance(answer, Refused):
            raise answer
        return answer

    def _give_up(self, opened: Opened) -> None:
        """Closes a session in which nothing has begun."""
        if opened.interrupted:
            self._log(opened.interrupted)
        opened.writer.close()
        if opened.lease:
            opened.lease.release()

    def _folder(self, session: str) -> Path:
        """The folder of a session; for what is no id, one that never exists."""
        return self._layout.session(session) if digits(session) else self._layout.sessions / "-"

    def _take_for_pruning(self, session: str) -> Lease | None:
        return take(self._layout.lease(session), self._owner(session, "(pruning)"))

    def _records_of(self, *, look: bool) -> Records:
        sessions = self._layout.sessions

        def all_stamps() -> Mapping[str, Stamp]:
            with faults.refusing(self._whole):
                return stamps(sessions)

        return Records(all_stamps, lambda name: self._find_summary(sessions / name), look=look)

    def _find_summary(self, folder: Path) -> Found | None:
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

    def _begun(self, wanted: str) -> str | None:
        """The full id of the session whose id begins like this; None if none has begun."""
        with faults.refusing(f"Session {wanted}"):
            head = read_header(session_parts(self._folder(wanted)))
        return head.id if isinstance(head, Header) and head.id.startswith(wanted) else None

    def _log(self, run: Interrupted) -> None:
        root, vault = run.ended.origin.root, run.vault
        self._logs.open(root, vault).append(run.ended, to_line(run.ended))
        self._logs.close(root, vault)

    def _closed(self, session: str, root: str, vault: str | None) -> None:
        self._records.pop(session, None)
        self._logs.close(root, vault)
