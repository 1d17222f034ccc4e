"""What the API answers to who acts: what was begun, what became of an order, or why nothing was done."""

from __future__ import annotations

from typing import Literal

from retinue.frontends.http.values import RunRow, Value
from retinue.types import Failure


class Begun(Value, frozen=True, kw_only=True, rename="camel"):
    run: RunRow


class Stopped(Value, frozen=True, kw_only=True, rename="camel"):
    run: str
    found: bool
    """Whether it ran, and was stopped."""
    failure: Failure | None
    """How it ended; null if it had answered before it could be stopped."""


class Extended(Value, frozen=True, kw_only=True, rename="camel"):
    run: str
    timeout: float
    """Seconds it now has in all."""


class Steered(Value, frozen=True, kw_only=True, rename="camel"):
    run: str
    accepted: bool


class PlanTask(Value, frozen=True, kw_only=True, rename="camel"):
    agent: str | None
    task: str
    run: str | None
    """Null until it has begun."""
    state: Literal["waiting", "skipped", "queued", "running", "completed", "error"]


class PlanState(Value, frozen=True, kw_only=True, rename="camel"):
    plan: str
    mode: Literal["parallel", "chain"]
    state: Literal["running", "completed", "error"]
    created: float
    tasks: tuple[PlanTask, ...]


class Plans(Value, frozen=True, kw_only=True, rename="camel"):
    plans: tuple[PlanState, ...]


class PlanBegun(Value, frozen=True, kw_only=True, rename="camel"):
    plan: str
    runs: tuple[RunRow, ...]
    """Those that have begun."""


# -- refusing ---------------------------------------------------------------------------------------


class Fault(Value, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    code: str
    message: str
    reason: str | None = None


class Refusal(Value, frozen=True, kw_only=True, rename="camel"):
    """The answer to a request that could not be carried out."""

    error: Fault
