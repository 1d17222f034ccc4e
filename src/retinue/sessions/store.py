"""What a store of sessions promises. The record is append-only; everything else is derived from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded
from retinue.model.results import Usage
from retinue.model.runs import RunSpec


class LeaseOwner(Struct, frozen=True, kw_only=True):
    """Who carries out a session's current run."""

    session: str
    run: str
    pid: int
    host: str
    started: float
    """Wall clock."""
    boot: str | None = None
    """Tells a process from one with the same number before the machine started anew."""
    control: str | None = None
    """Socket on which the process takes orders."""


INTERRUPTED = Failure(
    ErrorCode.INTERRUPTED,
    "Session was interrupted (main agent session ended unexpectedly)",
)


class SessionState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"


class RunSummary(Struct, frozen=True, kw_only=True):
    """One run of a session, as a list shows it."""

    run: str
    state: SessionState
    started: float
    """Wall clock."""
    ended: float | None = None
    elapsed: float = 0.0
    failure: Failure | None = None
    exit_code: int = 0
    usage: Usage = Usage()
    queued: float = 0.0
    """When it was accepted."""
    tools: int = 0
    """Calls of tools, once it has ended."""


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session as a list shows it: known without reading its record whole."""

    session: str
    name: str
    agent: str
    task: str
    """Of the latest run."""
    cwd: str
    surface: str
    engine: str
    model: str | None = None
    provider: str | None = None
    root: str
    """The conversation of the latest run."""
    begun_in: str = ""
    """The conversation of the first run: another, where someone else has continued the session."""
    parent_run: str | None = None
    """The run that asked for the session: whoever continues it, its place in a tree stays."""
    parent_call: str = ""
    """The tool call that did."""
    depth: int = 1
    timeout: float = 0.0
    """Of the latest run."""
    created: float
    updated: float
    runs: int
    latest: RunSummary
    preview: str = ""
    """First line of the latest answer or failure."""
    file: str | None = None
    """The newest part of its record."""
    size_bytes: int = 0
    damaged: int = 0
    """Records that could not be read and were skipped."""

    @property
    def search_text(self) -> str:
        """What a search looks in, in the case it looks for."""
        return f"{self.name}\n{self.agent}\n{self.task}\n{self.preview}".casefold()


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions are asked for; None asks for any."""

    limit: int | None = None
    """At most so many, the last changed first."""
    root: str | None = None
    begun_in: str | None = None
    agent: str | None = None
    engine: str | None = None
    state: SessionState | None = None
    text: str | None = None
    """Looked for in name, agent, task and preview, whatever the case."""
    before: tuple[float, str] | None = None
    """Only what comes after this in the list: the time and the id of the last that was seen."""

    def matches(self, summary: SessionSummary) -> bool:
        """Whether a session is one of these, whatever the limit and wherever it stands."""
        return (
            self.root in {None, summary.root}
            and self.begun_in in {None, summary.begun_in}
            and self.agent in {None, summary.agent}
            and self.engine in {None, summary.engine}
            and self.state in {None, summary.latest.state}
            and (self.text is None or self.text.casefold() in summary.search_text)
        )


EVERY_SESSION = SessionFilter()
"""Every session."""


class Conversation(Struct, frozen=True, kw_only=True):
    """A root conversation, with the sessions under it."""

    root: str
    updated: float
    """When one of the sessions that were asked for was last changed."""
    count: int
    """Of its sessions, all of them."""
    sessions: Sequence[SessionSummary]
    """The last changed first, those that were asked for before the others; not more than were wanted."""


class StoredEvents(Protocol):
    """Events being read, in the order they were written: an async iterator."""

    def __aiter__(self) -> AsyncIterator[EventRecord]: ...

    async def __anext__(self) -> EventRecord: ...

    @property
    def damaged_count(self) -> int:
        """Records met so far that could not be read and were skipped."""


class RunRecord(Protocol):
    """The durable record of one run while it goes on. Holds the session's lease."""

    @property
    def file(self) -> str | None:
        """Where the record is, if it is a file."""

    @property
    def fault(self) -> Failure | None:
        """Why not everything appended so far is stored; None when it is."""

    def append(self, stamped: EventRecord) -> None:
        """Writes one event. Never raises for storage: see `fault`; what could not be written is tried again.

        What comes after the session was given free is not stored.
        """

    async def sync(self) -> None:
        """Returns when everything appended is as durable as the store can make it."""

    async def release(self) -> None:
        """Ends the record and gives the session free. Bounded, never raises."""


class SessionStore(Protocol):
    """Where sessions are remembered."""

    def claim(self, session: str | None = None) -> str:
        """A new id of 128 bits (32 hex digits) whose first 8 digits no other session or run has.

        For a new session, or for a later run of the given one; never fails: see `RunRecord.fault`.
        """

    async def open_record(self, spec: RunSpec) -> RunRecord:
        """Leases the session of the spec and opens its record for one more run.

        A new session that cannot be written begins all the same, with its `fault` set.

        Raises:
            Refused: `session_not_found`, `session_busy` or `storage`, for a spec that resumes.
        """

    async def find(self, name: str) -> str | None:
        """The id of the session that this id, or prefix of at least 8 hex digits, names; None if there is none.

        Ids of runs name their session; dashes are ignored.

        Raises:
            Refused: `storage`: there is one, and it cannot be read.
        """

    async def is_locked(self, session: str) -> bool:
        """Whether a live process holds the session's lease."""

    async def summary(self, session: str) -> SessionSummary | None: ...

    async def list(self, session_filter: SessionFilter = EVERY_SESSION) -> Sequence[SessionSummary]:
        """Sessions, last changed first, without reading their records whole.

        Raises:
            Refused: `storage`: none can be read. One that cannot be read alone is listed with its failure.
        """

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int
    ) -> Sequence[Conversation]:
        """Root conversations with such a session, last changed first, each with at most so many of its sessions.

        Limit and place in the list are the conversations'.

        Raises:
            Refused: `storage`: none can be read.
        """

    def events(self, session: str, *, run: str | None = None) -> StoredEvents:
        """The events of a session, or of one of its runs, from the first, in the order they were written.

        Raises:
            Refused: `storage`, while it is read.
        """

    async def tail(self, session: str, count: int) -> Sequence[EventRecord]:
        """The last events of a session, at a cost that does not grow with its size.

        Raises:
            Refused: `storage`.
        """

    async def recover(self) -> Sequence[SessionSummary]:
        """Ends the runs whose owner is gone, as `INTERRUPTED` with what they had; returns their sessions."""


def sort_sessions(summaries: Iterable[SessionSummary], session_filter: SessionFilter) -> list[SessionSummary]:
    """The wanted ones among sessions, last changed first."""
    found = sorted(filter(session_filter.matches, summaries), key=lambda each: (-each.updated, each.session))
    return [each for each in found if _is_after(session_filter, each.updated, each.session)][: session_filter.limit]


def group_conversations(
    summaries: Iterable[SessionSummary], session_filter: SessionFilter, max_sessions: int
) -> list[Conversation]:
    """The root conversations of the wanted ones, each with at most so many of its sessions."""
    groups: dict[str, list[SessionSummary]] = {}
    for each in sort_sessions(summaries, EVERY_SESSION):
        groups.setdefault(each.root, []).append(each)
    found = []
    for root, sessions in groups.items():
        sessions.sort(key=lambda each: not session_filter.matches(each))
        first = sessions[0]
        if session_filter.matches(first) and _is_after(session_filter, first.updated, root):
            group = Conversation(
                root=root, updated=first.updated, count=len(sessions), sessions=sessions[:max_sessions]
            )
            found.append(group)
    return sorted(found, key=lambda group: (-group.updated, group.root))[: session_filter.limit]


def _is_after(session_filter: SessionFilter, updated: float, name: str) -> bool:
    return session_filter.before is None or (-updated, name) > (-session_filter.before[0], session_filter.before[1])


async def sum_usage_under(store: SessionStore, root: str) -> Usage:
    """Return what all ended runs under a root conversation consumed.

    Raises:
        Refused: `storage`.
    """
    # Others may have continued what was begun under it, and it may have continued what others had begun.
    found = [*await store.list(SessionFilter(root=root)), *await store.list(SessionFilter(begun_in=root))]
    usage = Usage()
    for session in {each.session: each for each in found}.values():
        usage += session.latest.usage if session.runs == 1 else await _sum_all_runs(store, session, root)
    return usage


async def _sum_all_runs(store: SessionStore, session: SessionSummary, root: str) -> Usage:
    """The summary knows the latest run only, and others may have belonged to another conversation."""
    usage = Usage()
    with suppress(RefusedError):  # what cannot be read any more is not counted, and keeps nobody from going on
        async for stamped in store.events(session.session):
            if stamped.origin.root == root and isinstance(stamped.event, RunEnded):
                usage += stamped.event.usage
    return usage
