"""What the API is asked, parsed once into frozen values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from retinue.frontends.wording import did_you_mean
from retinue.sessions.store import State
from retinue.settings import KEYS
from retinue.types import Code, FileSlice, Task, refused

Input = TypeVar("Input", bound=Struct)

MOST_QUERY = 8 * 1024
"""Characters of a query."""

Text = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Seconds = Annotated[float, Meta(gt=0, le=7 * 86400.0)]


class Asked(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One object of a request."""


def _within(setting: str) -> Meta:
    """The bounds of a setting: what is out of them is refused here, not changed."""
    rule = KEYS[setting]
    return Meta(ge=int(rule.low), le=int(rule.high))


class Settings(Asked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings that may be given with a start; null: as they are."""

    engine: Name | None = None
    model: Name | None = None
    max_depth: Annotated[int, _within("max_depth")] | None = None
    max_turns: Annotated[int, _within("max_turns")] | None = None
    max_tokens: Annotated[int, _within("max_tokens")] | None = None
    max_cost: Annotated[float, _within("max_cost")] | None = None
    max_concurrency: Annotated[int, _within("max_concurrency")] | None = None
    allow_write: bool | None = None

    def given(self) -> dict[str, Any]:
        """Those that were given, by their names."""
        return {name: value for name in Settings.__struct_fields__ if (value := getattr(self, name)) is not None}


class Start(Settings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One agent, one task."""

    agent: Name | None = None
    task: Text
    name: Name | None = None
    cwd: Text | None = None
    timeout: Seconds | None = None
    files: tuple[Text, ...] = ()

    def asked(self) -> Task:
        return _task(self)


class Step(Asked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One task of a plan."""

    agent: Name | None = None
    task: Text
    name: Name | None = None
    cwd: Text | None = None
    timeout: Seconds | None = None
    files: tuple[Text, ...] = ()

    def asked(self) -> Task:
        return _task(self)


class StartPlan(Settings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Several tasks: at once, or one after the other."""

    mode: Literal["parallel", "chain"]
    tasks: Annotated[tuple[Step, ...], Meta(min_length=1)]


class Resume(Settings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Another task in the same session."""

    task: Text
    timeout: Seconds | None = None
    files: tuple[Text, ...] = ()


class Extend(Asked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    seconds: Seconds


class Steer(Asked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    text: Text


class Nothing(Asked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An empty object."""


class Accept(Asked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A project's agent, as it was looked at."""

    digest: Name | None = None
    """Of the agent that was looked at: one that has changed since is not accepted. Null: as it is now written."""


class Login(Asked, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The code of a link, or the token itself."""

    code: Name | None = None
    token: Name | None = None


# -- queries ---------------------------------------------------------------------------------------


class NoQuery(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing is asked beyond the path."""


class WhichRuns(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of runs, and which."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    before: str | None = None
    """`next` of the page before."""
    state: State | None = None
    agent: str | None = None
    engine: str | None = None
    q: str | None = None
    """Looked for in name, agent, task and preview."""
    root: str | None = None
    live: bool = False


class WhichGroups(WhichRuns, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of root conversations."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 30


class WhichEvents(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


class WhichForm(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["md", "txt", "jsonl"] = "md"


class WhichSurface(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    surface: Name = "single"


class Watch(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of the stream is wanted."""

    run: str | None = None
    root: str | None = None
    rows: bool = False
    deltas: bool = False
    after: str | None = None


# -- parsing ---------------------------------------------------------------------------------------


def body_of(body: bytes, kind: type[Input]) -> Input:
    """The object of a request.

    Raises:
        Refused: `invalid_input`.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refused(Code.INVALID_INPUT, f"{_told(error, kind)} Nothing was done.") from error


def query_of(query: bytes, kind: type[Input]) -> Input:
    """What a query asks.

    Raises:
        Refused: `invalid_input`.
    """
    if len(query) > MOST_QUERY:
        raise refused(Code.INVALID_INPUT, f"The query is longer than {MOST_QUERY} characters.")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=False, errors="strict", max_num_fields=50)
        given = {name: value for name, value in pairs if value}
        return msgspec.convert(given, kind, strict=False)
    except UnicodeError as error:
        raise refused(Code.INVALID_INPUT, "The query is not written in UTF-8.") from error
    except ValueError as error:  # those of msgspec, too
        raise refused(Code.INVALID_INPUT, _told(error, kind)) from error


def _told(error: Exception, kind: type[Struct]) -> str:
    fault, _, place = str(error).rstrip(".").partition(" - at `$")
    where = place.strip("`.")
    unknown = fault.partition("unknown field `")[2].partition("`")[0]
    sentence = f"{where} is wrong: {fault[0].lower()}{fault[1:]}" if where else fault
    known = f" Known: {', '.join(State)}." if where == "state" else ""
    return f"{sentence}.{did_you_mean(unknown, _names(kind)) if unknown else known}"


def _names(kind: type[Struct]) -> Iterable[str]:
    return kind.__struct_encode_fields__


def _task(step: Start | Step) -> Task:
    return Task(
        prompt=step.task,
        agent=step.agent,
        name=step.name,
        cwd=step.cwd,
        timeout=step.timeout,
        files=tuple(FileSlice(path=path) for path in step.files),
    )
