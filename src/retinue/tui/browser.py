"""Browse runs on a full screen: a list with one run selected, one run alone, or a pager with its log or transcript.

State, keys and frames are pure functions of values; `watch_view` puts them on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct, structs

from retinue.output.untrusted_text import to_one_line
from retinue.runtime.progress import CallProgress, RunState, RunView
from retinue.support.formatting import SHORT_ID_LENGTH, pluralize
from retinue.tui.headers import HeaderRenderer, render_sessions, render_status
from retinue.tui.keys import KeyName, PastedText
from retinue.tui.layout import ScreenSize, render_frame
from retinue.tui.renderer import StyledLine, StyledSpan, fit_line
from retinue.tui.rows import MIN_WRAP_COLUMNS, iter_lines_newest_first, make_line, render_error
from retinue.tui.tree import order_as_tree
from retinue.tui.widths import fit_text, pad_text, text_width, wrap_text

MAX_INPUT_CHARS = 10_000
MIN_TEXT_COLUMNS = 10
"""Columns that the text has at least beside its label."""


class InputLine(Struct, frozen=True):
    """The text typed so far, and the command that it is for."""

    action: str
    """`steer`, `extend` or `filter`."""
    label: str
    run: str = ""
    text: str = ""

    def type_key(self, key: str) -> InputLine:
        """Return the line after a key that edits it; unchanged after other keys."""
        match key:
            case PastedText():
                text = self.text + to_one_line(key, MAX_INPUT_CHARS)
            case KeyName.BACKSPACE:
                text = self.text[:-1]
            case KeyName.CLEAR_LINE:
                text = ""
            case KeyName.DELETE_WORD:
                text = self.text.rstrip().rpartition(" ")[0]
            case _ if len(key) == 1:
                text = self.text + key
            case _:
                text = self.text
        return structs.replace(self, text=text[:MAX_INPUT_CHARS])

    def render(self, columns: int) -> StyledLine:
        """Return the label, the end of the text and the cursor."""
        label = fit_text(self.label, max(columns - MIN_TEXT_COLUMNS, 0))
        free = max(columns - text_width(label) - 2, 1)
        text = self.text[-free:]
        while text_width(text) > free:
            text = text[1:]
        return (StyledSpan(f"{label} ", "warning"), StyledSpan(text), StyledSpan(" ", "key"))


MAX_PAGER_LINES = 5_000
"""Lines of a run in the pager; its transcript has all of them."""
MAX_WRAPPED_LINES = 400
"""Rows of one wrapped line of a transcript."""
MAX_OUTPUT_LINES = 8
"""Lines of a tool's output in the pager with a transcript."""
MAX_NAME_WIDTH = 40
"""Columns of a name within a sentence."""
NOTHING_RUNNING = "Nothing is running. New runs appear here; q quits."
KEYS = (
    ("↑ ↓ j k", "select a run"),
    ("Tab, Shift+Tab", "select the next or previous run, from the last to the first"),
    ("PgUp PgDn Home End", "scroll"),
    ("Enter, Ctrl+O", "show only the selected run, with all output; again: all runs"),
    ("s", "steer: send a message to the selected run"),
    ("e", "extend the timeout of the selected run: 90, 15m, 2h"),
    ("c", "cancel the selected run; asks first"),
    ("t", "read its transcript"),
    ("/", "filter the runs by name, task, agent, model, id or state; Esc shows all again"),
    ("?", "show the keys"),
    ("q", "quit; the runs continue"),
)
"""What each key does, in the order of the list that `?` opens."""
LIST_HINTS = ("↑↓ select", "Enter open", "s steer", "e extend", "c cancel", "/ filter", "t transcript")
SINGLE_HINTS = ("Enter all runs", "↑ PgUp scroll", "s steer", "e extend", "c cancel", "t transcript", "Tab next")
PAGER_HINTS = ("↑↓ PgUp PgDn Home End scroll", "Esc back")
LAST_HINTS = ("? keys", "q quit")


class TextPager(Struct, frozen=True):
    """Lines that do not change while they are scrolled."""

    title: str
    lines: tuple[StyledLine, ...]
    top: int = 0
    """Index of the first visible line."""


class BrowserState(Struct, frozen=True):
    """The state of the browser: selection, pager and pending confirmation."""

    selected: str | None = None
    """Id of a run."""
    single: bool = False
    """Whether only the selected run is shown, live."""
    pager: TextPager | None = None
    """Shown instead of runs."""
    confirming: str | None = None
    """Id of the run that is cancelled if the next key is y."""
    typing: InputLine | None = None
    """The line that takes the keys."""
    filter: str = ""
    """Words of the runs that are listed; all runs if empty."""


class BrowserCommand(Struct, frozen=True):
    """A request of the user that the browser cannot fulfil itself."""

    action: str
    """`cancel`, `steer`, `extend`, `read`, `report` or `quit`."""
    run: str = ""
    text: str = ""
    """The message, the time as it was typed, or the report."""


def apply_key(
    state: BrowserState, key: str, progress: CallProgress, screen: ScreenSize
) -> tuple[BrowserState, BrowserCommand | None]:
    """Return the state after a key, and the command that the key requests, if any."""
    state = select_default(state, progress)
    if state.typing:
        return _type_key(state, state.typing, key)
    if isinstance(key, PastedText):
        return state, None
    if state.confirming:
        command = BrowserCommand("cancel", state.confirming) if key in {"y", "Y"} else None
        return structs.replace(state, confirming=None), command
    if state.pager:
        return _scroll_pager(state, state.pager, key, screen), None
    return _press_key(state, key, progress, screen)


def _press_key(
    state: BrowserState, key: str, progress: CallProgress, screen: ScreenSize
) -> tuple[BrowserState, BrowserCommand | None]:
    """Return the state and the command after a key in the list or in the view of one run."""
    match key:
        case "q":
            return state, BrowserCommand("quit")
        case "?":
            return structs.replace(state, pager=TextPager("Keys", tuple(_render_keys(screen.width)))), None
        case "/":
            typing = InputLine("filter", "Filter:", text=state.filter)
            return structs.replace(state, single=False, typing=typing), None
        case "s" | "e" | "c" | "t" if state.selected:
            return _press_command(state, key, progress.runs[state.selected])
        case KeyName.ENTER | KeyName.EXPAND if state.selected:
            return structs.replace(state, single=not state.single), None
        case KeyName.ESCAPE:
            return structs.replace(state, single=False, filter=state.filter if state.single else ""), None
        case KeyName.UP | KeyName.PAGE_UP | KeyName.HOME if state.single and state.selected:
            with_log = structs.replace(state, pager=_open_full_log(progress.runs[state.selected], screen))
            return apply_key(with_log, key, progress, screen)
        case _:
            return _move_selection(state, key, progress, screen), None


def list_shown(state: BrowserState, progress: CallProgress) -> list[RunView]:
    """Return the runs that match the filter, children after their parents: those that contain all of its words."""
    words = state.filter.casefold().split()
    views = (view for view in progress.runs.values() if all(word in _searched_text(view) for word in words))
    return order_as_tree(views if words else progress.runs.values())


def _searched_text(view: RunView) -> str:
    outcome = view.outcome.replace("_", " ")
    parts = (view.name, view.agent, view.task, view.engine, view.model or "", view.run, view.session, outcome)
    return "\n".join(parts).casefold()


def select_default(state: BrowserState, progress: CallProgress) -> BrowserState:
    """Return the state with one of the listed runs selected if there is any: by default the first that is running."""
    if state.selected in progress.runs and (state.single or not state.filter):
        return state
    views = list_shown(state, progress)
    if not views or any(view.run == state.selected for view in views):
        return state if views else structs.replace(state, selected=None)
    first = next((view for view in views if view.phase is RunState.RUNNING), views[0])
    return structs.replace(state, selected=first.run)


def render_browser(
    state: BrowserState, progress: CallProgress, screen: ScreenSize, now: float
) -> tuple[StyledLine, ...]:
    """Return the frame, as tall as the screen; its last row shows the keys."""
    state, rows = select_default(state, progress), max(screen.height - 1, 1)
    if state.pager:
        lines = _render_page(state.pager, rows)
    elif state.single and state.selected:
        lines = _render_single(progress, progress.runs[state.selected], screen, rows, now)
    elif progress.runs:
        size, shown = structs.replace(screen, height=rows, selected=state.selected or ""), list_shown(state, progress)
        lines = list(render_frame(progress, size, now, shown=shown))
    else:
        lines = [(StyledSpan(NOTHING_RUNNING, "muted"),)]
    lines = [*lines[:rows], *([()] * (rows - len(lines)))]
    frame = [*lines, _render_last_row(state, progress, screen.width)][: screen.height]
    return tuple(fit_line(line, screen.width) for line in frame)


def open_transcript(view: RunView, lines_of_text: list[str], columns: int) -> TextPager:
    """Return a pager with the transcript of a run, scrolled to its end."""
    lines = [
        (StyledSpan(piece),)
        for text in lines_of_text
        for row in text.split("\n")
        for piece in wrap_text(row, columns, MAX_WRAPPED_LINES) or [""]
    ]
    return _open_at_end("Transcript", view, lines)


def fold_output(text: str) -> str:
    """Return the first lines of a tool's output, and how many lines were left out."""
    lines = text.split("\n")
    if len(lines) <= MAX_OUTPUT_LINES + 1:
        return text
    return "\n".join((*lines[:MAX_OUTPUT_LINES], f"… {len(lines) - MAX_OUTPUT_LINES} more lines"))


def _open_at_end(title: str, view: RunView, lines: Sequence[StyledLine]) -> TextPager:
    return TextPager(f"{title} of {_describe_run(view)}", tuple(lines), len(lines))


# -- keys ------------------------------------------------------------------------------------------


def _press_command(state: BrowserState, key: str, view: RunView) -> tuple[BrowserState, BrowserCommand | None]:
    """Return the state and the command after a key that concerns the selected run."""
    if key == "t":
        return state, BrowserCommand("read", view.run)
    if not view.is_active:
        return state, BrowserCommand("report", view.run, f"{_describe_run(view)} has ended.")
    match key:
        case "s":
            typing = InputLine("steer", f"Message to {_describe_run(view)}:", view.run)
        case "e":
            typing = InputLine("extend", f"Extend {_describe_run(view)} by (90, 15m, 2h):", view.run)
        case _:
            return structs.replace(state, confirming=view.run), None
    return structs.replace(state, typing=typing), None


def _type_key(state: BrowserState, typing: InputLine, key: str) -> tuple[BrowserState, BrowserCommand | None]:
    """Return the state after a key of the input line; the runs are filtered while their filter is typed."""
    if key == KeyName.ESCAPE and not isinstance(key, PastedText):
        return structs.replace(state, typing=None, filter="" if typing.action == "filter" else state.filter), None
    if key == KeyName.ENTER and not isinstance(key, PastedText):
        done = structs.replace(state, typing=None)
        text = typing.text.strip()
        return done, BrowserCommand(typing.action, typing.run, text) if text and typing.run else None
    typing = typing.type_key(key)
    text = typing.text if typing.action == "filter" else state.filter
    return structs.replace(state, typing=typing, filter=text), None


def _describe_run(view: RunView) -> str:
    return f"{to_one_line(view.name, MAX_NAME_WIDTH)} ({view.session[:SHORT_ID_LENGTH]})"


def _move_selection(state: BrowserState, key: str, progress: CallProgress, screen: ScreenSize) -> BrowserState:
    if state.selected is None:
        return state
    order = [view.run for view in list_shown(state, progress)]
    if state.selected not in order:
        return state
    index = order.index(state.selected)
    if key in {KeyName.TAB, KeyName.BACK_TAB}:  # Tab wraps around at the ends, arrows do not
        index = (index + (1 if key == KeyName.TAB else -1)) % len(order)
    else:
        index += _count_steps(key, screen.height - 3, len(order))
    return structs.replace(state, selected=order[min(max(index, 0), len(order) - 1)])


def _count_steps(key: str, page: int, total: int) -> int:
    """Return how many lines a key moves down, negative for up; 0 for other keys."""
    steps = {
        KeyName.UP: -1,
        "k": -1,
        KeyName.DOWN: 1,
        "j": 1,
        KeyName.PAGE_UP: -page,
        KeyName.PAGE_DOWN: page,
        KeyName.HOME: -total,
        KeyName.END: total,
    }
    return steps.get(key, 0)


def _scroll_pager(state: BrowserState, pager: TextPager, key: str, screen: ScreenSize) -> BrowserState:
    """Return the state with the pager scrolled or closed; at the end of a single run, that is live again."""
    rows = max(screen.height - 2, 1)
    last = max(len(pager.lines) - rows, 0)
    steps = _count_steps(KeyName.PAGE_DOWN if key == " " else key, rows, len(pager.lines))
    top = min(max(min(pager.top, last) + steps, 0), last)
    if key in {"q", KeyName.ESCAPE, KeyName.ENTER, "t"} or (state.single and top == last and steps > 0):
        return structs.replace(state, pager=None)
    return structs.replace(state, pager=structs.replace(pager, top=top))


# -- frames ----------------------------------------------------------------------------------------


def _render_single(
    progress: CallProgress, view: RunView, screen: ScreenSize, rows: int, now: float
) -> list[StyledLine]:
    """Return one run on the whole screen: its newest lines, its error below, its session once it has ended."""
    view = structs.replace(view, depth=1)
    errors = render_error(view, screen.width)
    foot = render_sessions([view], screen.width) if view.elapsed is not None else []
    room = max(rows - 2 - len(errors) - len(foot), 0)
    body = list(islice(iter_lines_newest_first(view, screen.width, expanded=True), room))[::-1]
    if not body:
        body = [make_line(view, "(no output)", "muted")]
    header = HeaderRenderer(progress.runs.values(), now).render(view, screen.width)
    return [render_status(progress, now), header, *body, *errors, *foot]


def _open_full_log(view: RunView, screen: ScreenSize) -> TextPager:
    """Return a pager with all lines of a run that are in memory, wrapped."""
    view = structs.replace(view, depth=1)
    newest = islice(iter_lines_newest_first(view, screen.width, expanded=True), MAX_PAGER_LINES)
    return _open_at_end("All", view, [*reversed(list(newest)), *render_error(view, screen.width)])


def _render_page(pager: TextPager, rows: int) -> list[StyledLine]:
    room = max(rows - 1, 1)
    top = min(pager.top, max(len(pager.lines) - room, 0))
    place = f" • {min(top + room, len(pager.lines))}/{len(pager.lines)}"
    return [(StyledSpan(pager.title, "name"), StyledSpan(place, "muted")), *pager.lines[top : top + room]]


def _render_keys(columns: int) -> Iterator[StyledLine]:
    width = max(text_width(keys) for keys, _ in KEYS)
    room = max(columns - width - 4, MIN_WRAP_COLUMNS)
    for keys, effect in KEYS:
        for place, line in enumerate(wrap_text(effect, room, MAX_WRAPPED_LINES)):
            yield (StyledSpan(f"  {pad_text('' if place else keys, width)}  ", "name"), StyledSpan(line))


def _render_last_row(state: BrowserState, progress: CallProgress, columns: int) -> StyledLine:
    """Return the input line or the question if there is one, else the keys that fit into the columns."""
    if state.typing:
        return state.typing.render(columns)
    if state.confirming and (view := progress.runs.get(state.confirming)):
        return (StyledSpan(f"Cancel {_describe_run(view)}? y, or any other key", "warning"),)
    if state.pager:
        return (StyledSpan(_join_hints(PAGER_HINTS, (), columns), "muted"),)
    if state.single:
        return (StyledSpan(_join_hints(SINGLE_HINTS, LAST_HINTS, columns), "muted"),)
    if not state.filter:
        return (StyledSpan(_join_hints(LIST_HINTS, LAST_HINTS, columns), "muted"),)
    words = to_one_line(state.filter, MAX_NAME_WIDTH)
    shown = f"Filter “{words}”: {len(list_shown(state, progress))} of {pluralize(len(progress.runs), 'run')}  "
    hints = _join_hints(("Esc all runs", *LIST_HINTS), LAST_HINTS, columns - text_width(shown))
    return (StyledSpan(shown, "warning"), StyledSpan(hints, "muted"))


def _join_hints(hints: Sequence[str], last: Sequence[str], columns: int) -> str:
    """Return as many of the hints as fit before the last ones."""
    while hints and text_width("  ".join((*hints, *last))) > columns:
        hints = hints[:-1]
    return "  ".join((*hints, *last))
