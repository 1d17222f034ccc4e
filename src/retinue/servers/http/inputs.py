"""What the API is asked, parsed once into frozen values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from retinue.config.settings import SETTING_RULES
from retinue.model.errors import ErrorCode, refuse
from retinue.model.tasks import FileSlice, Task
from retinue.sessions.store import SessionState
from retinue.support.formatting import suggest_spelling

Input = TypeVar("Input", bound=Struct)

MAX_QUERY_BYTES = 8 * 1024
"""Characters of a query."""

NonEmptyText = Annotated[str, Meta(min_length=1)]
BoundedName = Annotated[str, Meta(min_length=1, max_length=200)]
BoundedSeconds = Annotated[float, Meta(gt=0, le=7 * 86400.0)]


class ApiInput(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One object of a request."""


def _setting_bounds(setting: str) -> Meta:
    """The bounds of a setting: what is out of them is refused here, not changed."""
    rule = SETTING_RULES[setting]
    return Meta(ge=int(rule.low), le=int(rule.high))


class RunSettingsInput(ApiInput, frozen=True, kw_only=True):
    """Settings that may be given with a start; null: as they are."""

    engine: BoundedName | None = None
    model: BoundedName | None = None
    max_depth: Annotated[int, _setting_bounds("max_depth")] | None = None
    max_turns: Annotated[int, _setting_bounds("max_turns")] | None = None
    max_tokens: Annotated[int, _setting_bounds("max_tokens")] | None = None
    max_cost: Annotated[float, _setting_bounds("max_cost")] | None = None
    max_concurrency: Annotated[int, _setting_bounds("max_concurrency")] | None = None
    allow_write: bool | None = None

    def set_values(self) -> dict[str, Any]:
        """Those that were given, by their names."""
        return {
            name: value for name in RunSettingsInput.__struct_fields__ if (value := getattr(self, name)) is not None
        }


class StartRunBody(RunSettingsInput, frozen=True, kw_only=True):
    """One agent, one task."""

    agent: BoundedName | None = None
    task: NonEmptyText
    name: BoundedName | None = None
    cwd: NonEmptyText | None = None
    timeout: BoundedSeconds | None = None
    files: tuple[NonEmptyText, ...] = ()

    def to_task(self) -> Task:
        return _build_task(self)


class PlanStepBody(ApiInput, frozen=True, kw_only=True):
    """One task of a plan."""

    agent: BoundedName | None = None
    task: NonEmptyText
    name: BoundedName | None = None
    cwd: NonEmptyText | None = None
    timeout: BoundedSeconds | None = None
    files: tuple[NonEmptyText, ...] = ()

    def to_task(self) -> Task:
        return _build_task(self)


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
    """A project's agent, as it was looked at."""

    digest: BoundedName | None = None
    """Of the agent that was looked at: one that has changed since is not accepted. Null: as it is now written."""


class LoginBody(ApiInput, frozen=True, kw_only=True):
    """The code of a link, or the token itself."""

    code: BoundedName | None = None
    token: BoundedName | None = None


# -- queries ---------------------------------------------------------------------------------------


class EmptyQuery(ApiInput, frozen=True, kw_only=True):
    """Nothing is asked beyond the path."""


class RunQuery(ApiInput, frozen=True, kw_only=True):
    """A page of runs, and which."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    before: str | None = None
    """`next` of the page before."""
    state: SessionState | None = None
    agent: str | None = None
    engine: str | None = None
    q: str | None = None
    """Looked for in name, agent, task and preview."""
    root: str | None = None
    live: bool = False


class GroupQuery(RunQuery, frozen=True, kw_only=True):
    """A page of root conversations."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 30


class EventQuery(ApiInput, frozen=True, kw_only=True):
    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


class TranscriptQuery(ApiInput, frozen=True, kw_only=True):
    format: Literal["md", "txt", "jsonl"] = "md"


class ToolsetQuery(ApiInput, frozen=True, kw_only=True):
    surface: BoundedName = "single"


class WatchQuery(ApiInput, frozen=True, kw_only=True):
    """What of the stream is wanted."""

    run: str | None = None
    root: str | None = None
    rows: bool = False
    deltas: bool = False
    after: str | None = None


# -- parsing ---------------------------------------------------------------------------------------


def parse_body(body: bytes, kind: type[Input]) -> Input:
    """The object of a request.

    Raises:
        Refused: `invalid_input`.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refuse(ErrorCode.INVALID_INPUT, f"{_describe_error(error, kind)} Nothing was done.") from error


def parse_query(query: bytes, kind: type[Input]) -> Input:
    """What a query asks.

    Raises:
        Refused: `invalid_input`.
    """
    if len(query) > MAX_QUERY_BYTES:
        raise refuse(ErrorCode.INVALID_INPUT, f"The query is longer than {MAX_QUERY_BYTES} characters.")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=False, errors="strict", max_num_fields=50)
        values = {name: value for name, value in pairs if value}
        return msgspec.convert(values, kind, strict=False)
    except UnicodeError as error:
        raise refuse(ErrorCode.INVALID_INPUT, "The query is not written in UTF-8.") from error
    except ValueError as error:  # those of msgspec, too
        raise refuse(ErrorCode.INVALID_INPUT, _describe_error(error, kind)) from error


def _describe_error(error: Exception, kind: type[Struct]) -> str:
    fault, _, place = str(error).rstrip(".").partition(" - at `$")
    where = place.strip("`.")
    unknown = fault.partition("unknown field `")[2].partition("`")[0]
    sentence = f"{where} is wrong: {fault[0].lower()}{fault[1:]}" if where else fault
    known = f" Known: {', '.join(SessionState)}." if where == "state" else ""
    return f"{sentence}.{suggest_spelling(unknown, _wire_fields(kind)) if unknown else known}"


def _wire_fields(kind: type[Struct]) -> Iterable[str]:
    return kind.__struct_encode_fields__


def _build_task(step: StartRunBody | PlanStepBody) -> Task:
    return Task(
        prompt=step.task,
        agent=step.agent,
        name=step.name,
        cwd=step.cwd,
        timeout=step.timeout,
        files=tuple(FileSlice(path=path) for path in step.files),
    )
