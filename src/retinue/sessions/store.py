"""The protocols of session stores and the values they return. Records are append-only; all else is derived."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct
from msgspec.structs import asdict

from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded
from retinue.model.results import Usage
from retinue.model.runs import RunSpec

if TYPE_CHECKING:
    from pathlib import Path


class LeaseOwner(Struct, frozen=True, kw_only=True):
    """The process that executes a session's current run."""

    session: str
    run: str
    pid: int
    host: str
    started: float
    """Wall clock."""
    boot: str | None = None
    """Distinguishes a process from one with the same number before the machine restarted."""
    control: str | None = None
    """The control socket of the process."""


INTERRUPTED = Failure(ErrorCode.INTERRUPTED, "Session was interrupted (main agent session ended unexpectedly)")


class SessionState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"


class RunOutcome(StrEnum):
    """The state of a run, with the reason if it did not complete."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


_OUTCOMES = {
    ErrorCode.TIMEOUT: RunOutcome.TIMED_OUT,
    ErrorCode.IDLE_TIMEOUT: RunOutcome.TIMED_OUT,
    ErrorCode.ABORTED: RunOutcome.CANCELLED,
    ErrorCode.INTERRUPTED: RunOutcome.INTERRUPTED,
}


def find_outcome(state: SessionState, failure: Failure | None) -> RunOutcome:
    """Return the outcome of a run with this state and failure."""
    if state is not SessionState.ERROR:
        return RunOutcome(state.value)
    return _OUTCOMES.get(failure.code, RunOutcome.FAILED) if failure else RunOutcome.FAILED


def describe_outcome(outcome: RunOutcome, failure: Failure | None) -> str:
    """Return the outcome in words, such as `completed` or `timed out`; a failed run has its code: `failed (loop)`."""
    text = outcome.replace("_", " ")
    return f"{text} ({failure.code})" if failure and outcome is RunOutcome.FAILED else text


class SearchField(StrEnum):
    """The part of a session in which a text was found."""

    NAME = "name"
    AGENT = "agent"
    TASK = "task"
    ANSWER = "answer"
    FAILURE = "failure"
    TOOL_CALL = "tool_call"
    TOOL_OUTPUT = "tool_output"


class SearchMatch(Struct, frozen=True):
    """Where a text was found in a session."""

    field: SearchField
    snippet: str
    """The text with a few words around it, on one sanitized line."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """One run of a session, as lists show it."""

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
    """Number of tool calls, once it has ended."""

    @property
    def outcome(self) -> RunOutcome:
        return find_outcome(self.state, self.failure)


class SessionSummary(Struct, frozen=True, kw_only=True):
    """A session as lists show it: available without reading the whole record."""

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
    """The conversation of the first run: another one if a different conversation continued the session."""
    parent_run: str | None = None
    """The run that started the session; continuing the session does not change it."""
    parent_call: str = ""
    """The tool call that started the session."""
    depth: int = 1
    timeout: float = 0.0
    """Of the latest run."""
    created: float
    updated: float
    runs: int
    latest: RunSummary
    preview: str = ""
    """First sentence of the latest answer or failure."""
    file: str | None = None
    """The newest part of its record."""
    size_bytes: int = 0
    damaged: int = 0
    """Records that could not be read and were skipped."""
    match: SearchMatch | None = None
    """Where the text of the filter was found; None in lists without a search."""

    @property
    def search_text(self) -> str:
        """The short texts that every search covers, normalized."""
        return "\n".join(map(normalize_search_text, (self.name, self.agent, self.task, self.preview)))


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Conditions on sessions; None matches any value."""

    limit: int | None = None
    """Largest number of results, last changed first."""
    root: str | None = None
    begun_in: str | None = None
    agent: str | None = None
    engine: str | None = None
    state: SessionState | None = None
    text: str | None = None
    """Searched literally in names, tasks, answers and tool calls of all runs, ignoring case and line breaks."""
    outcome: RunOutcome | None = None
    model: str | None = None
    cwd: str | None = None
    since: float | None = None
    """Changed at this time or later."""
    until: float | None = None
    """Changed before this time."""
    min_cost: float | None = None
    """Dollars of the latest run; a run without a known price does not match."""
    min_elapsed: float | None = None
    """Seconds of the latest run, once it has ended."""
    before: tuple[float, str] | None = None
    """Only entries after this one in the list: the time and the id of the last entry seen."""

    def matches(self, summary: SessionSummary) -> bool:
        """Return whether a session matches, apart from `limit` and `before`."""
        return (
            self.root in {None, summary.root}
            and self.begun_in in {None, summary.begun_in}
            and self.agent in {None, summary.agent}
            and self.engine in {None, summary.engine}
            and self.state in {None, summary.latest.state}
            and (self.text is None or self._matches_text(summary, self.text))
            and self.model in {None, summary.model}
            and self.cwd in {None, summary.cwd}
            and self._matches_run(summary)
        )

    def _matches_text(self, summary: SessionSummary, text: str) -> bool:
        return summary.match is not None or normalize_search_text(text) in summary.search_text

    def _matches_run(self, summary: SessionSummary) -> bool:
        latest = summary.latest
        return (
            self.outcome in {None, latest.outcome}
            and (self.since is None or summary.updated >= self.since)
            and (self.until is None or summary.updated < self.until)
            and (self.min_cost is None or (latest.usage.cost is not None and latest.usage.cost >= self.min_cost))
            and (self.min_elapsed is None or latest.elapsed >= self.min_elapsed)
        )


EVERY_SESSION = SessionFilter()


def normalize_search_text(text: str) -> str:
    """Return a text as searches compare it: case-folded, every run of white space and NUL one space."""
    return " ".join(text.replace("\0", " ").split()).casefold()


class Conversation(Struct, frozen=True, kw_only=True):
    """A root conversation, with the sessions under it."""

    root: str
    updated: float
    """When the last of its matching sessions changed."""
    count: int
    """Number of all its sessions."""
    sessions: Sequence[SessionSummary]
    """Its sessions up to the requested number: matching ones first, then last changed first."""


class PruneReport(Struct, frozen=True, kw_only=True):
    """Counts of what pruning deleted."""

    thinned: int = 0
    """Sessions that lost their details and kept their results."""
    removed: int = 0
    """Sessions that were deleted."""
    skipped: int = 0
    """Old sessions that were not changed: in use, or the disk refused."""
    logs: int = 0
    """Deleted files of root conversation logs."""
    freed_bytes: int = 0

    def __add__(self, other: PruneReport) -> PruneReport:
        return PruneReport(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


class IndexProgress(Struct, frozen=True):
    """The state of an index that is being read from the records."""

    done: int
    total: int
    scans_records: bool = False
    """Whether searches read the records, because SQLite has no full-text index here."""

    @property
    def is_complete(self) -> bool:
        return self.done >= self.total


class StoredEvents(Protocol):
    """Stored events in the order they were written, as an async iterator."""

    def __aiter__(self) -> AsyncIterator[EventRecord]: ...

    async def __anext__(self) -> EventRecord: ...

    @property
    def damaged_count(self) -> int:
        """Number of unreadable records skipped so far."""


class RunRecord(Protocol):
    """The durable record of one active run. Holds the session's lease."""

    @property
    def file(self) -> str | None:
        """Path of the record, if it is a file."""

    @property
    def fault(self) -> Failure | None:
        """The reason why not everything appended is stored; None if it is."""

    def append(self, stamped: EventRecord) -> None:
        """Write one event. Never raises for storage: see `fault`; a failed write is retried.

        Events after the release are not stored.
        """

    async def sync(self) -> None:
        """Wait until everything appended is as durable as the store can make it."""

    async def release(self) -> None:
        """End the record and release the session. Bounded, never raises."""


class SessionStore(Protocol):
    """A store of sessions: what every store has."""

    def claim(self, session: str | None = None) -> str:
        """Return a new id of 128 bits (32 hex digits) whose first 8 digits no other session or run has.

        For a new session, or for a later run of the given one; never fails: see `RunRecord.fault`.
        """

    async def open_record(self, spec: RunSpec) -> RunRecord:
        """Lease the session of the spec and open its record for one more run.

        A new session that cannot be written starts all the same, with its `fault` set.

        Raises:
            RefusedError: `session_not_found`, `session_busy` or `storage`, for a spec that resumes.
        """

    async def find(self, name: str) -> str | None:
        """Return the id of the session that an id, or prefix of at least 8 hex digits, names; None if there is none.

        Ids of runs name their session; dashes are ignored.

        Raises:
            RefusedError: `storage`: the session exists and cannot be read.
        """

    async def is_locked(self, session: str) -> bool:
        """Return whether a live process holds the session's lease."""

    async def summary(self, session: str) -> SessionSummary | None: ...

    async def list(self, session_filter: SessionFilter = EVERY_SESSION) -> Sequence[SessionSummary]:
        """Return the sessions that match the filter, last changed first, without reading whole records.

        A search looks into the events of all runs, and its results have a `match`.

        Raises:
            RefusedError: `storage`: none can be read. A single unreadable session is listed with its failure.
        """

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int
    ) -> Sequence[Conversation]:
        """Return the root conversations with a matching session, last changed first, with their first sessions.

        `limit` and `before` of the filter apply to conversations.

        Raises:
            RefusedError: `storage`: none can be read.
        """

    def events(self, session: str, *, run: str | None = None) -> StoredEvents:
        """Return the events of a session, or of one of its runs, from the first, in the order they were written.

        Raises:
            RefusedError: `storage`, while it is read.
        """

    async def tail(self, session: str, count: int) -> Sequence[EventRecord]:
        """Return the last events of a session, at a cost that does not grow with its size.

        Raises:
            RefusedError: `storage`.
        """

    async def recover(self) -> Sequence[SessionSummary]:
        """End the runs whose process is gone, as `INTERRUPTED` with what they had; return their sessions."""


@runtime_checkable
class LocalSessionStore(SessionStore, Protocol):
    """A store that the processes of this machine share, and find each other's runs by."""

    async def open_record(self, spec: RunSpec, *, control: str | None = None) -> RunRecord:
        """Open a record as every store does; `control` is the socket by which other processes reach the run."""

    async def list(
        self, session_filter: SessionFilter = EVERY_SESSION, *, refresh: bool = True
    ) -> Sequence[SessionSummary]:
        """Return sessions as every store does; without `refresh`, as they were last read."""

    async def conversations(
        self, session_filter: SessionFilter = EVERY_SESSION, *, max_sessions: int, refresh: bool = True
    ) -> Sequence[Conversation]:
        """Return conversations as every store does; without `refresh`, as they were last read."""

    def has_scanned_records(self) -> bool:
        """Return whether the last search read every record, because there is no full-text index here."""

    async def advance_index(self, max_seconds: float, *, for_search: bool = False) -> IndexProgress:
        """Read changed records into the index for at most so many seconds, the latest first.

        Then lists without `refresh` have what was read. `for_search` advances the full-text index, too.
        """

    async def names(self) -> frozenset[str]:
        """Return the first 8 digits of the id of every session and later run, at a low cost."""

    async def owners(self) -> Sequence[LeaseOwner]:
        """Return the processes that execute runs now."""

    async def prune(self, *, older_than: float, keep_results: bool = True, vault: Path | None = None) -> PruneReport:
        """Delete the details of sessions unchanged for so many seconds, or all of them without `keep_results`."""

    def root_events(self, root: str) -> StoredEvents:
        """Return the stored events of a root conversation, in the order they were written."""

    def follow(self, root: str) -> StoredEvents:
        """Return the stored events of a root conversation, then those to come, without end."""


def sort_sessions(summaries: Iterable[SessionSummary], session_filter: SessionFilter) -> list[SessionSummary]:
    """Return the sessions that match the filter, last changed first."""
    found = sorted(filter(session_filter.matches, summaries), key=lambda each: (-each.updated, each.session))
    return [each for each in found if _is_after(session_filter, each.updated, each.session)][: session_filter.limit]


def group_conversations(
    summaries: Iterable[SessionSummary], session_filter: SessionFilter, max_sessions: int
) -> list[Conversation]:
    """Return the root conversations of matching sessions, each with at most `max_sessions` of its sessions."""
    groups: dict[str, list[SessionSummary]] = {}
    for each in sort_sessions(summaries, EVERY_SESSION):
        groups.setdefault(each.root, []).append(each)
    found = []
    for root, sessions in groups.items():
        sessions.sort(key=lambda each: not session_filter.matches(each))
        first = sessions[0]
        if session_filter.matches(first) and _is_after(session_filter, first.updated, root):
            page = sessions[:max_sessions]
            found.append(Conversation(root=root, updated=first.updated, count=len(sessions), sessions=page))
    return sorted(found, key=lambda group: (-group.updated, group.root))[: session_filter.limit]


def _is_after(session_filter: SessionFilter, updated: float, name: str) -> bool:
    return session_filter.before is None or (-updated, name) > (-session_filter.before[0], session_filter.before[1])


async def sum_usage_under(store: SessionStore, root: str) -> Usage:
    """Return the usage of all ended runs under a root conversation.

    Raises:
        RefusedError: `storage`.
    """
    # Other conversations may have continued its sessions, and it may have continued sessions of others.
    found = [*await store.list(SessionFilter(root=root)), *await store.list(SessionFilter(begun_in=root))]
    usage = Usage()
    for session in {each.session: each for each in found}.values():
        usage += session.latest.usage if session.runs == 1 else await _sum_all_runs(store, session, root)
    return usage


async def _sum_all_runs(store: SessionStore, session: SessionSummary, root: str) -> Usage:
    """Sum the runs of a session under a root: its summary has only the latest, and others may have another root."""
    usage = Usage()
    with suppress(RefusedError):  # an unreadable session is not counted: it must not block the conversation
        async for stamped in store.events(session.session):
            if stamped.origin.root == root and isinstance(stamped.event, RunEnded):
                usage += stamped.event.usage
    return usage
