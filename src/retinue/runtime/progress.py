"""Fold the events of runs into the values that every live view shows: one `RunView` per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord
from retinue.model.events import (
    HIDDEN_NOTICE_CODES,
    AttemptStarted,
    DeadlineExtended,
    Event,
    MessageEnded,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    SteeringDelivered,
    Text,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import Usage
from retinue.model.runs import ToolArguments, ToolUse
from retinue.model.sandbox import SandboxMode
from retinue.sessions.store import RunOutcome, SessionState, find_outcome

TODO_TOOLS = frozenset({"write_todos", "edit_todos"})
MAX_TODO_ITEMS = 1_000
"""Items of a todo list that are counted: a model may write any number."""

_CLOSED_STATES = frozenset({"completed", "complete", "done", "abandoned", "cancelled"})
"""Statuses of an item that needs no more work."""
_ACTIONS = {"complete": True, "abandon": True, "start": False}


class TodoList(Struct, frozen=True):
    """The todo list of an agent, reduced to which items are closed."""

    items: tuple[bool, ...] = ()
    """True for each item that is completed or abandoned."""

    @property
    def total(self) -> int:
        return len(self.items)

    @property
    def completed_count(self) -> int:
        return sum(self.items)

    @property
    def has_open_items(self) -> bool:
        return not all(self.items)

    def apply_call(self, tool: str, args: ToolArguments) -> TodoList:
        """Return the list after a successful call of a todo tool; unchanged if its arguments are invalid."""
        return self._replace_items(args) if tool == "write_todos" else self._edit_items(args)

    def _replace_items(self, args: ToolArguments) -> TodoList:
        todos = args.get("todos")
        if not isinstance(todos, list):
            return self
        new, before = tuple(map(_is_closed, todos)), self.items
        match args.get("mode"), args.get("index"):
            case "append", _:
                items = before + new
            case "insert", int(index) if 0 <= index <= len(before):
                items = before[:index] + new + before[index:]
            case "insert", _:
                items = before
            case _:
                items = new
        return TodoList(items[:MAX_TODO_ITEMS])

    def _edit_items(self, args: ToolArguments) -> TodoList:
        is_closed, indices = _ACTIONS.get(str(args.get("action"))), args.get("indices")
        if is_closed is None or not isinstance(indices, Sequence) or isinstance(indices, str):
            return self
        items = list(self.items)
        if any(not isinstance(index, int) or not 0 <= index < len(items) for index in indices):
            return self  # the tool itself changes all items or none
        for index in indices:
            items[index] = is_closed
        return TodoList(tuple(items))


def _is_closed(item: Any) -> bool:
    return isinstance(item, dict) and str(item.get("status", "")).lower() in _CLOSED_STATES


MAX_ITEMS = 500
"""Items of a run, the newest; the store has all of them."""
MAX_CHARS = 2**20
"""Characters of all items of a run together."""
MAX_PARTIAL_CHARS = 4_000
"""Characters of the text that is being streamed: more than any window shows."""

_encode = msgspec.json.Encoder().encode


class RunState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"


SESSION_STATES: Mapping[RunState, SessionState] = {
    RunState.QUEUED: SessionState.QUEUED,
    RunState.RUNNING: SessionState.RUNNING,
    RunState.DONE: SessionState.COMPLETED,
    RunState.ERROR: SessionState.ERROR,
}


class TextItem(Struct, frozen=True):
    text: str


class ToolCallItem(Struct, frozen=True):
    """A tool call, with its result once it has returned."""

    call: str
    name: str
    args: ToolArguments
    result: str | None = None
    is_error: bool = False


class NoticeItem(Struct, frozen=True):
    code: str
    message: str


class SteeringItem(Struct, frozen=True):
    """A steering message that was delivered to the agent."""

    text: str


ProgressItem = TextItem | ToolCallItem | NoticeItem | SteeringItem


class RunView(Struct, frozen=True, kw_only=True):
    """The state of one run as live views show it."""

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
    phase: RunState = RunState.QUEUED
    queued: float = 0.0
    started: float | None = None
    """Wall-clock time."""
    elapsed: float | None = None
    """Seconds, known once the run has ended; until then a view counts from `started`."""
    timeout: float = 0.0
    """Seconds, extensions included."""
    tools: int = 0
    todos: TodoList = TodoList()
    turns: int = 0
    stop_reason: str | None = None
    """Stop reason of the last message."""
    attempt: int = 1
    usage: Usage = Usage()
    items: tuple[ProgressItem, ...] = ()
    """The newest items, oldest first."""
    chars: int = 0
    """Approximate size of the items."""
    partial: str = ""
    """Text that is being streamed."""
    failure: Failure | None = None
    sandbox: SandboxMode = SandboxMode.OFF
    has_worktree: bool = False
    """Whether it works in a git worktree of its own."""

    @classmethod
    def of(cls, record: EventRecord) -> RunView:
        """Return the view of a run before its first event."""
        origin = record.origin
        return cls(
            run=origin.run,
            session=origin.session,
            name=origin.run[:8],
            parent_run=origin.parent_run,
            depth=origin.depth,
            queued=record.time,
        )

    def apply(self, record: EventRecord) -> RunView:
        """Return the view after an event of the run."""
        return _apply_event(self, record.event, record.time)

    @property
    def outcome(self) -> RunOutcome:
        return find_outcome(SESSION_STATES[self.phase], self.failure)

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return self.phase in {RunState.QUEUED, RunState.RUNNING}

    def display_items(self) -> tuple[str | ToolUse, ...]:
        """Return texts and tool calls as results carry them."""
        items: list[str | ToolUse] = []
        for item in self.items:
            if isinstance(item, TextItem):
                items.append(item.text)
            elif isinstance(item, ToolCallItem):
                items.append(ToolUse(item.call, item.name, item.args))
        return tuple(items)


class CallProgress(Struct, frozen=True):
    """The views of all runs seen so far, in the order in which they were accepted."""

    runs: Mapping[str, RunView] = field(default_factory=dict)

    def apply(self, record: EventRecord) -> CallProgress:
        """Return the progress after an event."""
        run = record.origin.run
        view = self.runs.get(run) or RunView.of(record)
        return CallProgress({**self.runs, run: view.apply(record)})

    def count(self, phase: RunState) -> int:
        return sum(view.phase is phase for view in self.runs.values())

    def sum_usage(self) -> Usage:
        """Return what the models of all runs have used so far."""
        return sum((view.usage for view in self.runs.values()), Usage())

    def measure_elapsed(self, now: float) -> float:
        """Return the seconds from the first accepted run to now or, if all runs have ended, to the last end."""
        views = self.runs.values()
        if not views:
            return 0.0
        ends = [now if view.is_active else (view.started or view.queued) + (view.elapsed or 0.0) for view in views]
        return max(max(ends) - min(view.queued for view in views), 0.0)


def _apply_event(view: RunView, event: Event, time: float) -> RunView:
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
                sandbox=event.sandbox.mode if event.sandbox else SandboxMode.OFF,
                has_worktree=bool(event.repository),
            )
        case RunStarted():
            return structs.replace(view, phase=RunState.RUNNING, started=time)
        case DeadlineExtended(timeout=timeout):
            return structs.replace(view, timeout=timeout)
        case AttemptStarted(number=number):
            return structs.replace(view, attempt=number, partial="")
        case RunEnded(failure=failure, elapsed=elapsed, usage=usage):
            phase = RunState.ERROR if failure else RunState.DONE
            return structs.replace(view, phase=phase, failure=failure, elapsed=elapsed, usage=usage, partial="")
        case _:
            return _apply_work(view, event)


def _apply_work(view: RunView, event: Event) -> RunView:
    match event:
        case TextDelta(text=text):
            return structs.replace(view, partial=(view.partial + text)[-MAX_PARTIAL_CHARS:])
        case Text(text=text):
            return structs.replace(_append_item(view, TextItem(text[:MAX_CHARS]), len(text)), partial="")
        case SteeringDelivered(text=text):
            return _append_item(view, SteeringItem(text[:MAX_CHARS]), len(text))
        case ToolCalled(call=call, name=name, args=args):
            called = ToolCallItem(call, name, args)
            return structs.replace(_append_item(view, called, _encoded_size(args)), tools=view.tools + 1)
        case ToolReturned():
            return _apply_tool_result(view, event)
        case MessageEnded(model=model, turn=turn, stop_reason=reason):
            return structs.replace(
                view,
                model=model or view.model,
                usage=view.usage + turn,
                turns=view.turns + turn.turns,
                stop_reason=reason,
            )
        case Notice(code=code, message=message) if code not in HIDDEN_NOTICE_CODES:
            return _append_item(view, NoticeItem(code, message), len(message))
        case _:
            return view


def _append_item(view: RunView, item: ProgressItem, chars: int) -> RunView:
    return _drop_old_items(structs.replace(view, items=(*view.items, item), chars=view.chars + chars))


def _drop_old_items(view: RunView) -> RunView:
    """Return the view with as many of its newest items as the limits allow."""
    if len(view.items) <= MAX_ITEMS and view.chars <= MAX_CHARS:
        return view
    items, chars = list(view.items), view.chars
    while len(items) > MAX_ITEMS or (chars > MAX_CHARS and len(items) > 1):
        chars -= _count_chars(items.pop(0))
    return structs.replace(view, items=tuple(items), chars=chars)


def _count_chars(item: ProgressItem) -> int:
    match item:
        case TextItem(text=text) | SteeringItem(text=text):
            return len(text)
        case ToolCallItem(args=args, result=result):
            return _encoded_size(args) + len(result or "")
        case NoticeItem(message=message):
            return len(message)


def _encoded_size(args: ToolArguments) -> int:
    """Return the size of the arguments as JSON; 0 if they cannot be encoded (lone surrogates, recursion)."""
    try:
        return len(_encode(args))
    except (UnicodeEncodeError, RecursionError, TypeError):
        return 0


def _apply_tool_result(view: RunView, event: ToolReturned) -> RunView:
    """Return the view with the result of a call. The newest call is compared first: most return at once."""
    for index in range(len(view.items) - 1, -1, -1):
        item = view.items[index]
        if isinstance(item, ToolCallItem) and item.call == event.call and item.result is None:
            answered = structs.replace(item, result=event.text[:MAX_CHARS], is_error=event.is_error)
            items = (*view.items[:index], answered, *view.items[index + 1 :])
            is_todo = item.name in TODO_TOOLS and not event.is_error
            todos = view.todos.apply_call(item.name, item.args) if is_todo else view.todos
            return _drop_old_items(
                structs.replace(view, items=items, chars=view.chars + len(event.text), todos=todos)
            )
    return view
