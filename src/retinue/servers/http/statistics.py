"""Counts over sessions: how many match each choice of a filter, and cost and failures by day, agent and model."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio.to_thread
from msgspec import structs

from retinue.servers.http.inputs import RunQuery, StatisticsQuery
from retinue.servers.http.run_list import ACTIVE_STATES, RunListCache, to_session_filter
from retinue.servers.http.schemas import DayUsage, FacetCount, Facets, NamedUsage, Statistics
from retinue.sessions.store import RunOutcome, SessionFilter, SessionSummary

COST_STEPS = (0.01, 0.1, 1.0, 10.0)
"""Dollars to choose from as the lowest cost."""
ELAPSED_STEPS = (10.0, 60.0, 600.0, 3600.0)
"""Seconds to choose from as the shortest time."""
AGE_STEPS = {"1": 86400.0, "7": 7 * 86400.0, "30": 30 * 86400.0}
"""Days to choose from, and their seconds."""
MAX_CHOICES = 50
"""Choices of one facet: the most frequent."""
SECONDS_OF_DAY = 86400.0
SUCCESSES = frozenset({RunOutcome.COMPLETED, RunOutcome.QUEUED, RunOutcome.RUNNING})


class RunStatistics:
    """Counts over the latest runs of all sessions, from the index alone."""

    def __init__(self, runs: RunListCache, *, now: Callable[[], float] = time.time) -> None:
        self._runs = runs
        self._now = now

    async def count_facets(self, query: RunQuery) -> Facets:
        """Return the number of matches, and for each choice of a filter how many it would leave.

        A choice is counted with all other filters applied, without that of its own facet.
        """
        wanted = structs.replace(to_session_filter(query), limit=None, before=None)
        found = await self._runs.list_sessions(SessionFilter(text=wanted.text, root=wanted.root))
        return await anyio.to_thread.run_sync(_count_facets, found, wanted, query.live, self._now())

    async def load_statistics(self, query: StatisticsQuery) -> Statistics:
        """Return cost, tokens and failures of the last days, by day, agent and model."""
        shift = query.utc_offset * 60.0
        today = math.floor((self._now() + shift) / SECONDS_OF_DAY)
        since = (today - query.days + 1) * SECONDS_OF_DAY - shift
        found = await self._runs.list_sessions(SessionFilter(since=since))
        return await anyio.to_thread.run_sync(_count_usage, found, today, query.days, shift)


def _count_facets(found: Sequence[SessionSummary], wanted: SessionFilter, live: bool, now: float) -> Facets:
    tests = _facet_tests(wanted, live=live)
    counts: dict[str, Counter[Any]] = {name: Counter() for name in FACET_VALUES}
    matching = 0
    for summary in found:
        failed = [name for name, test in tests.items() if not test(summary)]
        if not failed:
            matching += 1
            names: Iterable[str] = FACET_VALUES
        elif len(failed) == 1 and failed[0] in FACET_VALUES:
            names = failed
        else:
            continue
        for name in names:
            counts[name].update(FACET_VALUES[name](summary, now))
    return Facets(
        total=len(found),
        matching=matching,
        **{
            name: tuple(
                FacetCount(value=str(value), count=count) for value, count in counter.most_common(MAX_CHOICES)
            )
            for name, counter in counts.items()
        },
    )


def _facet_tests(wanted: SessionFilter, *, live: bool) -> dict[str, Callable[[SessionSummary], bool]]:
    """Return the conditions of the filter that are set, by the facet they belong to."""
    fields: dict[str, dict[str, Any]] = {
        "outcomes": {"outcome": wanted.outcome, "state": wanted.state},
        "agents": {"agent": wanted.agent},
        "engines": {"engine": wanted.engine},
        "models": {"model": wanted.model},
        "folders": {"cwd": wanted.cwd},
        "costs": {"min_cost": wanted.min_cost},
        "durations": {"min_elapsed": wanted.min_elapsed},
        "ages": {"since": wanted.since, "until": wanted.until},
    }
    tests: dict[str, Callable[[SessionSummary], bool]] = {
        name: SessionFilter(**values).matches
        for name, values in fields.items()
        if any(value is not None for value in values.values())
    }
    if live:
        tests["outcomes"] = lambda summary: summary.latest.state in ACTIVE_STATES
    return tests


def _costs(summary: SessionSummary, _: float) -> Iterable[float]:
    cost = summary.latest.usage.cost
    return () if cost is None else (step for step in COST_STEPS if cost >= step)


FACET_VALUES: Mapping[str, Callable[[SessionSummary, float], Iterable[Any]]] = {
    "outcomes": lambda summary, _: (summary.latest.outcome.value,),
    "agents": lambda summary, _: (summary.agent,),
    "engines": lambda summary, _: (summary.engine,) if summary.engine else (),
    "models": lambda summary, _: (summary.model,) if summary.model else (),
    "folders": lambda summary, _: (summary.cwd,) if summary.cwd else (),
    "costs": _costs,
    "durations": lambda summary, _: (step for step in ELAPSED_STEPS if summary.latest.elapsed >= step),
    "ages": lambda summary, now: (name for name, age in AGE_STEPS.items() if now - summary.updated <= age),
}
"""The choices of each facet that a session belongs to."""


class _UsageSum:
    def __init__(self) -> None:
        self.runs = self.failed = self.tokens = self.unpriced = 0
        self.cost = 0.0

    def add(self, summary: SessionSummary) -> None:
        usage = summary.latest.usage
        self.runs += 1
        self.failed += summary.latest.outcome not in SUCCESSES
        self.tokens += usage.tokens
        self.cost += usage.cost or 0.0
        self.unpriced += usage.cost is None and usage.tokens > 0

    def to_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("runs", "failed", "tokens", "unpriced", "cost")}


def _count_usage(found: Sequence[SessionSummary], today: int, days: int, shift: float) -> Statistics:
    by_day = {today - back: _UsageSum() for back in reversed(range(days))}
    by_agent: dict[str, _UsageSum] = {}
    by_model: dict[str, _UsageSum] = {}
    for summary in found:
        day = math.floor((summary.updated + shift) / SECONDS_OF_DAY)
        if day in by_day:
            by_day[day].add(summary)
        by_agent.setdefault(summary.agent, _UsageSum()).add(summary)
        by_model.setdefault(summary.model or summary.engine, _UsageSum()).add(summary)
    return Statistics(
        days=tuple(DayUsage(day=_format_day(day), **usage.to_fields()) for day, usage in by_day.items()),
        agents=_sort_usage(by_agent),
        models=_sort_usage(by_model),
    )


def _sort_usage(usages: Mapping[str, _UsageSum]) -> tuple[NamedUsage, ...]:
    rows = [NamedUsage(name=name, **usage.to_fields()) for name, usage in usages.items()]
    return tuple(sorted(rows, key=lambda row: (-row.cost, -row.runs, row.name))[:MAX_CHOICES])


def _format_day(day: int) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(days=day)).date().isoformat()
