"""Folds events into what any screen shows: one value per run, whoever draws it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec import Struct, field, structs

from retinue.events import (
    UNSHOWN_NOTICES,
    AttemptStarted,
    DeadlineExtended,
    Event,
    MessageEnded,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    Stamped,
    Steered,
    Text,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.todos import TOOLS, Todos
from retinue.types import Args, Failure, ToolUse, Usage

KEPT_ITEMS = 500
"""Of a run, for a screen's expanded view."""
KEPT_CHARS = 2**20
"""Of a run's items together: a screen is no archive."""
PARTIAL_CHARS = 4_000
"""Of a text that is still being written: more than any window shows."""

_encode = msgspec.json.Encoder().encode


class Phase(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"


class Said(Struct, frozen=True):
    text: str


class Called(Struct, frozen=True):
    """A tool call, with what came of it once that is known."""

    call: str
    name: str
    args: Args
    result: str | None = None
    is_error: bool = False


class Noted(Struct, frozen=True):
    code: str
    message: str


class Told(Struct, frozen=True):
    """What others said to the agent while it worked."""

    text: str


Item = Said | Called | Noted | Told


class RunView(Struct, frozen=True, kw_only=True):
    """What a screen shows of one run."""

    run: str
    session: str
    name: str
    agent: str = ""
    engine: str = ""
    model: str | None = None
    provider: str | None = None
    thinking: str | None = None
    task: str = ""
    parent_run: str | None = None
    depth: int = 1
    phase: Phase = Phase.QUEUED
    queued: float = 0.0
    started: float | None = None
    """Wall clock."""
    elapsed: float | None = None
    """Frozen at the end; until then a screen counts from `started`."""
    timeout: float = 0.0
    """As it is now: it may be extended."""
    tools: int = 0
    todos: Todos = Todos()
    turns: int = 0
    stop_reason: str | None = None
    """Of the last message."""
    attempt: int = 1
    usage: Usage = Usage()
    items: tuple[Item, ...] = ()
    """The newest."""
    chars: int = 0
    """Of the items together, roughly."""
    partial: str = ""
    """Text that is still being written."""
    failure: Failure | None = None

    def display_items(self) -> tuple[str | ToolUse, ...]:
        """Texts and tool calls, as results carry them."""
        shown: list[str | ToolUse] = []
        for item in self.items:
            if isinstance(item, Said):
                shown.append(item.text)
            elif isinstance(item, Called):
                shown.append(ToolUse(item.call, item.name, item.args))
        return tuple(shown)


class Progress(Struct, frozen=True):
    """All runs seen so far, in the order they were accepted."""

    runs: Mapping[str, RunView] = field(default_factory=dict)

    def after(self, stamped: Stamped) -> Progress:
        """The progress once this event has happened."""
        origin, event = stamped.origin, stamped.event
        view = self.runs.get(origin.run)
        if view is None:
            view = RunView(
                run=origin.run,
                session=origin.session,
                name=origin.run[:8],
                parent_run=origin.parent_run,
                depth=origin.depth,
                queued=stamped.time,
            )
        return Progress({**self.runs, origin.run: _after(view, event, stamped.time)})

    def count(self, phase: Phase) -> int:
        return sum(view.phase is phase for view in self.runs.values())


def _after(view: RunView, event: Event, time: float) -> RunView:
    match event:
        case RunQueued():
            return structs.replace(
                view,
                name=event.name,
                agent=event.agent,
                task=event.task,
                engine=event.engine,
                model=event.model,
                provider=event.provider,
                thinking=event.thinking,
                timeout=event.timeout,
            )
        case RunStarted():
            return structs.replace(view, phase=Phase.RUNNING, started=time)
        case DeadlineExtended(timeout=timeout):
            return structs.replace(view, timeout=timeout)
        case AttemptStarted(number=number):
            return structs.replace(view, attempt=number, partial="")
        case RunEnded(failure=failure, elapsed=elapsed, usage=usage):
            phase = Phase.ERROR if failure else Phase.DONE
            return structs.replace(view, phase=phase, failure=failure, elapsed=elapsed, usage=usage, partial="")
        case _:
            return _working(view, event)


def _working(view: RunView, event: Event) -> RunView:
    match event:
        case TextDelta(text=text):
            return structs.replace(view, partial=(view.partial + text)[-PARTIAL_CHARS:])
        case Text(text=text):
            return structs.replace(_with(view, Said(text[:KEPT_CHARS]), len(text)), partial="")
        case Steered(text=text):
            return _with(view, Told(text[:KEPT_CHARS]), len(text))
        case ToolCalled(call=call, name=name, args=args):
            called = Called(call, name, args)
            return structs.replace(_with(view, called, _size(args)), tools=view.tools + 1)
        case ToolReturned():
            return _returned(view, event)
        case MessageEnded(model=model, turn=turn, stop_reason=reason):
            return structs.replace(
                view,
                model=model or view.model,
                usage=view.usage + turn,
                turns=view.turns + turn.turns,
                stop_reason=reason,
            )
        case Notice(code=code, message=message) if code not in UNSHOWN_NOTICES:
            return _with(view, Noted(code, message), len(message))
        case _:
            return view


def _with(view: RunView, item: Item, chars: int) -> RunView:
    return _bounded(structs.replace(view, items=(*view.items, item), chars=view.chars + chars))


def _bounded(view: RunView) -> RunView:
    """The view without its oldest items, as far as there are too many."""
    if len(view.items) <= KEPT_ITEMS and view.chars <= KEPT_CHARS:
        return view
    items, chars = list(view.items), view.chars
    while len(items) > KEPT_ITEMS or (chars > KEPT_CHARS and len(items) > 1):
        chars -= _chars(items.pop(0))
    return structs.replace(view, items=tuple(items), chars=chars)


def _chars(item: Item) -> int:
    match item:
        case Said(text=text) | Told(text=text):
            return len(text)
        case Called(args=args, result=result):
            return _size(args) + len(result or "")
        case Noted(message=message):
            return len(message)


def _size(args: Args) -> int:
    """Bytes of arguments; none of those nobody could write down: half characters, a value inside itself."""
    try:
        return len(_encode(args))
    except (UnicodeEncodeError, RecursionError, TypeError):
        return 0


def _returned(view: RunView, event: ToolReturned) -> RunView:
    """The view with what came of a call. Looked for from the end: most calls are answered at once."""
    for place in range(len(view.items) - 1, -1, -1):
        item = view.items[place]
        if isinstance(item, Called) and item.call == event.call and item.result is None:
            answered = structs.replace(item, result=event.text[:KEPT_CHARS], is_error=event.is_error)
            items = (*view.items[:place], answered, *view.items[place + 1 :])
            is_todo = item.name in TOOLS and not event.is_error
            todos = view.todos.after(item.name, item.args) if is_todo else view.todos
            return _bounded(structs.replace(view, items=items, chars=view.chars + len(event.text), todos=todos))
    return view
