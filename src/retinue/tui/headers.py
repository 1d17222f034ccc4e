"""The line of a run in the live view, the status line above all runs, and the session ids below them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from retinue.model.sandbox import SandboxMode
from retinue.output.untrusted_text import to_one_line
from retinue.runtime.progress import CallProgress, RunState, RunView
from retinue.sessions.store import RunOutcome
from retinue.support.formatting import (
    SHORT_ID_LENGTH,
    format_cost,
    format_count,
    format_duration,
    format_running_time,
    pluralize,
)
from retinue.tui.renderer import StyledLine, StyledSpan
from retinue.tui.rows import MAX_COLUMNS, header_prefix
from retinue.tui.widths import fit_text, text_width, wrap_text

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_RATE = 10.0
"""Spinner frames per second."""
WAITING_ICON = "◌"
DEFAULT_AGENT = "default"
"""The agent of a task that names none; not shown."""
MIN_TASK_COLUMNS = 12
"""Columns from which on a task is shown."""
DISTINCT_TASK_COLUMNS = 24
"""Columns of the task of a run that has the same name as another: other facts are left out for them."""
USUAL_TASK_COLUMNS = 16
"""The same for a run with a name of its own."""
SEPARATOR = " • "

_ICONS = {
    RunOutcome.QUEUED: "○",
    RunOutcome.COMPLETED: "✓",
    RunOutcome.FAILED: "✗",
    RunOutcome.TIMED_OUT: "✗",
    RunOutcome.CANCELLED: "■",
    RunOutcome.INTERRUPTED: "■",
}
_STYLES = {
    RunOutcome.QUEUED: "muted",
    RunOutcome.RUNNING: "running",
    RunOutcome.COMPLETED: "good",
    RunOutcome.FAILED: "error",
    RunOutcome.TIMED_OUT: "error",
    RunOutcome.CANCELLED: "warning",
    RunOutcome.INTERRUPTED: "warning",
}
_COUNT_NAMES = {
    RunOutcome.RUNNING: "running",
    RunOutcome.QUEUED: "queued",
    RunOutcome.COMPLETED: "done",
    RunOutcome.FAILED: "failed",
    RunOutcome.TIMED_OUT: "timed out",
    RunOutcome.CANCELLED: "cancelled",
    RunOutcome.INTERRUPTED: "interrupted",
}
_STATE_NAMES: Mapping[RunOutcome, str] = {
    name: _COUNT_NAMES[name] for name in _ICONS if name is not RunOutcome.COMPLETED
}
"""States that the header of a run has in words."""


class Fact(Struct, frozen=True):
    """A part of a header."""

    text: str
    style: str = "muted"
    order: int = 0
    """Where the line is too narrow, facts are left out in this order, 1 first; 0 never."""


class HeaderRenderer:
    """Render the headers of the runs of one frame."""

    def __init__(self, views: Collection[RunView], now: float) -> None:
        self._now = now
        names = Counter(view.name for view in views)
        self._repeated = {name for name, number in names.items() if number > 1}
        self._active_children = Counter(view.parent_run for view in views if view.is_active and view.parent_run)

    def render(self, view: RunView, columns: int) -> StyledLine:
        """Return the run in one line: name, task, agent, model, tools, tokens, cost, state, time and id.

        The task is cut to the width, and left out where there is no room for it; if several runs have this name,
        other facts are left out first.
        """
        prefix, icon = header_prefix(view), f"{self._state_icon(view)} "
        name = to_one_line(view.name, MAX_COLUMNS)
        free = columns - text_width(prefix) - text_width(icon)
        name = fit_text(name, max(free // 2, MIN_TASK_COLUMNS))
        free -= text_width(name)
        task = "" if view.task == view.name else to_one_line(view.task[:MAX_COLUMNS], MAX_COLUMNS)
        wanted = (DISTINCT_TASK_COLUMNS if view.name in self._repeated else USUAL_TASK_COLUMNS) if task else 0
        task_width = text_width(task) + 2
        facts = _select_facts(list(self._list_facts(view)), free - min(wanted, task_width))
        free -= sum(text_width(SEPARATOR + fact.text) for fact in facts)
        is_shown = task and free >= min(MIN_TASK_COLUMNS, task_width)
        shown_task = f": {fit_text(task, free - 2)}" if is_shown else ""
        return (
            StyledSpan(prefix, "muted"),
            StyledSpan(icon, _STYLES[view.outcome]),
            StyledSpan(name, "name"),
            StyledSpan(shown_task, "muted"),
            *(span for fact in facts for span in (StyledSpan(SEPARATOR, "muted"), StyledSpan(fact.text, fact.style))),
        )

    def _state_icon(self, view: RunView) -> str:
        return WAITING_ICON if self._count_awaited(view) else state_icon(view, self._now)

    def _count_awaited(self, view: RunView) -> int:
        """Return how many child runs a run waits for; 0 while it writes or is not running itself."""
        is_working = view.phase is not RunState.RUNNING or bool(view.partial)
        return 0 if is_working else self._active_children[view.run]

    def _list_facts(self, view: RunView) -> Iterator[Fact]:
        yield from _planned_facts(view)
        if view.started is not None:
            yield Fact(pluralize(view.tools, "tool"), order=4)
            if view.todos.has_open_items:
                yield Fact(f"[{view.todos.completed_count}/{view.todos.total}]", order=5)
        if view.usage.tokens:
            yield Fact(f"{format_count(view.usage.tokens)} tokens", order=3)
        if view.usage.cost:
            yield Fact(format_cost(view.usage.cost), order=6)
        if awaited := self._count_awaited(view):
            yield Fact(f"waiting for {awaited}", "running")
        elif state := _STATE_NAMES.get(view.outcome):
            yield Fact(state, _STYLES[view.outcome])
        if view.started is not None:  # a run that failed before it started has no time
            yield Fact(_format_time(view, self._now))
        yield Fact(to_one_line(view.session[:SHORT_ID_LENGTH], SHORT_ID_LENGTH))


def _planned_facts(view: RunView) -> Iterator[Fact]:
    # A task without a name of its own has the name of its agent, which is not repeated.
    if view.agent not in {DEFAULT_AGENT, "", view.name}:
        yield Fact(to_one_line(view.agent, MAX_COLUMNS), order=2)
    if model := describe_model(view):
        yield Fact(to_one_line(model, MAX_COLUMNS), order=1)
    if view.sandbox is not SandboxMode.OFF:
        yield Fact(f"sandbox {view.sandbox}", order=8)
    if view.has_worktree:
        yield Fact("worktree", order=7)


def _select_facts(facts: list[Fact], columns: int) -> list[Fact]:
    """Return the facts that fit into the columns, with those that are never left out."""
    for fact in sorted(filter(lambda fact: fact.order, facts), key=lambda fact: fact.order):
        if sum(text_width(SEPARATOR + each.text) for each in facts) <= columns:
            break
        facts.remove(fact)
    return facts


def _format_time(view: RunView, now: float) -> str:
    if view.elapsed is not None:
        return format_duration(view.elapsed)
    return format_running_time(elapsed_seconds(view, now), view.timeout)


def elapsed_seconds(view: RunView, now: float) -> float:
    """Return the seconds since the start of the run, up to its end; 0 before it started."""
    if view.elapsed is not None:
        return view.elapsed
    return max(now - view.started, 0.0) if view.started is not None else 0.0


def state_icon(view: RunView, now: float) -> str:
    """Return the sign of the state; for a run that is running a frame of the spinner."""
    return _ICONS.get(view.outcome) or SPINNER[int(now * SPINNER_RATE) % len(SPINNER)]


def describe_model(view: RunView) -> str:
    """Return the model with provider and thinking level, or else the engine; for a child run both."""
    model = view.model or ""
    # An engine may report the model together with its provider.
    if view.provider and not model.startswith(f"{view.provider}/"):
        model = f"{view.provider}/{model}" if model else view.provider
    engine = view.engine if not model or (view.depth > 1 and view.engine != model) else ""
    return " ".join(filter(None, (engine, model, view.thinking)))


# -- above and below all runs ----------------------------------------------------------------------


def render_status(progress: CallProgress, now: float) -> StyledLine:
    """Return `Sub-agents: 2 running, 1 done, 1 failed • 12s • 34k tokens • $0.32`; unknown parts are left out."""
    outcomes = Counter(view.outcome for view in progress.runs.values())
    counts = [f"{outcomes[outcome]} {name}" for outcome, name in _COUNT_NAMES.items() if outcomes[outcome]]
    usage, seconds = progress.sum_usage(), progress.measure_elapsed(now)
    is_active = any(view.is_active for view in progress.runs.values())
    facts = [
        format_running_time(seconds) if is_active else format_duration(seconds),
        f"{format_count(usage.tokens)} tokens" if usage.tokens else "",
        format_cost(usage.cost) if usage.cost else "",
    ]
    return (
        StyledSpan(f"Sub-agents: {', '.join(counts)}", "name"),
        StyledSpan("".join(SEPARATOR + fact for fact in facts if fact), "muted"),
    )


def render_sessions(views: Iterable[RunView], columns: int) -> list[StyledLine]:
    """Return the short session ids of top-level runs, wrapped and never cut: part of an id finds nothing."""
    ids = list(dict.fromkeys(view.session[:SHORT_ID_LENGTH] for view in views if view.depth == 1))
    return [(StyledSpan(line, "muted"),) for line in wrap_text(session_list(ids), columns, lines=len(ids) + 1)]


def session_list(ids: Collection[str]) -> str:
    """Return `Session: {id}` or `Sessions: {id}, {id}`."""
    return f"{'Session' if len(ids) == 1 else 'Sessions'}: {', '.join(ids)}"
