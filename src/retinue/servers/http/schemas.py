"""What the API tells of runs and sessions, as frozen values: the OpenAPI document is made from them.

Names on the wire are camelCase, times are seconds of the wall clock, ids are whole.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct, field

from retinue.model.errors import Failure
from retinue.model.results import AnswerStatus, ExecutionReport, Finalization, Usage
from retinue.sessions.store import SessionState


class ApiValue(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One object of the wire. A list has thousands: none refers to itself, so nobody need look for circles."""


class UsageTotals(ApiValue, frozen=True, kw_only=True):
    """What models consumed."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """In dollars; null when no provider said."""
    turns: int = 0

    @classmethod
    def from_usage(cls, usage: Usage) -> UsageTotals:
        return cls(
            input=usage.input,
            output=usage.output,
            cache_read=usage.cache_read,
            cache_write=usage.cache_write,
            cost=usage.cost,
            turns=usage.turns,
        )


class RunOwner(ApiValue, frozen=True, kw_only=True):
    """The process that carries a run out."""

    pid: int
    host: str
    here: bool
    """Whether it is this server."""


class RunActions(ApiValue, frozen=True, kw_only=True):
    """What can be done with a run now."""

    cancel: bool = False
    steer: bool = False
    extend: bool = False
    resume: bool = False


class RunRow(ApiValue, frozen=True, kw_only=True):
    """A run in a list."""

    run: str
    session: str
    root: str
    parent_run: str | None
    parent_session: str | None
    """That of the parent run: lists show a session by its latest run, which may be another."""
    parent_tool_use_id: str | None
    depth: int
    name: str
    agent: str
    engine: str
    model: str | None
    provider: str | None
    surface: str
    state: SessionState
    task: str
    """Its beginning."""
    doing: str
    """What it does now, in a line; empty once it has ended."""
    created: float
    started: float | None
    ended: float | None
    elapsed: float | None
    """Once it has ended."""
    timeout: float
    tools: int
    """Calls of tools."""
    turns: int
    usage: UsageTotals
    failure: Failure | None
    preview: str
    """First line of its answer or failure."""
    cwd: str
    session_runs: int
    """How many runs the session has."""
    owner: RunOwner | None
    can: RunActions


# -- one run ---------------------------------------------------------------------------------------


class AnswerText(ApiValue, frozen=True, kw_only=True):
    """The text of a result, and what it is."""

    text: str
    kind: AnswerStatus


class AttemptRow(ApiValue, frozen=True, kw_only=True):
    """One try within a run."""

    number: int
    reason: str
    model: str | None
    failure: Failure | None
    started: float


class ModelFallback(ApiValue, frozen=True, kw_only=True):
    """One model that took over from another."""

    before: str | None = field(name="from")
    after: str = field(name="to")
    reason: str
    time: float


class NoticeRow(ApiValue, frozen=True, kw_only=True):
    """A notice of a run."""

    code: str
    message: str
    time: float


class TouchedFile(ApiValue, frozen=True, kw_only=True):
    """A file that a tool was called for."""

    path: str
    how: Literal["read", "write", "edit", "search"]
    count: int


class ToolCount(ApiValue, frozen=True, kw_only=True):
    """One of the tools that were called."""

    name: str
    count: int
    errors: int
    seconds: float
    """Between its calls and their results."""


class TimeBreakdown(ApiValue, frozen=True, kw_only=True):
    """Where time and money went. Seconds; tools that run at once count once."""

    queued: float
    model: float
    tools: float
    other: float
    cost: float | None
    nested_cost: float | None
    """Of the runs below it."""
    tokens: int


class DeclaredSpec(ApiValue, frozen=True, kw_only=True):
    """What was asked for when the run was accepted."""

    engine: str
    model: str | None
    provider: str | None
    thinking: str | None
    tools: tuple[str, ...]
    timeout: float
    layer: str
    resumes: bool


class SessionRun(ApiValue, frozen=True, kw_only=True):
    run: str
    state: SessionState
    started: float | None
    ended: float | None
    elapsed: float | None
    task: str


class AncestorRow(ApiValue, frozen=True, kw_only=True):
    run: str
    agent: str
    name: str


class RunDetail(RunRow, frozen=True, kw_only=True):
    """Everything there is to know of a run but its events."""

    task_text: str
    answer: AnswerText | None
    attempts: tuple[AttemptRow, ...]
    fallbacks: tuple[ModelFallback, ...]
    declared: DeclaredSpec | None
    actual: ExecutionReport | None
    masks: int
    notices: tuple[NoticeRow, ...]
    finalized: Finalization | None
    files_touched: tuple[TouchedFile, ...]
    tools_used: tuple[ToolCount, ...]
    spent: TimeBreakdown
    runs: tuple[SessionRun, ...]
    """Of its session, in order."""
    ancestors: tuple[AncestorRow, ...]
    """The root's own run first."""
    children: tuple[RunRow, ...]


class ResultText(ApiValue, frozen=True, kw_only=True):
    text: str
    kind: AnswerStatus
    failure: Failure | None


# -- lists -----------------------------------------------------------------------------------------


class RunGroup(ApiValue, frozen=True, kw_only=True):
    """The runs under one root conversation, parents before children."""

    root: str
    updated: float
    live: int
    runs: tuple[RunRow, ...]
    more: int
    """Runs that are not listed here."""


class ActivityPage(ApiValue, frozen=True, kw_only=True):
    groups: tuple[RunGroup, ...]
    next: str | None
    """What `before` gets for the next page."""
    cursor: str
    """Where the stream goes on from this picture."""


class RunPage(ApiValue, frozen=True, kw_only=True):
    runs: tuple[RunRow, ...]
    next: str | None
    cursor: str


class RunTree(ApiValue, frozen=True, kw_only=True):
    root: str
    runs: tuple[RunRow, ...]
    more: int
    cursor: str


class EventPage(ApiValue, frozen=True, kw_only=True):
    events: tuple[Raw, ...]
    """As on the wire everywhere: see the schema of events."""
    next: int | None
    """What `after` gets for the next page."""
    cursor: str


class SessionRow(ApiValue, frozen=True, kw_only=True):
    """A session in a list."""

    session: str
    name: str
    agent: str
    task: str
    cwd: str
    surface: str
    engine: str
    model: str | None
    root: str
    created: float
    updated: float
    runs: int
    state: SessionState
    preview: str
    file: str | None
    size_bytes: int
    damaged: int


class SessionPage(ApiValue, frozen=True, kw_only=True):
    sessions: tuple[SessionRow, ...]
    next: str | None


class SessionDetail(ApiValue, frozen=True, kw_only=True):
    session: SessionRow
    runs: tuple[SessionRun, ...]
    latest: RunRow


# -- the stream ------------------------------------------------------------------------------------


class StreamedEvent(ApiValue, frozen=True, kw_only=True):
    """The data of a message of the stream: an event, and its run as a list shows it from then on."""

    event: Raw
    row: RunRow


class ResyncMessage(ApiValue, frozen=True, kw_only=True):
    """The data of a message of the stream: what came after the place that was asked for is no longer known."""

    cursor: str
    """Where the stream goes on: load everything anew, and follow it from there."""
