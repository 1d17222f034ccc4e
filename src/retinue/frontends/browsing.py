"""What someone looks at among runs, and what each key does about it: pure values, for any full screen.

All runs, one of them chosen; that one alone, as it goes on; or something to read, such as its transcript.
"""

from __future__ import annotations

from itertools import islice

from msgspec import Struct, structs

from retinue.frontends.cells import wrap
from retinue.frontends.fitting import tree_of
from retinue.frontends.keys import Key
from retinue.frontends.spans import Line, Span, fitted
from retinue.frontends.window_lines import backwards, error_lines, line_of
from retinue.frontends.windows import Screen, frame, header, sessions, status
from retinue.frontends.wording import SHORT
from retinue.output.frame import one_line
from retinue.progress import Phase, Progress, RunView

MOST_LINES = 5_000
"""Of a run that is scrolled through; its transcript has more."""
WRAPPED = 40
"""Rows one line may take when it is read whole."""
NAME = 40
"""Columns of a name in a sentence."""
NOTHING = "Nothing is running. What begins now is shown; q leaves."


class Pager(Struct, frozen=True):
    """Lines that do not change while they are read."""

    title: str
    lines: tuple[Line, ...]
    top: int = 0
    """The first line that is shown."""


class Look(Struct, frozen=True):
    """What is looked at."""

    chosen: str | None = None
    """A run."""
    alone: bool = False
    """Whether only the chosen run is shown, as it goes on."""
    pager: Pager | None = None
    """What is read instead."""
    asks: str | None = None
    """The run that is to be cancelled, if the next key is y."""


class Wish(Struct, frozen=True):
    """What a key asks for that a look cannot do itself."""

    what: str
    """`cancel`, `read` or `quit`."""
    run: str = ""


def after(look: Look, key: str, progress: Progress, screen: Screen) -> tuple[Look, Wish | None]:
    """What is looked at once a key was pressed, and what it asks for beyond that."""
    look = chosen(look, progress)
    if look.asks:
        wish = Wish("cancel", look.asks) if key in {"y", "Y"} else None
        return structs.replace(look, asks=None), wish
    if look.pager:
        return _paged(look, look.pager, key, screen), None
    match key:
        case "q":
            return look, Wish("quit")
        case "c" if look.chosen and progress.runs[look.chosen].phase in {Phase.QUEUED, Phase.RUNNING}:
            return structs.replace(look, asks=look.chosen), None
        case "t" if look.chosen:
            return look, Wish("read", look.chosen)
        case Key.ENTER | Key.EXPAND if look.chosen:
            return structs.replace(look, alone=not look.alone), None
        case Key.ESCAPE:
            return structs.replace(look, alone=False), None
        case Key.UP | Key.PAGE_UP | Key.HOME if look.alone and look.chosen:
            whole = structs.replace(look, pager=_whole(progress.runs[look.chosen], screen))
            return after(whole, key, progress, screen)
        case _:
            return _moved(look, key, progress, screen), None


def chosen(look: Look, progress: Progress) -> Look:
    """The look with a run chosen, as soon as there is one: the first that is at work."""
    if look.chosen in progress.runs or not progress.runs:
        return look
    views = tree_of(progress.runs.values())
    first = next((view for view in views if view.phase is Phase.RUNNING), views[0])
    return structs.replace(look, chosen=first.run)


def picture(look: Look, progress: Progress, screen: Screen, now: float) -> tuple[Line, ...]:
    """What is seen, as tall as the screen: the last row says which keys there are."""
    look, rows = chosen(look, progress), max(screen.height - 1, 1)
    if look.pager:
        lines = _page(look.pager, rows)
    elif look.alone and look.chosen:
        lines = _alone(progress, progress.runs[look.chosen], screen, rows, now)
    elif progress.runs:
        seen = structs.replace(screen, height=rows, chosen=look.chosen)
        lines = list(frame(progress, seen, now))
    else:
        lines = [(Span(NOTHING, "muted"),)]
    lines = [*lines[:rows], *([()] * (rows - len(lines)))]
    return tuple(fitted(line, screen.width) for line in (*lines, _keys(look, progress)))[: screen.height]


def transcript(view: RunView, told: list[str], columns: int) -> Pager:
    """The transcript of a run, to be read from its end."""
    lines = [
        (Span(piece),)
        for text in told
        for row in text.split("\n")
        for piece in wrap(row, columns, WRAPPED * 10) or [""]
    ]
    return Pager(f"Transcript of {one_line(view.name, NAME)} ({view.session[:SHORT]})", tuple(lines), len(lines))


# -- keys ------------------------------------------------------------------------------------------


def _moved(look: Look, key: str, progress: Progress, screen: Screen) -> Look:
    """Another run chosen."""
    steps = {
        Key.TAB: 1,
        Key.DOWN: 1,
        "j": 1,
        Key.BACK_TAB: -1,
        Key.UP: -1,
        "k": -1,
        Key.PAGE_DOWN: screen.height - 3,
        Key.PAGE_UP: 3 - screen.height,
        Key.HOME: -len(progress.runs),
        Key.END: len(progress.runs),
    }
    if look.chosen is None or key not in steps:
        return look
    order = [view.run for view in tree_of(progress.runs.values())]
    place = order.index(look.chosen) + steps[key]
    # From the last on to the first with Tab, as everywhere; the arrows stay.
    place = place % len(order) if key in {Key.TAB, Key.BACK_TAB} else min(max(place, 0), len(order) - 1)
    return structs.replace(look, chosen=order[place])


def _paged(look: Look, pager: Pager, key: str, screen: Screen) -> Look:
    """The pager scrolled, or left; at the end of a run that goes on it goes on, too."""
    rows = max(screen.height - 2, 1)
    last = max(len(pager.lines) - rows, 0)
    tops = {
        Key.UP: -1,
        "k": -1,
        Key.DOWN: 1,
        "j": 1,
        Key.PAGE_UP: -rows,
        Key.PAGE_DOWN: rows,
        " ": rows,
        Key.HOME: -len(pager.lines),
        Key.END: len(pager.lines),
    }
    if key in {"q", Key.ESCAPE, Key.ENTER, "t"}:
        return structs.replace(look, pager=None)
    top = min(max(min(pager.top, last) + tops.get(key, 0), 0), last)
    if look.alone and top == last and tops.get(key, 0) > 0:
        return structs.replace(look, pager=None)
    return structs.replace(look, pager=structs.replace(pager, top=top))


# -- pictures --------------------------------------------------------------------------------------


def _alone(progress: Progress, view: RunView, screen: Screen, rows: int, now: float) -> list[Line]:
    """One run on the whole screen: its newest lines, its error beneath, its session once it has ended."""
    view = structs.replace(view, depth=1)
    errors = error_lines(view, screen.width)
    foot = sessions([view], screen.width) if view.elapsed is not None else []
    room = max(rows - 2 - len(errors) - len(foot), 0)
    body = list(islice(backwards(view, screen.width, expanded=True), room))[::-1]
    if not body:
        body = [line_of(view, "(no output)", "muted")]
    return [status(progress), header(view, now, with_id=True), *body, *errors, *foot]


def _whole(view: RunView, screen: Screen) -> Pager:
    """All that is kept of a run, its lines broken instead of cut."""
    view = structs.replace(view, depth=1)
    newest = islice(backwards(view, screen.width, expanded=True), MOST_LINES)
    lines = (*reversed(list(newest)), *error_lines(view, screen.width))
    return Pager(f"All of {one_line(view.name, NAME)} ({view.session[:SHORT]})", lines, len(lines))


def _page(pager: Pager, rows: int) -> list[Line]:
    room = max(rows - 1, 1)
    top = min(pager.top, max(len(pager.lines) - room, 0))
    place = f" • {min(top + room, len(pager.lines))}/{len(pager.lines)}"
    return [(Span(pager.title, "name"), Span(place, "muted")), *pager.lines[top : top + room]]


def _keys(look: Look, progress: Progress) -> Line:
    """What can be pressed."""
    if look.asks and (view := progress.runs.get(look.asks)):
        return (Span(f"Cancel {one_line(view.name, NAME)} ({view.run[:SHORT]})? y, or any other key", "warning"),)
    if look.pager:
        told = "↑↓ PgUp PgDn Home End scroll • Esc back"
    elif look.alone:
        told = "↑ PgUp scroll • Tab next • Enter all runs • c cancel • t transcript • q quit"
    else:
        told = "↑↓ Tab choose • Enter expand • c cancel • t transcript • q quit"
    return (Span(told, "muted"),)
