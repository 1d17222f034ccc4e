"""Sessions as a person and a program read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from retinue.frontends.cli.results import whole
from retinue.frontends.cli.table import table
from retinue.frontends.event_lines import SHORT
from retinue.sessions.store import SessionSummary

_STEPS = ((60.0, 1.0, "s"), (3600.0, 60.0, "m"), (86400.0, 3600.0, "h"), (14 * 86400.0, 86400.0, "d"))
_KIB = 1024.0


def list_lines(summaries: Sequence[SessionSummary], now: float) -> list[str]:
    """One line per session."""
    rows = [
        [one.session[:SHORT], ago(now - one.updated), state_text(one), one.agent, f"{one.task} → {one.preview}"]
        for one in summaries
    ]
    return table([["SESSION", "CHANGED", "STATE", "AGENT", "TASK → ANSWER"], *rows])


def fact_lines(summary: SessionSummary) -> list[str]:
    """What is known of a session beside what was said in it."""
    usage = summary.latest.usage
    cost = f", ${usage.cost:.4f}" if usage.cost is not None else ""
    rows = [
        ["session", summary.session],
        ["agent", f"{summary.agent} ({'/'.join(filter(None, (summary.engine, summary.model)))})"],
        ["state", state_text(summary)],
        ["directory", summary.cwd],
        ["begun", moment(summary.created)],
        ["changed", moment(summary.updated)],
        ["runs", str(summary.runs)],
        ["usage", f"{usage.tokens} tokens, {usage.turns} turns{cost}"],
        ["conversation", summary.root],
        ["file", f"{summary.file} ({size(summary.size_bytes)})" if summary.file else ""],
        ["damaged", f"{summary.damaged} records could not be read and are left out" if summary.damaged else ""],
    ]
    return table([row for row in rows if row[1]], columns=500)


def summary_json(summary: SessionSummary) -> dict[str, Any]:
    """The session as a program reads it: the fields of `SessionSummary` and `RunSummary`, in camelCase."""
    return {**_named(whole(summary)), "latest": _named(whole(summary.latest))}


def state_text(summary: SessionSummary) -> str:
    failure = summary.latest.failure
    return f"{summary.latest.state} ({failure.code})" if failure else str(summary.latest.state)


def ago(seconds: float) -> str:
    """How long ago in one number: `12s`, `5m`, `3h`, `2d`; weeks for what is older."""
    for below, unit, letter in _STEPS:
        if seconds < below:
            return f"{max(seconds, 0) / unit:.0f}{letter} ago"
    return f"{seconds / (7 * 86400):.0f}w ago"


def moment(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < _KIB:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= _KIB
    return f"{size_bytes:.1f} GiB"


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
