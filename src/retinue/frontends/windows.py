"""What a screen shows of runs: pure functions from progress, time and size to lines. Seed 003's rolling windows.

One window per run: a header, the newest lines of what it does and says, its error beneath. However many runs there
are, a frame is never taller or wider than its screen: windows shrink, and the newest lines stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from msgspec import Struct

from retinue.frontends.cells import wrap
from retinue.frontends.fitting import shares, that_fit, tree_of
from retinue.frontends.spans import Line, Span, fitted
from retinue.frontends.window_lines import INDENT, MOST_COLUMNS, backwards, before_header, error_lines, line_of
from retinue.frontends.wording import SHORT, counted
from retinue.output.frame import one_line
from retinue.progress import Phase, Progress, RunView

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINS = 10.0
"""Pictures of the spinner per second."""
SESSION_DIGITS = 16
"""Of an id, as seed 003 shows it."""
NOBODY = "default"
"""The agent of a task that names none: not worth telling."""

_ICONS = {Phase.QUEUED: "○", Phase.DONE: "✓", Phase.ERROR: "✗"}
_STYLES = {Phase.QUEUED: "muted", Phase.RUNNING: "running", Phase.DONE: "good", Phase.ERROR: "error"}


class Screen(Struct, frozen=True):
    """What a frame must fit into."""

    width: int = 80
    height: int = 24
    max_lines: int = 15
    """Of one window, header and error apart."""
    expanded: bool = False
    """Shows as much of every run as there is room for, not only its latest lines."""
    chosen: str | None = None
    """The run someone has picked: it stays in sight and is marked."""


def frame(progress: Progress, screen: Screen, now: float) -> tuple[Line, ...]:
    """All windows at this time of the wall clock, the status of all above them, the footer once all is done."""
    views = tree_of(progress.runs.values())
    head = [status(progress)] if screen.height > 1 else []
    tail = _footer(views, screen, screen.height - len(head))
    rows = screen.height - len(head) - len(tail)
    shown, hidden = that_fit(views, rows, screen.chosen)
    foot = [(Span(f"… and {hidden} more", "muted"),)] if hidden and rows > len(shown) else []
    room = rows - len(shown) - len(foot)
    margin = INDENT if screen.chosen is not None else ""
    columns = screen.width - len(margin)
    bodies = [_body(view, screen, columns, room) for view in shown]
    errors = [error_lines(view, columns) for view in shown]
    given = shares(shown, [len(body) for body in bodies], [len(error) for error in errors], room)
    windows: list[Line] = []
    for view, body, error, (of_body, of_error) in zip(shown, bodies, errors, given, strict=True):
        below = [*body[len(body) - of_body :], *error[:of_error]]
        windows += [_marked(view, screen, now), *((Span(margin), *line) for line in below)]
    return tuple(fitted(line, screen.width) for line in (*head, *windows, *foot, *tail))


def closing(progress: Progress, screen: Screen, now: float, *, is_told: bool = True) -> tuple[Line, ...]:
    """What stays on a screen when all is done: a header per run, and the ids by which to find the sessions.

    What came of the runs at the top `is_told` in full by whoever asked for them; else they, too, say why they failed.
    """
    views = tree_of(progress.runs.values())
    lines = [status(progress)]
    for view in views:
        most = 0 if is_told and view.depth == 1 else 1
        lines += [header(view, now), *error_lines(view, screen.width, most)]
    lines += sessions(views, screen.width)
    return tuple(fitted(line, screen.width) for line in lines)


def status(progress: Progress) -> Line:
    """`Sub-agents: 2 running, 1 done, 1 error`; queued ones too, while there are any."""
    names = {Phase.RUNNING: "running", Phase.QUEUED: "queued", Phase.DONE: "done", Phase.ERROR: "error"}
    counts = [f"{count} {name}" for phase, name in names.items() if (count := progress.count(phase))]
    return (Span(f"Sub-agents: {', '.join(counts)}", "name"),)


def header(view: RunView, now: float, *, with_id: bool = False, verbatim: bool = False) -> Line:
    """The run in one line: who, with what, how much, how long; with the id by which others can give it orders.

    `verbatim` is the form of the `fanout` toolset's own system: `{name} • {profile} … • {n} tools`, also where the
    task is called like its profile and where it has used one tool.
    """
    own = f" • {view.session[:SHORT]}" if with_id else ""
    # A task without a name of its own is called like its agent: that is not said twice.
    unnamed = {NOBODY, ""} if verbatim else {NOBODY, "", view.name}
    agent = f" • {view.agent}" if view.agent not in unnamed else ""
    facts = one_line(f"{own}{agent}{_answering(view)}{_work(view, verbatim)}{_time(view, now)}", MOST_COLUMNS)
    return (
        Span(before_header(view), "muted"),
        Span(f"{_icon(view, now)} ", _STYLES[view.phase]),
        Span(one_line(view.name, MOST_COLUMNS), "name"),
        Span(f" {facts}" if facts else "", "muted"),
    )


def sessions(views: Iterable[RunView], columns: int) -> list[Line]:
    """The ids by which the sessions are found again; in as many lines as they need, for half an id finds nothing.

    Nested ones are found by those at the top.
    """
    ids = dict.fromkeys(view.session[:SESSION_DIGITS] for view in views if view.depth == 1)
    return [(Span(line, "muted"),) for line in wrap(session_list(ids), columns, lines=len(ids) + 1)]


def session_list(ids: Collection[str]) -> str:
    """Return `Session: {id}` or `Sessions: {id}, {id}`."""
    return f"{'Session' if len(ids) == 1 else 'Sessions'}: {', '.join(ids)}"


def seconds(view: RunView, now: float) -> float:
    """How long the run has been at work: frozen at its end, nothing before it started."""
    if view.elapsed is not None:
        return view.elapsed
    return max(now - view.started, 0.0) if view.started is not None else 0.0


# -- the parts of a header -------------------------------------------------------------------------


def _icon(view: RunView, now: float) -> str:
    return _ICONS.get(view.phase) or SPINNER[int(now * SPINS) % len(SPINNER)]


def _answering(view: RunView) -> str:
    """Who answers: the model, with provider and thinking level where known, else the engine; nested, both."""
    model = view.model or ""
    # An engine may name the model that answered together with its provider.
    if view.provider and not model.startswith(f"{view.provider}/"):
        model = f"{view.provider}/{model}" if model else view.provider
    engine = view.engine if not model or (view.depth > 1 and view.engine != model) else ""
    answering = " ".join(filter(None, (engine, model, view.thinking)))
    return f" ({answering})" if answering else ""


def _work(view: RunView, verbatim: bool) -> str:
    """What it has done: its tools, and its todos while some of them are open."""
    if view.started is None:
        return ""
    todos = f" • [{view.todos.completed}/{view.todos.total}]" if view.todos.are_open else ""
    tools = f"{view.tools} tools" if verbatim else counted(view.tools, "tool")
    return f" • {tools}{todos}"


def _time(view: RunView, now: float) -> str:
    if view.phase is Phase.QUEUED:
        return " • queued"
    limit = f"/{view.timeout:.0f}s" if view.timeout else ""
    # Whole seconds that have passed. A run that failed before it started took no time.
    return f" • {int(seconds(view, now))}s{limit}" if view.started is not None else ""


def _marked(view: RunView, screen: Screen, now: float) -> Line:
    """The header; where someone can choose among several, with its id and a sign before it."""
    if screen.chosen is None:
        return header(view, now)
    return (Span("› " if view.run == screen.chosen else INDENT, "name"), *header(view, now, with_id=True))


# -- the parts of a frame --------------------------------------------------------------------------


def _body(view: RunView, screen: Screen, columns: int, room: int) -> list[Line]:
    """The newest lines, oldest first."""
    most = room if screen.expanded else min(screen.max_lines, room)
    newest = list(islice(backwards(view, columns, expanded=screen.expanded), most))
    if not newest and view.phase is Phase.RUNNING:
        newest = [line_of(view, "(no output)" if screen.expanded else "(starting...)", "muted")][:most]
    return newest[::-1]


def _footer(views: list[RunView], screen: Screen, rows: int) -> list[Line]:
    """Where to find the sessions, once nothing runs any more; none where it would take over half the screen."""
    if not views or any(view.phase in {Phase.QUEUED, Phase.RUNNING} for view in views):
        return []
    told = sessions(views, screen.width)
    return told if len(told) <= rows // 2 else []
