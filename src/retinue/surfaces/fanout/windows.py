"""The windows of one call: what its host shows while it runs, and the line each task ends with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from retinue.models import strip_provider
from retinue.output.frame import one_line
from retinue.progress import KEPT_ITEMS, Called, Item, Noted, Phase, Progress, RunView, Said, Told
from retinue.results import RunResult, exit_code
from retinue.retelling import clean
from retinue.sessions.transcript import call_line
from retinue.surfaces.base import ToolResult, exit_status, storage_warning
from retinue.surfaces.fanout.words import NOT_SPAWNED, Words
from retinue.types import Failure, RunSpec, Task

SHOWN_ID = 16
"""Digits of a session's id."""
ALL_CHARS = 2**16
"""Of a window's messages, the newest: they are repeated with every partial result."""
RECENT_CALLS = 20
MOST_NAME = 200
MOST_MESSAGE = 4_000
"""Characters of a failure in a line."""

RUNNING, COMPLETED, ERROR = "running", "completed", "error"
STATUSES: Mapping[Phase, str] = {
    Phase.QUEUED: RUNNING,
    Phase.RUNNING: RUNNING,
    Phase.DONE: COMPLETED,
    Phase.ERROR: ERROR,
}
"""The seed knows three: one that waits is running, too."""


class Windows:
    """One window per task, in the order of the tasks, whatever has happened so far."""

    def __init__(self, tasks: Sequence[Task], words: Words, max_lines: int) -> None:
        self._tasks = tasks
        self._words = words
        self._max_lines = max_lines
        self._specs: Sequence[RunSpec] = ()
        self._profiles: Sequence[dict[str, Any]] = ()
        # Every partial result repeats the texts before it: each is cleaned once.
        self._clean = lru_cache(maxsize=len(tasks) * KEPT_ITEMS)(clean)

    def begun(self, specs: Sequence[RunSpec]) -> None:
        """Takes the runs of the tasks, in their order."""
        self._specs = specs
        self._profiles = [self._profile(task, spec) for task, spec in zip(self._tasks, specs, strict=True)]

    def partial(self, progress: Progress) -> ToolResult:
        """What a host shows while the tasks run."""
        windows = self._all(progress)
        return ToolResult(text=_counted(windows), details=self._details(windows))

    def final(self, progress: Progress, results: Sequence[RunResult]) -> ToolResult:
        """The answer: a line per task."""
        windows = self._all(progress, results)
        text = "\n".join([*map(_line, windows), *filter(None, [storage_warning(results)])])
        return ToolResult(text=text, details=self._details(windows), exit_code=exit_status(results))

    def _details(self, windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        is_over = windows and all(window["status"] != RUNNING for window in windows)
        return {
            "windows": windows,
            "maxLinesPerWindow": self._max_lines,
            "globalStatus": "done" if is_over else "running",
            "sessionIds": [window["sessionId"] for window in windows],
        }

    def _all(self, progress: Progress, results: Sequence[RunResult] = ()) -> list[dict[str, Any]]:
        ended = {result.run: result for result in results}
        return [
            self._window(spec, progress.runs.get(spec.run), ended.get(spec.run)) | profile
            for spec, profile in zip(self._specs, self._profiles, strict=True)
        ]

    def _window(self, spec: RunSpec, view: RunView | None, result: RunResult | None) -> dict[str, Any]:
        view = view or RunView(run=spec.run, session=spec.session, name=self._words.masked(spec.name))
        failure = result.failure if result else view.failure
        messages, started = self._messages(view, failure), _started(view)
        window: dict[str, Any] = {
            "name": one_line(view.name, MOST_NAME),
            "sessionId": spec.session[:SHOWN_ID],
            "status": (ERROR if failure else COMPLETED) if result else STATUSES[view.phase],
            "lines": self._newest_lines(messages),
            "allMessages": messages,
            "exitCode": result.exit_code if result else _exit_code(view),
            "model": _told(_model(spec, (result and result.actual.model) or view.model or spec.model)),
            "stopReason": view.stop_reason,
            "errorMessage": self._words.told(failure) if failure else None,
            "startedAt": None if started is None else _milliseconds(started),
            "timeout": _whole(spec.limits.timeout),
            "toolCount": view.tools,
            "recentToolCalls": self._recent_calls(view),
        }
        if view.elapsed is not None and started is not None:
            window["completedAt"] = _milliseconds(started + view.elapsed)
        if view.todos.total:
            window |= {"todoTotal": view.todos.total, "todoCompleted": view.todos.completed}
        return window

    def _profile(self, task: Task, spec: RunSpec) -> dict[str, Any]:
        """What a window says from the beginning."""
        is_found = task.agent is not None and bool(spec.agent.layer)
        return {
            "profileName": None if task.agent is None else _told(self._words.masked(task.agent)),
            "profileInfo": self._words.summary(spec.agent) if is_found else None,
            "provider": _told(spec.agent.provider),
            "thinkingLevel": _told(spec.agent.thinking),
            "fileCount": len(task.files),
        }

    def _recent_calls(self, view: RunView) -> list[str]:
        calls = (item for item in reversed(view.items) if isinstance(item, Called))
        return [self._clean(_message(item)).removeprefix("→ ") for item in islice(calls, RECENT_CALLS)][::-1]

    def _messages(self, view: RunView, failure: Failure | None) -> list[str]:
        """What it said and did, oldest first, as far as there is room for it."""
        newest: list[str] = []
        size = 0
        for message in self._backwards(view, failure):
            size += len(message)
            if newest and size > ALL_CHARS:
                break
            newest.append(message[-ALL_CHARS:])
        return newest[::-1]

    def _backwards(self, view: RunView, failure: Failure | None) -> Iterator[str]:
        if failure and self._words.sentence(failure).startswith(NOT_SPAWNED):
            yield self._clean(failure.message)
        if view.partial.strip():
            yield clean(view.partial)
        yield from (self._clean(_message(item)) for item in reversed(view.items))

    def _newest_lines(self, messages: Sequence[str]) -> list[str]:
        lines = (line for message in reversed(messages) for line in reversed(message.split("\n")) if line.strip())
        return list(islice(lines, self._max_lines))[::-1]


def _message(item: Item) -> str:
    match item:
        case Said(text=text):
            return text
        case Called(name=name, args=args):
            return call_line(name, args)
        case Noted(message=message):
            return f"! {message}"
        case Told(text=text):
            return f"» {text}"


def _line(window: Mapping[str, Any]) -> str:
    """`✓ build-assets: completed (session: a3f7b9c2d1e8f4a1)`."""
    failed = window["status"] == ERROR
    outcome = f"error — {one_line(window['errorMessage'], MOST_MESSAGE)}" if failed else window["status"]
    info = f" ({window['profileInfo']})" if window["profileInfo"] else ""
    return f"{'✗' if failed else '✓'} {window['name']}: {outcome} (session: {window['sessionId']}){info}"


def _counted(windows: Sequence[Mapping[str, Any]]) -> str:
    """`2 running, 1 done, 1 error`."""
    counts = {status: sum(window["status"] == status for window in windows) for status in STATUSES.values()}
    names = {RUNNING: "running", COMPLETED: "done", ERROR: "errors" if counts[ERROR] > 1 else "error"}
    return (
        ", ".join(f"{counts[status]} {name}" for status, name in names.items() if counts[status]) or "processing..."
    )


def _model(spec: RunSpec, model: str | None) -> str | None:
    """Return the model without the provider that the window names apart from it."""
    return strip_provider(spec.agent.provider, model) if model else model


def _told(text: str | None) -> str | None:
    """A name from a file or a provider, on one line."""
    return None if text is None else one_line(text, MOST_NAME)


def _exit_code(view: RunView) -> int | None:
    return None if STATUSES[view.phase] == RUNNING else exit_code(view.failure)


def _started(view: RunView) -> float | None:
    """When it began; one that failed before it could began when it was accepted."""
    return view.queued if view.started is None and view.elapsed is not None else view.started


def _whole(number: float) -> float:
    """The number without a fraction that says nothing."""
    return int(number) if number == int(number) else number


def _milliseconds(seconds: float) -> int:
    """As hosts written in JavaScript count time."""
    return round(seconds * 1000)
