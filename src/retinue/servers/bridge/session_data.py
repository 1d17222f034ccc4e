"""Convert the events of a run to the view that a host shows, and to the data it stores in its log, and back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from retinue.ipc.messages import BodyRange, DrawnLine, RenderedView, SessionData, StyledRows
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    Event,
    MessageEnded,
    PersistedEvent,
    RunEnded,
    RunQueued,
    SteeringDelivered,
    StopReason,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.model.results import AnswerStatus, ExecutionReport, compute_exit_code
from retinue.output.json_text import encode_json
from retinue.output.untrusted_text import map_strings, replace_surrogates, to_one_line
from retinue.runtime.progress import CallProgress, ProgressItem, RunState, RunView
from retinue.runtime.recorder import PastRun
from retinue.sessions.store import INTERRUPTED
from retinue.support.formatting import pluralize
from retinue.tui.headers import DEFAULT_AGENT, SPINNER, SPINNER_RATE, describe_model, elapsed_seconds, session_list
from retinue.tui.renderer import StyledLine, StyledSpan
from retinue.tui.rows import (
    INDENT,
    MAX_COLUMNS,
    MAX_ERROR_LINES,
    Row,
    header_prefix,
    indent_level,
    item_rows,
    render_error,
    text_rows,
)
from retinue.tui.tree import order_as_tree

SHOWN_ID_LENGTH = 16
"""Digits of a session id, as the system of the `fanout` toolset shows it."""

MAX_TASK_BYTES = 256 * 2**10
"""Size of the data of one run."""
MAX_CALL_BYTES = 2**20
"""Size of the data of all runs of one call."""
MAX_PROMPT_BYTES = 16 * 2**10
PROMPT_SHARE = 64
"""The largest part of its call's remaining bytes that a prompt takes: it is stored twice, for each of many tasks."""
MAX_ERROR_BYTES = 8 * 2**10
MAX_NAME_BYTES = 1024
MAX_RESULT_BYTES = 2_048
"""Size of one tool result; transcripts show 500 characters of it."""
MAX_ARGUMENTS_BYTES = 4_096
MAX_ARGUMENT_CHARS = 500
MAX_MESSAGES = 499
"""Per run; readers of the log accept 1,000."""

TOOL_USE = "toolUse"
"""The stop reason `tool_use` in pi's spelling."""

JsonMessage = dict[str, Any]


# -- to the log --------------------------------------------------------------------------------------


class SessionLog:
    """The data of the runs of one call, within the limit of a call."""

    def __init__(self) -> None:
        self._cwds: dict[str, str] = {}
        """Directories of all runs, by run."""
        self._open: dict[str, MessageLog] = {}
        """Messages of the runs that have not ended."""
        self._bytes_left = MAX_CALL_BYTES

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._cwds)

    def is_open(self, run: str) -> bool:
        """Return true if the run has started and not ended; a subscriber that lagged may have missed the start."""
        return run in self._open

    def start(self, view: RunView, queued: RunQueued) -> SessionData:
        """Add a run and return its data."""
        self._cwds[view.run] = queued.cwd
        self._open[view.run] = MessageLog()
        return self._make_data(view)

    def add_event(self, run: str, event: Event) -> None:
        if log := self._open.get(run):
            log.add(event)

    def end(self, view: RunView, ended: RunEnded) -> SessionData:
        """Return the data of a run that ended, its messages within its share of the call's limit."""
        log = self._open.pop(view.run)
        # Runs that have not ended, and one that may follow, keep a share.
        share = min(MAX_TASK_BYTES, max(self._bytes_left, 0) // (len(self._open) + 2))
        data = structs.replace(
            self._make_data(view),
            status="error" if ended.failure else "completed",
            exit_code=ended.exit_code,
            model=ended.actual.model or view.model,
            stop_reason=view.stop_reason,
            error_message=cut_text(ended.failure.message, MAX_ERROR_BYTES) if ended.failure else None,
        )
        size = count_encoded_bytes(data)
        data = structs.replace(data, messages=log.newest(ended, share - 2 * size))  # it is stored at the start, too
        self._bytes_left -= count_encoded_bytes(data) - size
        return data

    def _make_data(self, view: RunView) -> SessionData:
        data = SessionData(
            session_id=view.session[:SHOWN_ID_LENGTH],
            task_name=cut_text(view.name, MAX_NAME_BYTES),
            prompt=cut_text(view.task, min(MAX_PROMPT_BYTES, max(self._bytes_left, 0) // PROMPT_SHARE)),
            cwd=self._cwds[view.run],
            profile_name=None if view.agent == DEFAULT_AGENT else cut_text(view.agent, MAX_NAME_BYTES),
            status="running",
            model=view.model,
            started_at=round((view.started or view.queued) * 1000),
        )
        self._bytes_left -= count_encoded_bytes(data)
        return data


class MessageLog:
    """The newest messages of one run, within a limit."""

    def __init__(self) -> None:
        self._messages: deque[tuple[JsonMessage, int]] = deque()
        self._bytes = 0
        self._content: list[JsonMessage] = []
        """Blocks of the assistant message that is not complete yet."""

    def add(self, event: Event) -> None:
        match event:
            case Text(text) if text.strip():
                self._content.append(_text_block(text))
            case ToolCalled(call, name, args):
                self._content.append({"type": "toolCall", "id": call, "name": name, "arguments": _limit_args(args)})
            case ToolReturned(call, name, text, is_error):
                self._close()
                content = [_text_block(cut_text(text, MAX_RESULT_BYTES))]
                result = {"role": "toolResult", "toolCallId": call, "toolName": name, "content": content}
                self._put({**result, "isError": is_error})
            case MessageEnded(stop_reason=reason, model=model, error=error):
                self._close(reason, model, error)
            case SteeringDelivered(text):
                self._close()
                self._put({"role": "user", "content": [_text_block(text)]})
            case _:
                pass

    def newest(self, ended: RunEnded, max_bytes: int) -> tuple[JsonMessage, ...]:
        """Return the answer and as many of the newest messages before it as fit."""
        self._close()
        messages = [message for message, _ in self._messages]
        if ended.text and ended.answer.is_text:
            is_last = messages and messages[-1]["role"] == "assistant" and not _has_calls(messages[-1])
            messages.append(_cut_answer(messages.pop() if is_last else {"role": "assistant"}, ended.text, max_bytes))
        kept: list[JsonMessage] = []
        for message in reversed(messages):
            max_bytes -= count_encoded_bytes(message) + 1
            if max_bytes < 0:
                break
            kept.append(message)
        return tuple(reversed(kept))

    def _close(self, reason: str | None = None, model: str | None = None, error: str | None = None) -> None:
        """End the open assistant message."""
        if not self._content and not error:
            return
        message: JsonMessage = {"role": "assistant", "content": self._content}
        facts = {
            "model": model,
            "stopReason": TOOL_USE if reason == "tool_use" else reason,
            "errorMessage": error and cut_text(error, MAX_ERROR_BYTES),
        }
        self._content = []
        self._put(message | {name: value for name, value in facts.items() if value})

    def _put(self, message: JsonMessage) -> None:
        size = count_encoded_bytes(message)
        self._messages.append((message, size))
        self._bytes += size
        while len(self._messages) > 1 and (len(self._messages) > MAX_MESSAGES or self._bytes > MAX_TASK_BYTES):
            self._bytes -= self._messages.popleft()[1]


def _cut_answer(message: JsonMessage, text: str, max_bytes: int) -> JsonMessage:
    """Return the message with this text alone, cut until the message fits."""
    size = max_bytes
    while True:
        message = {**message, "content": [_text_block(cut_text(text, size))]}
        if size <= 0 or count_encoded_bytes(message) <= max_bytes:
            return message
        size = size * 9 // 10  # escapes make it longer


def cut_text(text: str, max_bytes: int) -> str:
    """Return the beginning of the text that fits, with a mark where something is missing."""
    text = replace_surrogates(text)
    if len(text.encode()) <= max_bytes:
        return text
    mark = " [… cut in this log]"
    return text.encode()[: max(max_bytes - len(mark.encode()), 0)].decode("utf-8", "ignore") + mark


def count_encoded_bytes(value: Any) -> int:
    return len(encode_json(value))


def _text_block(text: str) -> JsonMessage:
    return {"type": "text", "text": text}


def _has_calls(message: JsonMessage) -> bool:
    return any(block["type"] == "toolCall" for block in message["content"])


def _limit_args(args: Any) -> Any:
    """Return the arguments with long texts cut; an empty object if they are still too large."""
    bounded = map_strings(args, lambda text: replace_surrogates(text[:MAX_ARGUMENT_CHARS]))
    return bounded if count_encoded_bytes(bounded) <= MAX_ARGUMENTS_BYTES else {}


# -- from the log ------------------------------------------------------------------------------------


class LoggedMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    role: str
    content: Sequence[Any] | str = ()
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    model: str | None = None
    stop_reason: str | None = None
    error_message: str | None = None


class LoggedBlock(Struct, frozen=True, kw_only=True):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


def to_past_run(data: SessionData) -> PastRun:
    """Return the run that the data records; parts of it that are not understood are left out."""
    failure = _to_failure(data)
    events = [event for message in data.messages for event in _to_events(message)]
    text = _find_last_text(events)
    ended = RunEnded(
        text=text,
        answer=(AnswerStatus.PARTIAL if failure else AnswerStatus.FINAL) if text else AnswerStatus.NONE,
        failure=failure,
        exit_code=compute_exit_code(failure) if data.exit_code is None else min(max(data.exit_code, 0), 255),
        actual=ExecutionReport(model=data.model),
    )
    return PastRun(
        name=cut_text(data.task_name, MAX_NAME_BYTES),
        agent=data.profile_name and cut_text(data.profile_name, MAX_NAME_BYTES),
        task=data.prompt,
        cwd=data.cwd,
        started=min(max(data.started_at / 1000, 0.0), time.time()),
        events=(*events, ended),
    )


def _to_failure(data: SessionData) -> Failure | None:
    match data.status:
        case "completed":
            return None
        case "running":
            return INTERRUPTED
        case "error":
            message = data.error_message or INTERRUPTED.message
            return INTERRUPTED if message == INTERRUPTED.message else Failure(ErrorCode.ENGINE, message, "restored")


def _to_events(given: Any) -> Iterator[PersistedEvent]:
    try:
        message = msgspec.convert(given, LoggedMessage)
        content = [_text_block(message.content)] if isinstance(message.content, str) else message.content
        blocks = [msgspec.convert(block, LoggedBlock) for block in content]
    except (msgspec.ValidationError, RecursionError):
        return
    match message.role:
        case "assistant":
            for block in blocks:
                if block.type == "text":
                    yield Text(block.text)
                elif block.type == "toolCall":
                    yield ToolCalled(block.id, block.name, block.arguments)
            yield MessageEnded(
                stop_reason=_stop_reason(message), model=message.model, error=message.error_message or None
            )
        case "toolResult":
            yield ToolReturned(message.tool_call_id, message.tool_name, _join_text(blocks), message.is_error)
        case "user":
            yield SteeringDelivered(_join_text(blocks))


def _stop_reason(message: LoggedMessage) -> StopReason:
    if message.error_message:
        return "error"
    spelled = "tool_use" if message.stop_reason == TOOL_USE else message.stop_reason
    known: dict[str | None, StopReason] = {reason: reason for reason in get_args(StopReason)}
    return known.get(spelled, "stop")


def _join_text(blocks: Sequence[LoggedBlock]) -> str:
    return "\n".join(block.text for block in blocks if block.type == "text")


def _find_last_text(events: Sequence[PersistedEvent]) -> str:
    """Return the text of the newest assistant message that has any."""
    texts: list[str] = []
    for event in reversed(events):
        if isinstance(event, MessageEnded) and texts:
            break
        if isinstance(event, Text) and event.text.strip():
            texts.append(event.text)
    return "\n".join(reversed(texts))


EXPANDED_LINES = 500
"""Lines of one run in the expanded view."""
EXPANDED_CHARS = 2**16
"""Characters of one run in the expanded view: every partial result repeats them."""

DrawnItems = dict[int, tuple[ProgressItem, StyledRows]]
"""By the id of an item, which is kept so that no other item gets the same id."""
SpellSession = Callable[[str], str | None]
"""Returns the id by which tools find a session; None if no tool takes one."""


class ViewBuilder:
    """The view of one call, built repeatedly while its runs continue; each item of a run is drawn once."""

    def __init__(self, max_lines: int, spell_session: SpellSession, *, verbatim: bool) -> None:
        """`verbatim` selects the header form of the `fanout` toolset."""
        self._max_lines = max_lines
        self._spell_session = spell_session
        self._verbatim = verbatim
        self._drawn: DrawnItems = {}

    def build(self, progress: CallProgress, now: float) -> RenderedView | UnsetType:
        """Return the view; unset for a call without runs."""
        views = order_as_tree(progress.runs.values())
        if not views:
            return UNSET
        lines: list[DrawnLine] = [_draw_line(render_status(progress))]
        expanded, bodies = list(lines), []
        drawn: DrawnItems = {}
        for view in views:
            kept = self._draw_body(view, drawn)
            newest = kept[-self._max_lines :]
            head = _draw_line(render_header(view, now, verbatim=self._verbatim))
            bodies.append(
                BodyRange(start=len(lines) + 1, end=len(lines) + 1 + len(newest), earlier=len(kept) - len(newest))
            )
            lines += [head, *(newest or _draw_hint(view, "(starting...)")), *_draw_errors(view, MAX_ERROR_LINES)]
            expanded += [head, *(kept or _draw_hint(view, "(no output)")), *_draw_errors(view, self._max_lines)]
        self._drawn = drawn
        footer = self._draw_footer(views)
        return RenderedView(
            lines=[*lines, *footer], expanded=[*expanded, *footer], bodies=bodies, max_lines=self._max_lines
        )

    def _draw_body(self, view: RunView, drawn: DrawnItems) -> list[DrawnLine]:
        """Return the newest lines of a run, oldest first; `drawn` takes the items they are from."""
        kept: list[DrawnLine] = []
        chars = 0
        for line in self._iterate_backwards(view, drawn):
            chars += sum(len(text) for text, _ in line)
            if len(kept) >= EXPANDED_LINES or (kept and chars > EXPANDED_CHARS):
                break
            kept.append(line)
        return kept[::-1]

    def _iterate_backwards(self, view: RunView, drawn: DrawnItems) -> Iterator[DrawnLine]:
        yield from reversed(_draw_rows(view, text_rows(view.partial)))
        for item in reversed(view.items):
            found = self._draw_item(view, item)
            drawn[id(item)] = (item, found)
            yield from reversed(found)

    def _draw_item(self, view: RunView, item: ProgressItem) -> StyledRows:
        if known := self._drawn.get(id(item)):
            return known[1]
        return _draw_rows(view, item_rows(item, max_chars=EXPANDED_CHARS))

    def _draw_footer(self, views: list[RunView]) -> list[DrawnLine]:
        """Return the ids of the sessions once nothing runs any more, where the toolset has tools that take them."""
        if any(view.phase in {RunState.QUEUED, RunState.RUNNING} for view in views):
            return []
        spelled = (self._spell_session(view.session) for view in views if view.depth == 1)
        ids = dict.fromkeys(session for session in spelled if session)
        return [_draw_line((StyledSpan(session_list(ids), "muted"),))] if ids else []


def _draw_rows(view: RunView, rows: list[Row]) -> StyledRows:
    before = len(INDENT) * indent_level(view)
    return [[(" " * (before + row.indent), ""), (row.text, row.style)] for row in rows]


def _draw_hint(view: RunView, text: str) -> StyledRows:
    return _draw_rows(view, [Row(text, "muted")]) if view.phase is RunState.RUNNING else []


def _draw_errors(view: RunView, most: int) -> StyledRows:
    return [_draw_line(line) for line in render_error(view, MAX_COLUMNS, most)]


def _draw_line(line: StyledLine) -> DrawnLine:
    return [(span.text, span.style) for span in line if span.text]


# -- headers ------------------------------------------------------------------------------------------


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
