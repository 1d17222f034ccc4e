"""The details of a run, folded from its events in one pass."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from msgspec import structs

from retinue.model import events
from retinue.model.event_codec import EventRecord
from retinue.model.providers import join_model
from retinue.model.results import AnswerStatus, ExecutionReport, Finalization
from retinue.model.tool_names import to_pi_names
from retinue.servers.http import schemas
from retinue.servers.http.live_runs import MAX_TASK_CHARS, LiveRunState
from retinue.sessions.store import SessionSummary

MAX_FILES = 2_000
"""Files of one run that are listed."""
MAX_NOTICES = 500

FileAccess = Literal["read", "write", "edit", "search"]
FILE_ACCESS: dict[str, FileAccess] = {
    "read": "read",
    "write": "write",
    "edit": "edit",
    "grep": "search",
    "find": "search",
    "ls": "search",
}


class RunDetailBuilder:
    """Builds the details of one run, event by event."""

    def __init__(self) -> None:
        self.live: LiveRunState | None = None
        self.task = ""
        self.declared: schemas.DeclaredSpec | None = None
        self.actual: ExecutionReport | None = None
        self.finalized: Finalization | None = None
        self.fallbacks: list[schemas.ModelFallback] = []
        self.notices: list[schemas.NoticeRow] = []
        self._attempts: list[schemas.AttemptRow] = []
        self._ended: events.RunEnded | None = None
        self._last_text = ""
        self._clock = ActivityClock()
        self._tools: dict[str, _ToolUsage] = {}
        self._open: dict[str, tuple[str, float]] = {}
        self._files: Counter[tuple[str, FileAccess]] = Counter()

    def add_event(self, record: EventRecord, number: int = 1, continues: SessionSummary | None = None) -> None:
        """Add an event; the first one identifies the run."""
        if self.live is None:
            self.live = LiveRunState(record, number=number, address="?", continues=continues)
        self.live.add_event(record)
        self._clock.add_event(record)
        event, time = record.event, record.time
        match event:
            case events.RunQueued():
                self.task, self.declared = event.task, _declared_spec(event)
            case events.AttemptStarted(number=attempt, reason=reason, model=model):
                self._attempts.append(
                    schemas.AttemptRow(number=attempt, reason=reason, model=model, failure=None, started=time)
                )
            case events.Text(text=text):
                self._last_text = text if text.strip() else self._last_text
            case events.ToolCalled():
                self._add_call(event, time)
            case events.ToolReturned():
                self._add_return(event, time)
            case events.Finalized(finalization=finalization):
                self.finalized = finalization
            case events.RunEnded():
                self._end(event)
            case _:
                self._add_notice(event, time)

    def _add_notice(self, event: events.Event, time: float) -> None:
        match event:
            case events.ModelChanged(before=before, after=after, reason=reason):
                self.fallbacks.append(schemas.ModelFallback(before=before, after=after, reason=reason, time=time))
            case events.Notice(code=code, message=message) if len(self.notices) < MAX_NOTICES:
                self.notices.append(schemas.NoticeRow(code=code, message=message, time=time))
            case _:
                pass

    def _end(self, event: events.RunEnded) -> None:
        self._ended, self.actual = event, event.actual
        if self.declared and event.actual.declared_model:  # spelled as the model that answered
            self.declared = structs.replace(self.declared, model=event.actual.declared_model)
        self.finalized = event.finalized or self.finalized

    def _add_call(self, event: events.ToolCalled, time: float) -> None:
        self._open[event.call] = (event.name, time)
        self._tools.setdefault(event.name, _ToolUsage()).count += 1
        (name, *_) = to_pi_names((event.name,)) or (event.name,)
        path = _find_path(event.args)
        if (
            (access := FILE_ACCESS.get(name))
            and path
            and (len(self._files) < MAX_FILES or (path, access) in self._files)
        ):
            self._files[path, access] += 1

    def _add_return(self, event: events.ToolReturned, time: float) -> None:
        name, started = self._open.pop(event.call, (event.name, time))
        tool = self._tools.setdefault(name, _ToolUsage())
        tool.seconds += max(time - started, 0.0)
        tool.errors += event.is_error

    @property
    def answer(self) -> schemas.AnswerText | None:
        """The answer, or the last text of a run that has not ended."""
        if self._ended:
            kind = self._ended.answer
            return None if kind is AnswerStatus.NONE else schemas.AnswerText(text=self._ended.text, kind=kind)
        return schemas.AnswerText(text=self._last_text, kind=AnswerStatus.PARTIAL) if self._last_text else None

    @property
    def attempts(self) -> tuple[schemas.AttemptRow, ...]:
        """The attempts, each with its failure once the run has ended."""
        failures = {attempt.number: attempt.failure for attempt in self.actual.attempts} if self.actual else {}
        return tuple(structs.replace(row, failure=failures.get(row.number)) for row in self._attempts)

    @property
    def files(self) -> tuple[schemas.TouchedFile, ...]:
        return tuple(
            schemas.TouchedFile(path=path, how=how, count=count) for (path, how), count in self._files.items()
        )

    @property
    def tools(self) -> tuple[schemas.ToolCount, ...]:
        return tuple(
            schemas.ToolCount(name=name, count=tool.count, errors=tool.errors, seconds=tool.seconds)
            for name, tool in self._tools.items()
        )

    def time_breakdown(self, row: schemas.RunRow) -> schemas.TimeBreakdown:
        """Return how the time and the cost of the run are divided."""
        nested = self.actual.nested_usage if self.actual else None
        used = row.usage
        return schemas.TimeBreakdown(
            queued=self._clock.queued,
            model=self._clock.model,
            tools=self._clock.tools,
            other=self._clock.other,
            cost=used.cost,
            nested_cost=nested.cost if nested else None,
            tokens=used.input + used.output + used.cache_read + used.cache_write,
        )


class ActivityClock:
    """Seconds by activity: the time between two events counts for the activity that the first of them started."""

    def __init__(self) -> None:
        self.queued = self.model = self.tools = self.other = 0.0
        self._last: float | None = None
        self._activity: Literal["queued", "model", "tools", "other"] = "queued"
        self._open: set[str] = set()

    def add_event(self, record: EventRecord) -> None:
        if self._last is not None:
            setattr(self, self._activity, getattr(self, self._activity) + max(record.time - self._last, 0.0))
        self._last = record.time
        match record.event:
            case events.RunStarted() | events.RunEnded():
                self._activity = "other"
                self._open.clear()
            case events.AttemptStarted():
                self._activity = "model"
                self._open.clear()
            case events.ToolCalled(call=call):
                self._open.add(call)
            case events.ToolReturned(call=call):
                self._open.discard(call)
                self._activity = "tools" if self._open else "model"
            case events.MessageEnded():
                self._activity = "tools" if self._open else "model"
            case _:
                pass


class _ToolUsage:
    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = 0.0


def to_session_run(row: schemas.RunRow) -> schemas.SessionRun:
    return schemas.copy_fields(row, schemas.SessionRun, task=row.task[:MAX_TASK_CHARS])


def _declared_spec(queued: events.RunQueued) -> schemas.DeclaredSpec:
    return schemas.copy_fields(queued, schemas.DeclaredSpec, model=join_model(queued.provider, queued.model))


def _find_path(args: dict[str, Any]) -> str | None:
    found = next((args[name] for name in ("path", "file_path") if isinstance(args.get(name), str)), None)
    return found[:1000] if found else None
