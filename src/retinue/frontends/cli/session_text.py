"""Sessions as a person and a program read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from retinue.frontends.cli.results import whole
from retinue.frontends.cli.table import Cell, table
from retinue.frontends.wording import SHORT, UNKNOWN, counted, moment
from retinue.output.truncate import human_size
from retinue.results import Actual, Attempt
from retinue.sessions.store import SessionSummary
from retinue.types import Limits, Usage

BELOW = "↳ "
"""Before the agent of a session that another run asked for."""
MOST = 500
"""Columns of a fact: not cut to the screen, for half a path finds nothing."""
_STEPS = ((60.0, 1.0, "s"), (3600.0, 60.0, "m"), (86400.0, 3600.0, "h"), (14 * 86400.0, 86400.0, "d"))
_WEEK = 7 * 86400.0
_LONGEST = 100 * 365 * 86400.0


def list_lines(summaries: Sequence[SessionSummary], now: float, guides: Sequence[str] = ()) -> list[str]:
    """One line per session. Before its agent stands its guide or, without one, a sign if another run asked for it."""
    drawn = guides or [""] * len(summaries)
    rows = [_row(one, guide, now) for one, guide in zip(summaries, drawn, strict=True)]
    return table([["SESSION", "CHANGED", "STATE", "AGENT", "TASK → ANSWER"], *rows])


def _row(one: SessionSummary, guide: str, now: float) -> list[Cell]:
    agent = (guide or (BELOW if one.parent_run else ""), one.agent)
    said = f" → {one.preview}" if one.preview else ""
    return [one.session[:SHORT], ago(one.updated, now), state_text(one), agent, f"{one.task}{said}"]


def fact_lines(summary: SessionSummary, asked_by: SessionSummary | None = None) -> list[str]:
    """What is known of a session beside what was said in it."""
    return _facts(
        ["session", summary.session],
        ["agent", f"{summary.agent} ({'/'.join(filter(None, (summary.engine, summary.model)))})"],
        ["state", state_text(summary)],
        ["directory", summary.cwd],
        ["begun", moment(summary.created)],
        ["changed", moment(summary.updated)],
        ["runs", str(summary.runs)],
        ["usage", _usage(summary.latest.usage)],
        ["conversation", summary.root],
        ["asked by", f"{asked_by.agent} ({asked_by.session[:SHORT]})" if asked_by else ""],
        ["file", f"{summary.file} ({human_size(summary.size_bytes)})" if summary.file else ""],
        ["damaged", f"{summary.damaged} records could not be read and are left out" if summary.damaged else ""],
    )


def summary_json(summary: SessionSummary) -> dict[str, Any]:
    """The session as a program reads it: the fields of `SessionSummary` and `RunSummary`, in camelCase."""
    return {**_named(whole(summary)), "latest": _named(whole(summary.latest))}


def state_text(summary: SessionSummary) -> str:
    failure = summary.latest.failure
    return f"{summary.latest.state} ({failure.code})" if failure else str(summary.latest.state)


def ago(when: float, now: float) -> str:
    """How long ago in one number: `12s`, `5m`, `3h`, `2d`; weeks for what is older."""
    seconds = now - when
    if not -_WEEK < seconds < _LONGEST or when <= 0:
        return UNKNOWN
    for below, unit, letter in _STEPS:
        if seconds < below:
            return f"{max(seconds, 0) / unit:.0f}{letter} ago"
    return f"{seconds / _WEEK:.0f}w ago"


# -- declared against actual -----------------------------------------------------------------------


def report_lines(actual: Actual) -> list[str]:
    """What really happened in a run beside what was declared."""
    process = actual.process
    return _facts(
        ["engine", actual.engine],
        ["model", f"{actual.declared_model or 'default'} declared, {actual.model or 'none'} answered"],
        ["tools granted", ", ".join(actual.tools_granted) or "none"],
        ["tools removed", ", ".join(f"{removed.tool} (by {removed.by})" for removed in actual.tools_removed)],
        ["tools missing", ", ".join(actual.tools_missing)],
        ["tools used", ", ".join(f"{name} × {count}" for name, count in actual.tools_used.items()) or "none"],
        ["not applied", ", ".join(actual.not_applied)],
        ["limits", ", ".join(_limits(actual.limits))],
        ["attempts", "; ".join(map(_attempt, actual.attempts))],
        ["usage below", _usage(actual.nested_usage) if actual.nested_usage.turns else ""],
        ["masked", f"{actual.masks} secrets"],
        ["dropped", human_size(actual.dropped_bytes)],
        ["process", f"exit code {process.code}" if process and process.code is not None else ""],
        ["process", f"signal {process.signal}" if process and process.signal is not None else ""],
        *(["notice", notice] for notice in actual.notices),
        ["stored", "" if actual.saved else "not all of it"],
    )


def _limits(limits: Limits) -> Iterator[str]:
    """The limits in force, in the words of the settings; those that are off are left out."""
    yield f"timeout {limits.timeout:g}s, at most {limits.ceiling:g}s"
    named = {
        "idle": limits.idle_timeout and f"{limits.idle_timeout:g}s",
        "same call": limits.loop_count,
        "same pair": limits.pair_count,
        "turns": limits.max_turns,
        "tokens": limits.max_tokens,
        "cost": limits.max_cost and f"${limits.max_cost:g}",
        "turns of the conversation": limits.max_conversation_turns,
        "tokens of the conversation": limits.max_conversation_tokens,
        "cost of the conversation": limits.max_conversation_cost and f"${limits.max_conversation_cost:g}",
    }
    yield from (f"{name} {value}" for name, value in named.items() if value)


def _attempt(attempt: Attempt) -> str:
    model = f" with {attempt.model}" if attempt.model else ""
    failure = attempt.failure
    why = f" ({failure.reason})" if failure and failure.reason else ""
    return f"{attempt.number} {attempt.reason}{model}: {failure.code if failure else 'ok'}{why}"


def _usage(usage: Usage) -> str:
    cost = f", ${usage.cost:.4f}" if usage.cost is not None else ""
    return f"{counted(usage.tokens, 'token')}, {counted(usage.turns, 'turn')}{cost}"


def _facts(*rows: list[str]) -> list[str]:
    return table([row for row in rows if row[1]], columns=MOST)


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
