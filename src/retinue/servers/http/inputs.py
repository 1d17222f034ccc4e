"""Bodies and queries of requests, parsed once into frozen values."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from retinue.config.settings import SETTING_RULES
from retinue.model.errors import ErrorCode, refuse
from retinue.model.tasks import FileSlice, Task
from retinue.sessions.store import RunOutcome, SessionState
from retinue.support.formatting import suggest_spelling

Input = TypeVar("Input", bound=Struct)

MAX_QUERY_BYTES = 8 * 1024

NonEmptyText = Annotated[str, Meta(min_length=1)]
BoundedName = Annotated[str, Meta(min_length=1, max_length=200)]
Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
Isolation = Literal["none", "worktree"]
Sandbox = Literal["workspace", "strict"]
"""A sandbox that a request can ask for: it tightens the configured one, and `off` would do nothing."""
BoundedSeconds = Annotated[float, Meta(gt=0, le=7 * 86400.0)]


class ApiInput(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An object of a request."""


def _setting_bounds(setting: str) -> Meta:
    """Return the bounds of a setting. A value out of bounds is refused here, not clamped."""
    rule = SETTING_RULES[setting]
    return Meta(ge=int(rule.low), le=int(rule.high))


class RunSettingsInput(ApiInput, frozen=True, kw_only=True):
    """Settings of a start; null: the configured value."""

    engine: BoundedName | None = None
    model: BoundedName | None = None
    effort: Effort | None = None
    max_depth: Annotated[int, _setting_bounds("max_depth")] | None = None
    max_turns: Annotated[int, _setting_bounds("max_turns")] | None = None
    max_tokens: Annotated[int, _setting_bounds("max_tokens")] | None = None
    max_cost: Annotated[float, _setting_bounds("max_cost")] | None = None
    max_memory_bytes: Annotated[int, _setting_bounds("max_memory_bytes")] | None = None
    max_processes: Annotated[int, _setting_bounds("max_processes")] | None = None
    max_disk_bytes: Annotated[int, _setting_bounds("max_disk_bytes")] | None = None
    max_concurrency: Annotated[int, _setting_bounds("max_concurrency")] | None = None
    allow_write: bool | None = None
    isolation: Isolation | None = None
    sandbox: Sandbox | None = None
    """The least sandbox of all its runs; settings and agents may ask for a stricter one."""

    def set_values(self) -> dict[str, Any]:
        """Return the settings that are not null, by name: they win over the configured ones."""
        names = (name for name in RunSettingsInput.__struct_fields__ if name != "sandbox")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class StartRunBody(RunSettingsInput, frozen=True, kw_only=True):
    """One agent, one task."""

    agent: BoundedName | None = None
    task: NonEmptyText
    name: BoundedName | None = None
    cwd: NonEmptyText | None = None
    timeout: BoundedSeconds | None = None
    files: tuple[NonEmptyText, ...] = ()
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the result."""


class PlanStepBody(ApiInput, frozen=True, kw_only=True):
    """One task of a plan."""

    agent: BoundedName | None = None
    task: NonEmptyText
    name: BoundedName | None = None
    cwd: NonEmptyText | None = None
    timeout: BoundedSeconds | None = None
    files: tuple[NonEmptyText, ...] = ()
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the result."""
    model: BoundedName | None = None
    effort: Effort | None = None
    isolation: Isolation | None = None
    sandbox: Sandbox | None = None


class StartPlanBody(RunSettingsInput, frozen=True, kw_only=True):
    """Several tasks: at once, or one after the other."""

    mode: Literal["parallel", "chain"]
    tasks: Annotated[tuple[PlanStepBody, ...], Meta(min_length=1)]


class ResumeBody(RunSettingsInput, frozen=True, kw_only=True):
    """Another task in the same session."""

    task: NonEmptyText
    timeout: BoundedSeconds | None = None
    files: tuple[NonEmptyText, ...] = ()


class ExtendBody(ApiInput, frozen=True, kw_only=True):
    seconds: BoundedSeconds


class SteerBody(ApiInput, frozen=True, kw_only=True):
    text: NonEmptyText


class EmptyBody(ApiInput, frozen=True, kw_only=True):
    """An empty object."""


class TrustBody(ApiInput, frozen=True, kw_only=True):
    """The trust of a project's agent."""

    digest: BoundedName | None = None
    """The digest of the agent the user has read: an agent that has changed since is not trusted. Null: any."""


class LoginBody(ApiInput, frozen=True, kw_only=True):
    """The code of a link, or the token itself."""

    code: BoundedName | None = None
    token: BoundedName | None = None


# -- queries ---------------------------------------------------------------------------------------


class EmptyQuery(ApiInput, frozen=True, kw_only=True):
    """A query without parameters."""


class RunQuery(ApiInput, frozen=True, kw_only=True):
    """A page of runs, filtered."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    before: str | None = None
    """`next` of the previous page."""
    state: SessionState | None = None
    agent: str | None = None
    engine: str | None = None
    q: str | None = None
    """Text to search for in names, tasks, answers and tool calls."""
    root: str | None = None
    live: bool = False
    outcome: RunOutcome | None = None
    model: str | None = None
    cwd: str | None = None
    """The working directory."""
    since: float | None = None
    """Changed at this time or later."""
    until: float | None = None
    """Changed before this time."""
    min_cost: Annotated[float, Meta(ge=0)] | None = None
    """Dollars; runs without a known price do not match."""
    min_elapsed: Annotated[float, Meta(ge=0)] | None = None
    """Seconds; live runs do not match."""


class GroupQuery(RunQuery, frozen=True, kw_only=True):
    """A page of root conversations."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 30
    partial: bool = False
    """Answer before all sessions are indexed, with the latest ones; `indexing` reports how many are."""


class StatisticsQuery(ApiInput, frozen=True, kw_only=True):
    """The days to count."""

    days: Annotated[int, Meta(ge=1, le=366)] = 7
    """Today included."""
    utc_offset: Annotated[int, Meta(ge=-14 * 60, le=14 * 60)] = 0
    """Minutes by which local time is ahead of UTC: days begin at local midnight."""


class EventQuery(ApiInput, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


class TranscriptQuery(ApiInput, frozen=True, kw_only=True):
    format: Literal["html", "md", "txt", "jsonl"] = "md"


class ToolsetQuery(ApiInput, frozen=True, kw_only=True):
    surface: BoundedName = "single"


class WatchQuery(ApiInput, frozen=True, kw_only=True):
    """The part of the event stream to send."""

    run: str | None = None
    root: str | None = None
    rows: bool = False
    deltas: bool = False
    after: str | None = None


# -- parsing ---------------------------------------------------------------------------------------


def parse_body(body: bytes, kind: type[Input]) -> Input:
    """Decode the body of a request.

    Raises:
        RefusedError: `invalid_input`.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refuse(ErrorCode.INVALID_INPUT, f"{_describe_error(error, kind)} Nothing was changed.") from error


def parse_query(query: bytes, kind: type[Input]) -> Input:
    """Decode the query of a request.

    Raises:
        RefusedError: `invalid_input`.
    """
    if len(query) > MAX_QUERY_BYTES:
        raise refuse(ErrorCode.INVALID_INPUT, f"The query is longer than {MAX_QUERY_BYTES} characters.")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=False, errors="strict", max_num_fields=50)
        values = {name: value for name, value in pairs if value}
        return msgspec.convert(values, kind, strict=False)
    except UnicodeError as error:
        raise refuse(ErrorCode.INVALID_INPUT, "The query is not valid UTF-8.") from error
    except ValueError as error:  # includes the errors of msgspec
        raise refuse(ErrorCode.INVALID_INPUT, _describe_error(error, kind)) from error


def _describe_error(error: Exception, kind: type[Struct]) -> str:
    fault, _, place = str(error).rstrip(".").partition(" - at `$")
    where = place.strip("`.")
    unknown = fault.partition("unknown field `")[2].partition("`")[0]
    sentence = f"{where} is invalid: {fault[0].lower()}{fault[1:]}" if where else fault
    known = f" Known: {', '.join(SessionState)}." if where == "state" else ""
    return f"{sentence}.{suggest_spelling(unknown, kind.__struct_encode_fields__) if unknown else known}"


def to_task(step: StartRunBody | PlanStepBody) -> Task:
    return Task(
        prompt=step.task,
        agent=step.agent,
        name=step.name,
        cwd=step.cwd,
        timeout=step.timeout,
        files=tuple(FileSlice(path=path) for path in step.files),
        output_schema=step.output_schema,
        model=step.model,
        effort=step.effort,
        isolation=step.isolation,
        sandbox=step.sandbox,
    )
