"""A run's events folded into everything there is to know of it: read once, kept as counts."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

from msgspec import structs

from retinue.events import (
    AttemptStarted,
    Finalized,
    MessageEnded,
    ModelChanged,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    Stamped,
    Text,
    ToolCalled,
    ToolReturned,
)
from retinue.frontends.http.live import TASK, LiveRun
from retinue.frontends.http.values import (
    Declared,
    Fallback,
    RunOfSession,
    RunRow,
    Said,
    Spent,
    Told,
    ToolCount,
    Touched,
    Tried,
)
from retinue.models import join_model
from retinue.results import Actual, AnswerKind, Finalization
from retinue.sessions.store import SessionSummary
from retinue.tool_names import pi_names

MOST_FILES = 2_000
"""Of one run that are listed."""
MOST_NOTICES = 500

How = Literal["read", "write", "edit", "search"]
HOW: dict[str, How] = {
    "read": "read",
    "write": "write",
    "edit": "edit",
    "grep": "search",
    "find": "search",
    "ls": "search",
}


class Detail:
    """One run, event by event."""

    def __init__(self) -> None:
        self.live: LiveRun | None = None
        self.task = ""
        self.declared: Declared | None = None
        self.actual: Actual | None = None
        self.finalized: Finalization | None = None
        self.fallbacks: list[Fallback] = []
        self.notices: list[Told] = []
        self._attempts: list[Tried] = []
        self._ended: RunEnded | None = None
        self._said = ""
        self._clock = Clock()
        self._tools: dict[str, _Tool] = {}
        self._open: dict[str, tuple[str, float]] = {}
        self._files: Counter[tuple[str, How]] = Counter()

    def take(self, stamped: Stamped, number: int = 1, continues: SessionSummary | None = None) -> None:
        """Folds one more event; the first says which run it is."""
        if self.live is None:
            self.live = LiveRun(stamped, number=number, address="?", continues=continues)
        self.live.take(stamped)
        self._clock.take(stamped)
        event, time = stamped.event, stamped.time
        match event:
            case RunQueued():
                self.task, self.declared = event.task, _declared(event)
            case AttemptStarted(number=attempt, reason=reason, model=model):
                self._attempts.append(Tried(number=attempt, reason=reason, model=model, failure=None, started=time))
            case Text(text=text):
                self._said = text if text.strip() else self._said
            case ToolCalled() | ToolReturned():
                self._used(event, time)
            case ModelChanged(before=before, after=after, reason=reason):
                self.fallbacks.append(Fallback(before=before, after=after, reason=reason, time=time))
            case Notice(code=code, message=message) if len(self.notices) < MOST_NOTICES:
                self.notices.append(Told(code=code, message=message, time=time))
            case Finalized(finalization=finalization):
                self.finalized = finalization
            case RunEnded():
                self._end(event)
            case _:
                pass

    def _end(self, event: RunEnded) -> None:
        self._ended, self.actual = event, event.actual
        if self.declared and event.actual.declared_model:  # in the spelling of the model that answered
            self.declared = structs.replace(self.declared, model=event.actual.declared_model)
        self.finalized = event.finalized or self.finalized

    def _used(self, event: ToolCalled | ToolReturned, time: float) -> None:
        if isinstance(event, ToolCalled):
            self._called(event, time)
        else:
            self._returned(event, time)

    def _called(self, event: ToolCalled, time: float) -> None:
        self._open[event.call] = (event.name, time)
        self._tools.setdefault(event.name, _Tool()).count += 1
        (name, *_) = pi_names((event.name,)) or (event.name,)
        path = _path(event.args)
        if (how := HOW.get(name)) and path and (len(self._files) < MOST_FILES or (path, how) in self._files):
            self._files[path, how] += 1

    def _returned(self, event: ToolReturned, time: float) -> None:
        name, began = self._open.pop(event.call, (event.name, time))
        tool = self._tools.setdefault(name, _Tool())
        tool.seconds += max(time - began, 0.0)
        tool.errors += event.is_error

    @property
    def answer(self) -> Said | None:
        """What it answered, or has said so far."""
        if self._ended:
            kind = self._ended.answer
            return None if kind is AnswerKind.NONE else Said(text=self._ended.text, kind=kind)
        return Said(text=self._said, kind=AnswerKind.PARTIAL) if self._said else None

    @property
    def attempts(self) -> tuple[Tried, ...]:
        """Its tries, each with how it failed once that is known."""
        failures = {each.number: each.failure for each in self.actual.attempts} if self.actual else {}
        return tuple(
            Tried(
                number=each.number,
                reason=each.reason,
                model=each.model,
                failure=failures.get(each.number),
                started=each.started,
            )
            for each in self._attempts
        )

    @property
    def files(self) -> tuple[Touched, ...]:
        return tuple(Touched(path=path, how=how, count=count) for (path, how), count in self._files.items())

    @property
    def tools(self) -> tuple[ToolCount, ...]:
        return tuple(
            ToolCount(name=name, count=tool.count, errors=tool.errors, seconds=tool.seconds)
            for name, tool in self._tools.items()
        )

    def spent(self, row: RunRow) -> Spent:
        """Where its time and money went."""
        nested = self.actual.nested_usage if self.actual else None
        used = row.usage
        return Spent(
            queued=self._clock.queued,
            model=self._clock.model,
            tools=self._clock.tools,
            other=self._clock.other,
            cost=used.cost,
            nested_cost=nested.cost if nested else None,
            tokens=used.input + used.output + used.cache_read + used.cache_write,
        )


class Clock:
    """Time by what a run was doing: between two events it did what the first of them began."""

    def __init__(self) -> None:
        self.queued = self.model = self.tools = self.other = 0.0
        self._last: float | None = None
        self._doing: Literal["queued", "model", "tools", "other"] = "queued"
        self._open: set[str] = set()

    def take(self, stamped: Stamped) -> None:
        if self._last is not None:
            setattr(self, self._doing, getattr(self, self._doing) + max(stamped.time - self._last, 0.0))
        self._last = stamped.time
        match stamped.event:
            case RunStarted() | RunEnded():
                self._doing = "other"
                self._open.clear()
            case AttemptStarted():
                self._doing = "model"
                self._open.clear()
            case ToolCalled(call=call):
                self._open.add(call)
            case ToolReturned(call=call):
                self._open.discard(call)
                self._doing = "tools" if self._open else "model"
            case MessageEnded():
                self._doing = "tools" if self._open else "model"
            case _:
                pass


class _Tool:
    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = 0.0


def run_of_session(row: RunRow) -> RunOfSession:
    return RunOfSession(
        run=row.run,
        state=row.state,
        started=row.started,
        ended=row.ended,
        elapsed=row.elapsed,
        task=row.task[:TASK],
    )


def _declared(queued: RunQueued) -> Declared:
    return Declared(
        engine=queued.engine,
        model=join_model(queued.provider, queued.model),
        provider=queued.provider,
        thinking=queued.thinking,
        tools=queued.tools,
        timeout=queued.timeout,
        layer=queued.layer,
        resumes=queued.resumes,
    )


def _path(args: dict[str, Any]) -> str | None:
    found = next((args[name] for name in ("path", "file_path") if isinstance(args.get(name), str)), None)
    return found[:1000] if found else None
