"""Runs and sessions as the API returns them. The OpenAPI document is built from these types.

Names on the wire are camelCase, times are seconds of the wall clock, ids are complete.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from msgspec import Raw, Struct, field

from retinue.model.errors import Failure
from retinue.model.results import AnswerStatus, ExecutionReport, Finalization, Usage
from retinue.model.sandbox import SandboxReport
from retinue.sessions.store import SearchMatch, SessionState


class ApiValue(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """An object of a response. Lists have thousands, none of which refers to itself: no garbage collection."""


Value = TypeVar("Value", bound=Struct)


def copy_fields(source: object, kind: type[Value], **changes: Any) -> Value:
    """Return a struct of another type with the fields of the same names; `changes` replace or add to them."""
    same = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in changes}
    return kind(**same, **changes)


class UsageTotals(Usage, frozen=True, omit_defaults=False):
    """Usage of models, with every key."""


class RunOwner(ApiValue, frozen=True, kw_only=True):
    """The process that executes a run."""

    pid: int
    host: str
    here: bool
    """Whether the process is this server."""


class RunActions(ApiValue, frozen=True, kw_only=True):
    """Commands a run accepts now."""

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
    """The session of the parent run: lists show a session by its latest run, which may be another."""
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
    """The beginning of the task."""
    doing: str
    """A line about the current activity; empty once the run has ended."""
    created: float
    started: float | None
    ended: float | None
    elapsed: float | None
    """Once the run has ended."""
    timeout: float
    tools: int
    """Number of tool calls."""
    turns: int
    usage: UsageTotals
    failure: Failure | None
    preview: str
    """First sentence of the answer or failure."""
    cwd: str
    session_runs: int
    """Number of runs of the session."""
    owner: RunOwner | None
    can: RunActions
    match: SearchMatch | None
    """Where the text of a search was found; null in lists without a search."""


# -- one run ---------------------------------------------------------------------------------------


class AnswerText(ApiValue, frozen=True, kw_only=True):
    """The text of a result and its status."""

    text: str
    kind: AnswerStatus


class AttemptRow(ApiValue, frozen=True, kw_only=True):
    """One attempt of a run."""

    number: int
    reason: str
    model: str | None
    failure: Failure | None
    started: float


class ModelFallback(ApiValue, frozen=True, kw_only=True):
    """A change to a fallback model."""

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
    """A file that a tool call named."""

    path: str
    how: Literal["read", "write", "edit", "search"]
    count: int


class ToolCount(ApiValue, frozen=True, kw_only=True):
    """Calls of one tool."""

    name: str
    count: int
    errors: int
    seconds: float
    """Between the calls and their results."""


class TimeBreakdown(ApiValue, frozen=True, kw_only=True):
    """Time in seconds and cost of a run. Tools that run at the same time count once."""

    queued: float
    model: float
    tools: float
    other: float
    cost: float | None
    nested_cost: float | None
    """Of the child runs."""
    tokens: int


class DeclaredSpec(ApiValue, frozen=True, kw_only=True):
    """The specification of a run when it was accepted."""

    engine: str
    model: str | None
    provider: str | None
    thinking: str | None
    tools: tuple[str, ...]
    timeout: float
    layer: str
    resumes: bool
    sandbox: SandboxReport | None
    """Null without a sandbox."""
    repository: str
    """The repository from which the worktree of the run is made; empty without one."""


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
    """Get a run with all details except its events."""

    task_text: str
    answer: AnswerText | None
    attempts: tuple[AttemptRow, ...]
    fallbacks: tuple[ModelFallback, ...]
    declared: DeclaredSpec | None
    actual: ExecutionReport | None
    masks: int
    notices: tuple[NoticeRow, ...]
    finalized: Finalization | None
    structured: Any
    """The result as a JSON value, where an output schema was given."""
    files_touched: tuple[TouchedFile, ...]
    tools_used: tuple[ToolCount, ...]
    spent: TimeBreakdown
    runs: tuple[SessionRun, ...]
    """Of the session, in order."""
    ancestors: tuple[AncestorRow, ...]
    """The run of the root first."""
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
    """Number of runs that are not listed."""
    total: int
    """Number of all runs of the conversation, those that a filter leaves out included."""


class IndexingProgress(ApiValue, frozen=True, kw_only=True):
    done: int
    """Sessions that are listed."""
    total: int


class ActivityPage(ApiValue, frozen=True, kw_only=True):
    groups: tuple[RunGroup, ...]
    indexing: IndexingProgress | None
    """Null once all sessions are indexed: until then older ones are missing."""
    scans_records: bool
    """True after a search without a full-text index, which reads every record and takes longer."""
    next: str | None
    """The value of `before` for the next page."""
    cursor: str
    """The position of the event stream at which this page was read."""


class FacetCount(ApiValue, frozen=True, kw_only=True):
    value: str
    count: int


class Facets(ApiValue, frozen=True, kw_only=True):
    """For each filter its choices, most frequent first, with the sessions that each would leave."""

    total: int
    """Sessions that the text search finds."""
    matching: int
    """Of them, those that match all filters."""
    outcomes: tuple[FacetCount, ...]
    agents: tuple[FacetCount, ...]
    engines: tuple[FacetCount, ...]
    models: tuple[FacetCount, ...]
    folders: tuple[FacetCount, ...]
    costs: tuple[FacetCount, ...]
    """Dollars or more."""
    durations: tuple[FacetCount, ...]
    """Seconds or more."""
    ages: tuple[FacetCount, ...]
    """Changed within so many days."""


class DayUsage(ApiValue, frozen=True, kw_only=True):
    """Usage of the latest runs of sessions that changed on one day."""

    day: str
    """As in `2026-11-19`."""
    runs: int
    failed: int
    """Failed, timed out, cancelled or interrupted."""
    tokens: int
    cost: float
    """In dollars, of the runs whose price is known."""
    unpriced: int
    """Runs that used tokens at an unknown price."""


class NamedUsage(ApiValue, frozen=True, kw_only=True):
    """Usage by agent or model."""

    name: str
    runs: int
    failed: int
    tokens: int
    cost: float
    unpriced: int


class Statistics(ApiValue, frozen=True, kw_only=True):
    days: tuple[DayUsage, ...]
    """Oldest first; days without runs included."""
    agents: tuple[NamedUsage, ...]
    """Most expensive first."""
    models: tuple[NamedUsage, ...]


class RunPage(ApiValue, frozen=True, kw_only=True):
    runs: tuple[RunRow, ...]
    scans_records: bool
    """True after a search without a full-text index, which reads every record and takes longer."""
    next: str | None
    cursor: str


class RunTree(ApiValue, frozen=True, kw_only=True):
    root: str
    runs: tuple[RunRow, ...]
    more: int
    cursor: str


SpanKind = Literal["model", "tool", "child"]


class Span(ApiValue, frozen=True, kw_only=True):
    """A part of a run: one request to a model, one tool call, or one call of child runs that it waits for."""

    kind: SpanKind
    name: str
    """Of the model or the tool."""
    label: str = ""
    """The tool call in a line."""
    started: float
    ended: float | None = None
    """Null while it lasts."""
    tokens: int = 0
    cost: float | None = None
    failed: bool = False


class RunSpans(ApiValue, frozen=True, kw_only=True):
    run: str
    spans: tuple[Span, ...]
    """In the order of their start."""


class RunTimeline(ApiValue, frozen=True, kw_only=True):
    root: str
    runs: tuple[RunSpans, ...]
    """Parents before children; of large conversations the first 200."""


class EventPage(ApiValue, frozen=True, kw_only=True):
    events: tuple[Raw, ...]
    """As in the schema of events."""
    next: int | None
    """The value of `after` for the next page."""
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
    match: SearchMatch | None
    """Where the text of a search was found; null in lists without a search."""


class SessionPage(ApiValue, frozen=True, kw_only=True):
    sessions: tuple[SessionRow, ...]
    scans_records: bool
    """True after a search without a full-text index, which reads every record and takes longer."""
    next: str | None


class SessionDetail(ApiValue, frozen=True, kw_only=True):
    session: SessionRow
    runs: tuple[SessionRun, ...]
    latest: RunRow


# -- the stream ------------------------------------------------------------------------------------


class StreamedEvent(ApiValue, frozen=True, kw_only=True):
    """The data of a stream message: an event, and the row of its run after the event."""

    event: Raw
    row: RunRow


class ResyncMessage(ApiValue, frozen=True, kw_only=True):
    """The data of a stream message: the events after the requested position are no longer available."""

    cursor: str
    """The position at which the stream continues: reload everything, and follow the stream from there."""


# -- commands and errors ----------------------------------------------------------------------------


class StartResponse(ApiValue, frozen=True, kw_only=True):
    run: RunRow


class StopResponse(ApiValue, frozen=True, kw_only=True):
    run: str
    found: bool
    """Whether the run was active and has been stopped."""
    failure: Failure | None
    """Failure of the run; null if the run had answered before it could be stopped."""


class ExtendResponse(ApiValue, frozen=True, kw_only=True):
    run: str
    timeout: float
    """Timeout of the run now, in seconds."""


class SteerResponse(ApiValue, frozen=True, kw_only=True):
    run: str
    accepted: bool


class PlanTask(ApiValue, frozen=True, kw_only=True):
    agent: str | None
    task: str
    run: str | None
    """Null until the task has started."""
    state: Literal["waiting", "skipped", "queued", "running", "completed", "error"]


class PlanState(ApiValue, frozen=True, kw_only=True):
    plan: str
    mode: Literal["parallel", "chain"]
    state: Literal["running", "completed", "error"]
    created: float
    tasks: tuple[PlanTask, ...]


class PlanList(ApiValue, frozen=True, kw_only=True):
    plans: tuple[PlanState, ...]


class StartPlanResponse(ApiValue, frozen=True, kw_only=True):
    plan: str
    runs: tuple[RunRow, ...]
    """The runs that have started."""


class ErrorDetail(ApiValue, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    message: str
    reason: str | None = None


class ErrorResponse(ApiValue, frozen=True, kw_only=True):
    """The response to a request that failed."""

    error: ErrorDetail
