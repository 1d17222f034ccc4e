"""What a screen shows of runs: pure functions from progress, time and size to lines. Seed 003's rolling windows.

One window per run: a header, the newest lines of what it does and says, its error beneath. However many runs there
are, a frame is never taller or wider than its screen: windows shrink, and the newest lines stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from retinue.frontends.cells import fit, width, wrap
from retinue.frontends.fitting import as_tree, shares, that_fit
from retinue.frontends.tool_lines import call_line, error_line, result_line
from retinue.frontends.wording import counted
from retinue.output.frame import one_line
from retinue.progress import Called, Noted, Phase, Progress, RunView, Said

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINS = 10.0
"""Pictures of the spinner per second."""
ERROR_LINES = 3
TEXT_CHARS = 8_000
"""Of one text, from its end: more than any window shows."""
MOST_INDENT = 8
MOST_COLUMNS = 1_000
"""Of anything: no screen is wider."""
SESSION_DIGITS = 16
"""Of an id, as seed 003 shows it."""

_ICONS = {Phase.QUEUED: "○", Phase.DONE: "✓", Phase.ERROR: "✗"}
_STYLES = {Phase.QUEUED: "muted", Phase.RUNNING: "running", Phase.DONE: "good", Phase.ERROR: "error"}
_INDENT = "  "


class Span(Struct, frozen=True):
    """Text in one style: `name`, `muted`, `running`, `good`, `error`, `warning`, or none."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


class Screen(Struct, frozen=True):
    """What a frame must fit into."""

    width: int = 80
    height: int = 24
    max_lines: int = 15
    """Of one window, header and error apart."""


def frame(progress: Progress, screen: Screen, now: float) -> tuple[Line, ...]:
    """All windows as they are at this time of the wall clock, the status of all above them if there are several."""
    views = as_tree(progress.runs.values())
    head = [status(progress)] if len(views) > 1 and screen.height > 1 else []
    rows = screen.height - len(head)
    shown, hidden = that_fit(views, rows)
    foot = [(Span(f"… and {hidden} more", "muted"),)] if hidden else []
    bodies = [_body(view, screen) for view in shown]
    errors = [_error(view, screen) for view in shown]
    room = rows - len(shown) - len(foot)
    given = shares(shown, [len(body) for body in bodies], [len(error) for error in errors], room)
    windows: list[Line] = []
    for view, body, error, (of_body, of_error) in zip(shown, bodies, errors, given, strict=True):
        windows += [header(view, now), *body[len(body) - of_body :], *error[:of_error]]
    return tuple(_fitted(line, screen.width) for line in (*head, *windows, *foot))


def closing(progress: Progress, screen: Screen, now: float) -> tuple[Line, ...]:
    """What stays on a screen when all is done: a header per run, and the ids by which to find the sessions.

    Answers and errors are told in full by whoever asked for them.
    """
    views = as_tree(progress.runs.values())
    head = [status(progress)] if len(views) > 1 else []
    lines = [*head, *(header(view, now) for view in views), *sessions(views, screen.width)]
    return tuple(_fitted(line, screen.width) for line in lines)


def status(progress: Progress) -> Line:
    """`Sub-agents: 2 running, 1 done, 1 error`; queued ones too, while there are any."""
    names = {Phase.RUNNING: "running", Phase.QUEUED: "queued", Phase.DONE: "done", Phase.ERROR: "error"}
    counts = [f"{count} {name}" for phase, name in names.items() if (count := progress.count(phase))]
    return (Span(f"Sub-agents: {', '.join(counts)}", "name"),)


def header(view: RunView, now: float) -> Line:
    """The run in one line: who, with what, how much, how long."""
    agent = f" • {view.agent}" if view.agent != view.name else ""
    tools = f" • {counted(view.tools, 'tool')}" if view.tools else ""
    facts = one_line(f"{agent}{_answering(view)}{tools}{_time(view, now)}", MOST_COLUMNS)
    return (
        Span(_INDENT * (view.depth - 1)),
        Span(f"{_icon(view, now)} ", _STYLES[view.phase]),
        Span(one_line(view.name, MOST_COLUMNS), "name"),
        Span(f" {facts}" if facts else "", "muted"),
    )


def sessions(views: Iterable[RunView], columns: int) -> list[Line]:
    """The ids by which the sessions are found again; in as many lines as they need, for half an id finds nothing."""
    ids = dict.fromkeys(view.session[:SESSION_DIGITS] for view in views)
    told = f"{'Session' if len(ids) == 1 else 'Sessions'}: {', '.join(ids)}"
    return [(Span(line, "muted"),) for line in wrap(told, columns, lines=len(ids) + 1)]


def seconds(view: RunView, now: float) -> float:
    """How long the run has been at work: frozen at its end, nothing before it started."""
    if view.elapsed is not None:
        return view.elapsed
    return max(now - view.started, 0.0) if view.started is not None else 0.0


# -- the parts of a header -------------------------------------------------------------------------


def _icon(view: RunView, now: float) -> str:
    return _ICONS.get(view.phase) or SPINNER[int(now * SPINS) % len(SPINNER)]


def _answering(view: RunView) -> str:
    """Who answers: the model, with provider and thinking level where known, else the engine."""
    model = "/".join(filter(None, (view.provider, view.model))) or view.engine
    answering = " ".join(filter(None, (model, view.thinking)))
    return f" ({answering})" if answering else ""


def _time(view: RunView, now: float) -> str:
    if view.phase is Phase.QUEUED:
        return " • queued"
    limit = f"/{view.timeout:.0f}s" if view.timeout else ""
    # A run that failed before it started took no time.
    return f" • {seconds(view, now):.0f}s{limit}" if view.started is not None else ""


# -- the parts of a body ---------------------------------------------------------------------------


def _body(view: RunView, screen: Screen) -> list[Line]:
    """The newest lines, oldest first. Read from the end, so that its cost does not grow with the run."""
    newest = list(islice(_backwards(view, screen), screen.max_lines))
    if not newest and view.phase is Phase.RUNNING:
        newest = [_line(view, "(starting...)", "muted")]
    return newest[::-1]


def _backwards(view: RunView, screen: Screen) -> Iterator[Line]:
    yield from _said_backwards(view, view.partial)
    for item in reversed(view.items):
        match item:
            case Said(text=text):
                yield from _said_backwards(view, text)
            case Noted(message=message):
                told = wrap(f"! {one_line(message, MOST_COLUMNS)}", _room(view, screen), screen.max_lines)
                yield from (_line(view, line, "warning") for line in reversed(told))
            case Called():
                yield from _called_backwards(view, item)


def _said_backwards(view: RunView, text: str) -> Iterator[Line]:
    for line in reversed(text[-TEXT_CHARS:].split("\n")):
        if said := line.strip():
            yield _line(view, said, indent=min(len(line) - len(line.lstrip(" ")), MOST_INDENT))


def _called_backwards(view: RunView, called: Called) -> Iterator[Line]:
    if error := error_line(called):
        yield _line(view, error, "error", indent=2)
    if result := result_line(called):
        yield _line(view, result, "muted", indent=2)
    yield _line(view, call_line(called.name, called.args), "muted")


def _error(view: RunView, screen: Screen) -> list[Line]:
    if view.failure is None:
        return []
    told = wrap(one_line(view.failure.message, MOST_COLUMNS), _room(view, screen), ERROR_LINES)
    return [_line(view, text, "error") for text in told]


def _room(view: RunView, screen: Screen) -> int:
    """Columns beside the indent of a run."""
    return screen.width - len(_INDENT) * view.depth


def _line(view: RunView, text: str, style: str = "", *, indent: int = 0) -> Line:
    return (Span(_INDENT * view.depth + " " * indent), Span(one_line(text, MOST_COLUMNS), style))


def _fitted(line: Line, columns: int) -> Line:
    fitted: list[Span] = []
    for span in line:
        text = fit(span.text, columns)
        fitted.append(Span(text, span.style))
        columns -= width(text)
    return tuple(fitted)
