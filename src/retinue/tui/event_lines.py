"""Events and tool calls as plain lines: `12:34:56 explorer  → grep /pattern/`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from retinue.model import events
from retinue.model.errors import Failure
from retinue.model.event_codec import EventRecord
from retinue.model.runs import ToolArguments
from retinue.model.tool_names import FINALIZE_TOOL
from retinue.output.untrusted_text import first_line, first_prose_sentence, to_one_line
from retinue.runtime.progress import ToolCallItem
from retinue.sessions.store import SessionState, describe_outcome, find_outcome
from retinue.support.formatting import SHORT_ID_LENGTH, format_limit, format_time, pluralize
from retinue.tui.widths import fit_text, pad_text, text_width, wrap_text

DELEGATION_TOOL = "delegate_to_subagents"
MAX_ARGUMENT_CHARS = 120
"""Characters of the arguments of a tool without a format of its own."""

_NOTICE = re.compile(r"(?:(?:\A|\n\n)\[[^\n]*\]|(?:\A|\n)\([^\n]*\))\s*\Z")
"""The notice of a tool about its own result, such as that it was truncated: ours and pi's in brackets below a blank
line, Claude Code's `Glob` in parentheses on the last line."""
_TRUNCATED = re.compile(r"limit reached|truncated|lines are shown|\bshowing \d+ of \d+", re.IGNORECASE)
_EMPTY_RESULTS = frozenset({"", "(empty directory)", "(empty)", "No files found matching pattern", "No files found"})


def format_call(name: str, args: ToolArguments) -> str:
    """Return the call in one line: `grep → /pattern/ → *.py`."""
    try:
        if name == DELEGATION_TOOL:
            return f"{name} {_format_delegation(args)}"
        arguments = _CALLS.get(name, _format_other)(args)
    except (TypeError, ValueError, RecursionError):  # arguments of a model can be anything; no view may fail on them
        arguments = "(arguments cannot be shown)"
    return f"{name} → {arguments}" if arguments else name


def format_result(call: ToolCallItem) -> str | None:
    """Return the counts of a listing or search; None for results that are not counted."""
    if call.result is None or call.is_error or call.name not in _RESULTS:
        return None
    return _RESULTS[call.name](call.result)


def format_error(call: ToolCallItem) -> str | None:
    """Return the first line of a failed call's result; None if the call did not fail."""
    return _summarize_error(call.result or "") if call.is_error else None


def _summarize_error(text: str) -> str:
    """Return the first line of an error; one that only introduces the next has that beside it."""
    line = first_line(text)
    if line.endswith(":"):
        line = f"{line} {first_line(text.strip()[len(line) :])}".rstrip()
    return line or "failed"


# -- calls -----------------------------------------------------------------------------------------


def _format_read(args: ToolArguments) -> str:
    path, offset, limit = _first_argument(args, "path", "file_path"), args.get("offset"), args.get("limit")
    if limit is not None:
        return f"{path}:{offset or 1}+{limit}"
    return f"{path}:{offset}" if offset is not None else path


def _format_grep(args: ToolArguments) -> str:
    where = _first_argument(args, "glob") or _format_path(args)
    return f"/{_first_argument(args, 'pattern')}/" + (f" → {where}" if where else "")


def _format_find(args: ToolArguments) -> str:
    where = _format_path(args)
    return _first_argument(args, "pattern") + (f" in {where}" if where else "")


def _format_edit(args: ToolArguments) -> str:
    edits = args.get("edits")
    changes = [edit for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else [args]
    added = sum(_count_lines(_first_argument(edit, "newText", "new_string")) for edit in changes)
    removed = sum(_count_lines(_first_argument(edit, "oldText", "old_string")) for edit in changes)
    count = f" ({len(changes)} edits)" if len(changes) > 1 else ""
    lines = f" +{added}/-{removed}" if added or removed else ""
    return f"{_first_argument(args, 'path', 'file_path')}{count}{lines}"


def _format_write(args: ToolArguments) -> str:
    lines = _count_lines(_first_argument(args, "content"))
    return _first_argument(args, "path", "file_path") + (f" +{lines}" if lines else "")


def _format_task(args: ToolArguments) -> str:
    task = first_line(_first_argument(args, "task"))
    return ": ".join(filter(None, (_first_argument(args, "agent"), task)))


def _format_spawn(args: ToolArguments) -> str:
    """Return `explorer: Where is it?`, or `parallel: explorer, reviewer`."""
    tasks = args.get("tasks")
    if not isinstance(tasks, list):
        return _format_task(args)
    agents = ", ".join(_first_argument(task, "agent") for task in tasks if isinstance(task, dict))
    return ": ".join(filter(None, (_first_argument(args, "mode"), agents)))


def _format_delegation(args: ToolArguments) -> str:
    """Return `3 sub-agents (default profile: researcher) profiles: [writer, researcher]`."""
    tasks = args.get("tasks")
    named = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    default = _first_argument(args, "profile")
    profiles = dict.fromkeys(name for task in named if (name := _first_argument(task, "profile")))
    parts = pluralize(len(named), "sub-agent")
    parts += f" (default profile: {default})" if default else ""
    return parts + (f" profiles: [{', '.join(profiles)}]" if profiles else "")


def _format_finalize(args: ToolArguments) -> str:
    """Return `SUCCESS: It is in src/bus.py.`."""
    status, result = _first_argument(args, "status"), args.get("result")
    if not isinstance(result, str | None):  # of an output schema
        args = {**args, "result": _encode_short(result)}
    answer = _first_argument(args, "result") if status == "SUCCESS" else _first_argument(args, "error", "result")
    return ": ".join(filter(None, (status, first_prose_sentence(answer))))


def _format_written_todos(args: ToolArguments) -> str:
    todos = args.get("todos")
    return f"{pluralize(len(todos), 'todo')} written" if isinstance(todos, list) else ""


def _format_edited_todos(args: ToolArguments) -> str:
    indices = args.get("indices")
    which = f" [{', '.join(map(str, indices))}]" if isinstance(indices, list) else ""
    return f"{_first_argument(args, 'action')}{which}"


def _format_other(args: ToolArguments) -> str:
    return _encode_short(args) if args else ""


def _encode_short(value: Any) -> str:
    """Return the start of a value's JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr)[:MAX_ARGUMENT_CHARS]


_CALLS: Mapping[str, Callable[[ToolArguments], str]] = {
    "read": _format_read,
    "grep": _format_grep,
    "find": _format_find,
    "ls": lambda args: _first_argument(args, "path") or ".",
    "bash": lambda args: first_line(_first_argument(args, "command")),
    "edit": _format_edit,
    "write": _format_write,
    "web_search": lambda args: _first_argument(args, "query"),
    "fetch_content": lambda args: _first_argument(args, "url"),
    "subagent": _format_task,
    "spawn_subagent": _format_spawn,
    "get_subagent_output": lambda args: _first_argument(args, "sessionId"),
    "get_subagent_session": lambda args: _first_argument(args, "sessionId"),
    FINALIZE_TOOL: _format_finalize,
    "write_todos": _format_written_todos,
    "edit_todos": _format_edited_todos,
}


def _format_path(args: ToolArguments) -> str:
    """Return the directory of a search, unless that is the working directory."""
    path = _first_argument(args, "path")
    return "" if path in {".", "./"} else path


def _first_argument(args: Mapping[str, Any], *names: str) -> str:
    """Return the first of these arguments that is present, as text: models also pass other types."""
    return next((str(args[name]) for name in names if args.get(name) is not None), "")


def _count_lines(text: str) -> int:
    return len(text.splitlines())


# -- results ---------------------------------------------------------------------------------------


def _summarize_listing(result: str) -> str:
    entries, more = _split_entries(result)
    folders = sum(entry.endswith("/") for entry in entries)
    files = len(entries) - folders
    counts = [pluralize(files, "file") if files else "", pluralize(folders, "dir") if folders else ""]
    return (", ".join(filter(None, counts)) or "(empty)") + more


def _summarize_matches(result: str) -> str:
    entries, more = _split_entries(result)
    return pluralize(len(entries), "match", "matches") + more


def _split_entries(result: str) -> tuple[list[str], str]:
    """Return the lines of a listing, and `+` if it was truncated."""
    notice = _NOTICE.search(result)
    is_truncated = bool(notice and _TRUNCATED.search(notice[0]))
    # A file may be called `(draft)`: text in parentheses is a notice only if it reports a truncation.
    if notice and (is_truncated or notice[0].lstrip().startswith("[")):
        result = result[: notice.start()]
    body = result.strip("\n")
    return [] if body in _EMPTY_RESULTS else body.split("\n"), "+" if is_truncated else ""


_RESULTS: Mapping[str, Callable[[str], str]] = {"ls": _summarize_listing, "find": _summarize_matches}


NAME_WIDTH = 12
"""Columns of a run's name; longer names are cut to keep the columns aligned."""
MAX_LINE_CHARS = 200
"""Columns of a line."""
MAX_NOTICE_LINES = 10
"""Lines of a notice: its end says what to do."""


class EventLineFormatter:
    """Formats the events of several runs, each with the name of its run."""

    def __init__(self, *, results_printed: bool = True) -> None:
        """Take whether the caller prints the results of top-level runs; if not, their failures are lines, too."""
        self._results_printed = results_printed
        self._labels: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        """Runs of each name so far."""
        self._tops: dict[str, int] = {}
        """The depth of each run's topmost ancestor: a session may be continued at any depth."""

    def __call__(self, record: EventRecord) -> Iterator[str]:
        """Yield the lines of an event; none for an event without news."""
        origin, event = record.origin, record.event
        session = origin.session[:SHORT_ID_LENGTH]
        if isinstance(event, events.RunQueued):
            self._labels[origin.run] = self._make_label(event.name)
            self._tops[origin.run] = self._tops.get(origin.parent_run, 1) if origin.parent_run else origin.depth
        if news := format_event(event, session):
            if isinstance(event, events.RunQueued):
                news = f"○ {session} {first_line(event.task)}"
            if (
                isinstance(event, events.RunEnded)
                and event.failure
                and (origin.parent_run or not self._results_printed)
            ):
                news += f": {first_line(event.failure.message)}"
            label = self._labels.get(origin.run) or pad_text(origin.run[:SHORT_ID_LENGTH], NAME_WIDTH)
            indent = "  " * (origin.depth - self._tops.get(origin.run, 1))
            prefix = f"{format_time(record.time, '%H:%M:%S')} {indent}{label}  "
            columns = max(MAX_LINE_CHARS - text_width(prefix), NAME_WIDTH)
            max_lines = MAX_NOTICE_LINES if isinstance(event, events.Notice) else 1
            for line in wrap_text(to_one_line(news, max_lines * MAX_LINE_CHARS), columns, max_lines):
                yield prefix + line
                prefix = " " * text_width(prefix)

    def _make_label(self, name: str) -> str:
        """Return the name of a new run in its columns, numbered from the second run of this name on: `explorer#2`."""
        name = to_one_line(name, MAX_LINE_CHARS)
        self._numbers[name] += 1
        number = f"#{self._numbers[name]}" if self._numbers[name] > 1 else ""
        return pad_text(fit_text(name, NAME_WIDTH - len(number)) + number, NAME_WIDTH)


def format_event(event: events.Event, session: str) -> str | None:
    """Return the line of an event without the name of its run, not sanitized; None for an event without news."""
    match event:
        case events.RunQueued(task=task):
            return f"○ {first_line(task)}"
        case events.RunStarted():
            return "started"
        case events.ToolCalled(name=name, args=args):
            return f"→ {format_call(name, args).replace(' → ', ' ', 1)}"
        case events.ToolReturned(name=name, is_error=True, text=text):
            return f"! {name}: {_summarize_error(text)}"
        case events.Text(text=text) if text.strip():
            return f"“{first_prose_sentence(text)}”"
        case events.RunEnded(failure=None, elapsed=elapsed):
            return f"✓ completed in {elapsed:.1f}s (session {session})"
        case events.RunEnded(failure=Failure() as failure, elapsed=elapsed):
            return f"✗ {_describe_end(failure)} after {elapsed:.1f}s (session {session})"
        case _:
            return _format_change(event)


def _describe_end(failure: Failure) -> str:
    return describe_outcome(find_outcome(SessionState.ERROR, failure), failure)


def _format_change(event: events.Event) -> str | None:
    match event:
        case events.AttemptStarted(number=number, reason=reason) if number > 1:
            return f"attempt {number} ({reason})"
        case events.ModelChanged(after=after, reason=reason):
            return f"model: {after} ({reason})"
        case events.Notice(code=code, message=message) if code not in events.HIDDEN_NOTICE_CODES:
            return f"! {message}"
        case events.SteeringDelivered(text=text):
            return f"» {first_line(text)}"
        case events.DeadlineExtended(seconds=seconds, timeout=timeout):
            return f"timeout extended by {format_limit(seconds)} to {format_limit(timeout)}"
        case _:
            return None
