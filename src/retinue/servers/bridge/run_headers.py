"""The headers of a call's view in pi, in the form of the `fanout` toolset's own system."""

from __future__ import annotations

from retinue.output.untrusted_text import to_one_line
from retinue.runtime.progress import CallProgress, RunState, RunView
from retinue.support.formatting import pluralize
from retinue.tui.headers import DEFAULT_AGENT, SPINNER, SPINNER_RATE, describe_model, elapsed_seconds
from retinue.tui.renderer import StyledLine, StyledSpan
from retinue.tui.rows import MAX_COLUMNS, header_prefix

_ICONS = {RunState.QUEUED: "○", RunState.DONE: "✓", RunState.ERROR: "✗"}
_STYLES = {RunState.QUEUED: "muted", RunState.RUNNING: "running", RunState.DONE: "good", RunState.ERROR: "error"}
_COUNT_NAMES = {
    RunState.RUNNING: "running",
    RunState.QUEUED: "queued",
    RunState.DONE: "done",
    RunState.ERROR: "error",
}


def render_status(progress: CallProgress) -> StyledLine:
    """Return `Sub-agents: 2 running, 1 done, 1 error`; queued runs are counted while there are any."""
    counts = [f"{count} {name}" for phase, name in _COUNT_NAMES.items() if (count := progress.count(phase))]
    return (StyledSpan(f"Sub-agents: {', '.join(counts)}", "name"),)


def render_header(view: RunView, now: float, *, verbatim: bool = False) -> StyledLine:
    """Return the run in one line: name, agent, model, tool count and time.

    `verbatim` is exactly the form of that system: `{name} • {profile} … • {n} tools`, also where the task is called
    like its profile and where it has used one tool.
    """
    unnamed = {DEFAULT_AGENT, ""} if verbatim else {DEFAULT_AGENT, "", view.name}
    agent = f" • {view.agent}" if view.agent not in unnamed else ""
    model = f" ({described})" if (described := describe_model(view)) else ""
    facts = to_one_line(f"{agent}{model}{_describe_progress(view, verbatim)}{_format_time(view, now)}", MAX_COLUMNS)
    icon = _ICONS.get(view.phase) or SPINNER[int(now * SPINNER_RATE) % len(SPINNER)]
    return (
        StyledSpan(header_prefix(view), "muted"),
        StyledSpan(f"{icon} ", _STYLES[view.phase]),
        StyledSpan(to_one_line(view.name, MAX_COLUMNS), "name"),
        StyledSpan(f" {facts}" if facts else "", "muted"),
    )


def _describe_progress(view: RunView, verbatim: bool) -> str:
    """Return the number of tool calls, and of todos while some are open."""
    if view.started is None:
        return ""
    todos = f" • [{view.todos.completed_count}/{view.todos.total}]" if view.todos.has_open_items else ""
    tools = f"{view.tools} tools" if verbatim else pluralize(view.tools, "tool")
    return f" • {tools}{todos}"


def _format_time(view: RunView, now: float) -> str:
    if view.phase is RunState.QUEUED:
        return " • queued"
    limit = f"/{view.timeout:.0f}s" if view.timeout else ""
    # Whole seconds. A run that failed before it started has no time.
    return f" • {int(elapsed_seconds(view, now))}s{limit}" if view.started is not None else ""
