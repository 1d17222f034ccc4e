"""What the API tells of runs and sessions, as frozen values: the OpenAPI document is made from them.

Names on the wire are camelCase, times are seconds of the wall clock, ids are whole.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct, field

from retinue.results import Actual, AnswerKind, Finalization
from retinue.sessions.store import State
from retinue.types import Failure, Usage


class Value(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """One object of the wire. A list has thousands: none refers to itself, so nobody need look for circles."""


class Used(Value, frozen=True, kw_only=True, rename="camel"):
    """What models consumed."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """In dollars; null when no provider said."""
    turns: int = 0

    @classmethod
    def of(cls, usage: Usage) -> Used:
        return cls(
            input=usage.input,
            output=usage.output,
            cache_read=usage.cache_read,
            cache_write=usage.cache_write,
            cost=usage.cost,
            turns=usage.turns,
        )


class Carrier(Value, frozen=True, kw_only=True, rename="camel"):
    """The process that carries a run out."""

    pid: int
    host: str
    here: bool
    """Whether it is this server."""


class Can(Value, frozen=True, kw_only=True, rename="camel"):
    """What can be done with a run now."""

    cancel: bool = False
    steer: bool = False
    extend: bool = False
    resume: bool = False


class RunRow(Value, frozen=True, kw_only=True, rename="camel"):
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
    state: State
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
    usage: Used
    failure: Failure | None
    preview: str
    """First line of its answer or failure."""
    cwd: str
    session_runs: int
    """How many runs the session has."""
    owner: Carrier | None
    can: Can


# -- one run ---------------------------------------------------------------------------------------


class Said(Value, frozen=True, kw_only=True, rename="camel"):
    """The text of a result, and what it is."""

    text: str
    kind: AnswerKind


class Tried(Value, frozen=True, kw_only=True, rename="camel"):
    """One try within a run."""

    number: int
    reason: str
    model: str | None
    failure: Failure | None
    started: float


class Fallback(Value, frozen=True, kw_only=True, rename="camel"):
    """One model that took over from another."""

    before: str | None = field(name="from")
    after: str = field(name="to")
    reason: str
    time: float


class Told(Value, frozen=True, kw_only=True, rename="camel"):
    """A notice of a run."""

    code: str
    message: str
    time: float


class Touched(Value, frozen=True, kw_only=True, rename="camel"):
    """A file that a tool was called for."""

    path: str
    how: Literal["read", "write", "edit", "search"]
    count: int


class ToolCount(Value, frozen=True, kw_only=True, rename="camel"):
    """One of the tools that were called."""

    name: str
    count: int
    errors: int
    seconds: float
    """Between its calls and their results."""


class Spent(Value, frozen=True, kw_only=True, rename="camel"):
    """Where time and money went. Seconds; tools that run at once count once."""

    queued: float
    model: float
    tools: float
    other: float
    cost: float | None
    nested_cost: float | None
    """Of the runs below it."""
    tokens: int


class Declared(Value, frozen=True, kw_only=True, rename="camel"):
    """What was asked for when the run was accepted."""

    engine: str
    model: str | None
    provider: str | None
    thinking: str | None
    tools: tuple[str, ...]
    timeout: float
    layer: str
    resumes: bool


class RunOfSession(Value, frozen=True, kw_only=True, rename="camel"):
    run: str
    state: State
    started: float | None
    ended: float | None
    elapsed: float | None
    task: str


class Ancestor(Value, frozen=True, kw_only=True, rename="camel"):
    run: str
    agent: str
    name: str


class RunDetail(RunRow, frozen=True, kw_only=True, rename="camel"):
    """Everything there is to know of a run but its events."""

    task_text: str
    answer: Said | None
    attempts: tuple[Tried, ...]
    fallbacks: tuple[Fallback, ...]
    declared: Declared | None
    actual: Actual | None
    masks: int
    notices: tuple[Told, ...]
    finalized: Finalization | None
    files_touched: tuple[Touched, ...]
    tools_used: tuple[ToolCount, ...]
    spent: Spent
    runs: tuple[RunOfSession, ...]
    """Of its session, in order."""
    ancestors: tuple[Ancestor, ...]
    """The root's own run first."""
    children: tuple[RunRow, ...]


class RunResult(Value, frozen=True, kw_only=True, rename="camel"):
    text: str
    kind: AnswerKind
    failure: Failure | None


# -- lists -----------------------------------------------------------------------------------------


class Group(Value, frozen=True, kw_only=True, rename="camel"):
    """The runs under one root conversation, parents before children."""

    root: str
    updated: float
    live: int
    runs: tuple[RunRow, ...]
    more: int
    """Runs that are not listed here."""


class Activity(Value, frozen=True, kw_only=True, rename="camel"):
    groups: tuple[Group, ...]
    next: str | None
    """What `before` gets for the next page."""
    cursor: str
    """Where the stream goes on from this picture."""


class Runs(Value, frozen=True, kw_only=True, rename="camel"):
    runs: tuple[RunRow, ...]
    next: str | None
    cursor: str


class Tree(Value, frozen=True, kw_only=True, rename="camel"):
    root: str
    runs: tuple[RunRow, ...]
    more: int
    cursor: str


class Events(Value, frozen=True, kw_only=True, rename="camel"):
    events: tuple[Raw, ...]
    """As on the wire everywhere: see the schema of events."""
    next: int | None
    """What `after` gets for the next page."""
    cursor: str


class Session(Value, frozen=True, kw_only=True, rename="camel"):
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
    state: State
    preview: str
    file: str | None
    size_bytes: int
    damaged: int


class Sessions(Value, frozen=True, kw_only=True, rename="camel"):
    sessions: tuple[Session, ...]
    next: str | None


class SessionDetail(Value, frozen=True, kw_only=True, rename="camel"):
    session: Session
    runs: tuple[RunOfSession, ...]
    latest: RunRow


# -- the stream ------------------------------------------------------------------------------------


class Happened(Value, frozen=True, kw_only=True, rename="camel"):
    """The data of a message of the stream: an event, and its run as a list shows it from then on."""

    event: Raw
    row: RunRow


class Resync(Value, frozen=True, kw_only=True, rename="camel"):
    """The data of a message of the stream: what came after the place that was asked for is no longer known."""

    cursor: str
    """Where the stream goes on: load everything anew, and follow it from there."""
