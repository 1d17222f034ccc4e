"""The live windows of a call, one per task, and the line each task ends with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from retinue.model.errors import Failure
from retinue.model.providers import strip_provider
from retinue.model.results import RunResult, compute_exit_code, compute_exit_status
from retinue.model.runs import RunSpec
from retinue.model.tasks import Mode, Task
from retinue.output.untrusted_text import sanitize_text, to_one_line
from retinue.runtime.progress import (
    MAX_ITEMS,
    CallProgress,
    NoticeItem,
    ProgressItem,
    RunState,
    RunView,
    SteeringItem,
    TextItem,
    ToolCallItem,
)
from retinue.toolsets.base import ToolResult, storage_warning
from retinue.toolsets.fanout.texts import SPAWN_FAILED_TEXT, FanoutTexts
from retinue.toolsets.inputs import structured_details, structured_value
from retinue.transcripts.text import call_line

SHOWN_ID_LENGTH = 16
"""Digits of a session id as the toolset shows it."""
MAX_MESSAGES_CHARS = 2**16
"""Characters of the newest messages of a window: every partial result repeats them."""
MAX_RECENT_CALLS = 20
MAX_NAME_CHARS = 200
MAX_MESSAGE_CHARS = 4_000
"""Characters of a failure in the line of a task."""

RUNNING, COMPLETED, ERROR = "running", "completed", "error"
STATUSES: Mapping[RunState, str] = {
    RunState.QUEUED: RUNNING,
    RunState.RUNNING: RUNNING,
    RunState.DONE: COMPLETED,
    RunState.ERROR: ERROR,
}
"""The toolset has three states: a queued run counts as running."""


class LiveWindows:
    """One window per task, in the order of the tasks."""

    def __init__(self, tasks: Sequence[Task], texts: FanoutTexts, max_lines: int) -> None:
        self._tasks = tasks
        self._texts = texts
        self._max_lines = max_lines
        self._specs: Sequence[RunSpec] = ()
        self._profiles: Sequence[dict[str, Any]] = ()
        # Every partial result repeats the texts before it: each is sanitized once.
        self._clean = lru_cache(maxsize=len(tasks) * MAX_ITEMS)(sanitize_text)

    def set_specs(self, specs: Sequence[RunSpec]) -> None:
        """Set the runs of the tasks, in their order."""
        self._specs = specs
        self._profiles = [self._render_profile(task, spec) for task, spec in zip(self._tasks, specs, strict=True)]

    def render_partial(self, progress: CallProgress) -> ToolResult:
        """Return what a host displays while the tasks run."""
        windows = self._render_windows(progress)
        return ToolResult(text=_render_counts(windows), details=self._render_details(windows))

    def render_final(self, progress: CallProgress, results: Sequence[RunResult]) -> ToolResult:
        """Return the answer, a line per task."""
        windows = self._render_windows(progress, results)
        text = "\n".join([*map(_render_line, windows), *storage_warning(results)])
        details = {**self._render_details(windows), **structured_details(results, Mode.PARALLEL)}
        return ToolResult(text=text, details=details, exit_code=compute_exit_status(results))

    def _render_details(self, windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        is_over = windows and all(window["status"] != RUNNING for window in windows)
        return {
            "windows": windows,
            "maxLinesPerWindow": self._max_lines,
            "globalStatus": "done" if is_over else "running",
            "sessionIds": [window["sessionId"] for window in windows],
        }

    def _render_windows(self, progress: CallProgress, results: Sequence[RunResult] = ()) -> list[dict[str, Any]]:
        ended = {result.run: result for result in results}
        return [
            self._render_window(spec, progress.runs.get(spec.run), ended.get(spec.run)) | profile
            for spec, profile in zip(self._specs, self._profiles, strict=True)
        ]

    def _render_window(self, spec: RunSpec, view: RunView | None, result: RunResult | None) -> dict[str, Any]:
        view = view or RunView(run=spec.run, session=spec.session, name=self._texts.redact(spec.name))
        failure = result.failure if result else view.failure
        messages, started = self._render_messages(view, failure), _started_at(view)
        window: dict[str, Any] = {
            "name": to_one_line(view.name, MAX_NAME_CHARS),
            "sessionId": spec.session[:SHOWN_ID_LENGTH],
            "status": (ERROR if failure else COMPLETED) if result else STATUSES[view.phase],
            "lines": self._newest_lines(messages),
            "allMessages": messages,
            "exitCode": result.exit_code if result else _exit_code(view),
            "model": _format_name(_model(spec, (result and result.actual.model) or view.model or spec.model)),
            "stopReason": view.stop_reason,
            "errorMessage": self._texts.render_redacted_failure(failure) if failure else None,
            "startedAt": None if started is None else _to_milliseconds(started),
            "timeout": _trim_fraction(spec.limits.timeout),
            "toolCount": view.tools,
            "recentToolCalls": self._render_recent_calls(view),
        }
        if view.elapsed is not None and started is not None:
            window["completedAt"] = _to_milliseconds(started + view.elapsed)
        if result and spec.output_schema is not None:
            window["structured"] = structured_value(result)
        if view.todos.total:
            window |= {"todoTotal": view.todos.total, "todoCompleted": view.todos.completed_count}
        return window

    def _render_profile(self, task: Task, spec: RunSpec) -> dict[str, Any]:
        """Return the fields of a window that are known before the run starts."""
        is_found = task.agent is not None and bool(spec.agent.layer)
        return {
            "profileName": None if task.agent is None else _format_name(self._texts.redact(task.agent)),
            "profileInfo": self._texts.render_profile(spec.agent) if is_found else None,
            "provider": _format_name(spec.agent.provider),
            "thinkingLevel": _format_name(spec.agent.thinking),
            "fileCount": len(task.files),
        }

    def _render_recent_calls(self, view: RunView) -> list[str]:
        calls = (item for item in reversed(view.items) if isinstance(item, ToolCallItem))
        return [self._clean(_render_item(item)).removeprefix("→ ") for item in islice(calls, MAX_RECENT_CALLS)][::-1]

    def _render_messages(self, view: RunView, failure: Failure | None) -> list[str]:
        """Return the newest texts and tool calls that fit the window, oldest first."""
        newest: list[str] = []
        size = 0
        for message in self._newest_messages(view, failure):
            size += len(message)
            if newest and size > MAX_MESSAGES_CHARS:
                break
            newest.append(message[-MAX_MESSAGES_CHARS:])
        return newest[::-1]

    def _newest_messages(self, view: RunView, failure: Failure | None) -> Iterator[str]:
        if failure and self._texts.render_failure(failure).startswith(SPAWN_FAILED_TEXT):
            yield self._clean(failure.message)
        if view.partial.strip():
            yield sanitize_text(view.partial)
        yield from (self._clean(_render_item(item)) for item in reversed(view.items))

    def _newest_lines(self, messages: Sequence[str]) -> list[str]:
        lines = (line for message in reversed(messages) for line in reversed(message.split("\n")) if line.strip())
        return list(islice(lines, self._max_lines))[::-1]


def _render_item(item: ProgressItem) -> str:
    match item:
        case TextItem(text=text):
            return text
        case ToolCallItem(name=name, args=args):
            return call_line(name, args)
        case NoticeItem(message=message):
            return f"! {message}"
        case SteeringItem(text=text):
            return f"» {text}"


def _render_line(window: Mapping[str, Any]) -> str:
    """Return a line such as `✓ build-assets: completed (session: a3f7b9c2d1e8f4a1)`."""
    failed = window["status"] == ERROR
    outcome = f"error — {to_one_line(window['errorMessage'], MAX_MESSAGE_CHARS)}" if failed else window["status"]
    info = f" ({window['profileInfo']})" if window["profileInfo"] else ""
    return f"{'✗' if failed else '✓'} {window['name']}: {outcome} (session: {window['sessionId']}){info}"


def _render_counts(windows: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of tasks in each state, such as `2 running, 1 done, 1 error`."""
    counts = {status: sum(window["status"] == status for window in windows) for status in STATUSES.values()}
    names = {RUNNING: "running", COMPLETED: "done", ERROR: "errors" if counts[ERROR] > 1 else "error"}
    return (
        ", ".join(f"{counts[status]} {name}" for status, name in names.items() if counts[status]) or "processing..."
    )


def _model(spec: RunSpec, model: str | None) -> str | None:
    """Return the model without the provider that the window names apart from it."""
    return strip_provider(spec.agent.provider, model) if model else model


def _format_name(text: str | None) -> str | None:
    """Return a name from a file or a provider on one line."""
    return None if text is None else to_one_line(text, MAX_NAME_CHARS)


def _exit_code(view: RunView) -> int | None:
    return None if STATUSES[view.phase] == RUNNING else compute_exit_code(view.failure)


def _started_at(view: RunView) -> float | None:
    """Return when the run started; the time it was queued if it failed before that."""
    return view.queued if view.started is None and view.elapsed is not None else view.started


def _trim_fraction(number: float) -> float:
    """Return the number as an integer if it has no fraction."""
    return int(number) if number == int(number) else number


def _to_milliseconds(seconds: float) -> int:
    """Return the time in milliseconds, as hosts written in JavaScript count it."""
    return round(seconds * 1000)
