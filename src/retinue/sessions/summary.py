"""What a list shows of a session, made of the few events that matter."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from retinue.events import RunEnded, RunQueued, RunStarted, Stamped, Text
from retinue.results import exit_code
from retinue.sessions.store import INTERRUPTED, RunSummary, SessionSummary, State
from retinue.types import Failure

CHANGES = (RunQueued, RunStarted, RunEnded)
"""Events that tell which state a run is in."""
_UNKNOWN = "(unknown)"
_PREVIEW = 200
"""Characters of a preview."""


class Facts(Struct, frozen=True, kw_only=True):
    """A session by its events: the beginning of its latest run, and how far that has come."""

    session: str
    created: float
    number: int
    """Of the latest run, from 1."""
    queued: Stamped
    started: Stamped | None
    last: Stamped
    ended: Stamped | None
    said: str = ""
    """The latest text, as far as it stands near the end."""
    damaged: int = 0


def facts_of(
    session: str,
    created: float,
    begins: tuple[int, Stamped, Stamped | None],
    newest_first: Iterable[Stamped],
    damaged: int = 0,
) -> Facts:
    """Puts together how a run begins (its number, queued, started) and the last events of the record."""
    tail = list(newest_first)
    change = next((stamped for stamped in tail if isinstance(stamped.event, CHANGES)), None)
    number, queued, started = begins
    if change is None or isinstance(change.event, RunStarted):
        # No change of state in sight means that it has long been running.
        started = started or change or queued
    return Facts(
        session=session,
        created=created,
        number=number,
        queued=queued,
        started=started,
        last=tail[0],
        ended=change if change and isinstance(change.event, RunEnded) else None,
        said=next((stamped.event.text for stamped in tail if isinstance(stamped.event, Text)), ""),
        damaged=damaged,
    )


def summary_of(facts: Facts, *, live: bool) -> SessionSummary:
    """The summary of a session; a run that has not ended and has no live owner was interrupted."""
    queued = facts.queued.event
    assert isinstance(queued, RunQueued)
    ended = _ended(facts)
    latest = _run_summary(facts, live=live)
    origin = facts.queued.origin
    return SessionSummary(
        session=facts.session,
        name=queued.name,
        agent=queued.agent,
        task=queued.task,
        cwd=queued.cwd,
        surface=queued.surface,
        engine=queued.engine,
        model=(ended and ended.actual.model) or queued.model,
        root=origin.root,
        parent_run=origin.parent_run,
        depth=origin.depth,
        created=facts.created,
        updated=facts.last.time,
        runs=facts.number,
        latest=latest,
        preview=_first_line(latest.failure.message if latest.failure else ended.text if ended else facts.said),
        damaged=facts.damaged,
    )


def unreadable_summary(name: str, changed: float, failure: Failure) -> SessionSummary:
    """Stands in a list for a session whose record this program cannot read."""
    return SessionSummary(
        session=name,
        name=_UNKNOWN,
        agent=_UNKNOWN,
        task="",
        cwd="",
        surface="",
        engine="",
        root="",
        created=changed,
        updated=changed,
        runs=0,
        latest=RunSummary(run=name, state=State.ERROR, started=changed, failure=failure, exit_code=1),
        preview=_first_line(failure.message),
    )


def unknown_queued(stamped: Stamped) -> Stamped:
    """Stands for the `run_queued` of a run that has lost it."""
    queued = RunQueued(name=_UNKNOWN, agent=_UNKNOWN, task="", cwd="", surface="")
    return Stamped(stamped.origin, 0, stamped.time, queued)


def matches(
    summary: SessionSummary, *, root: str | None, agent: str | None, state: State | None, text: str | None
) -> bool:
    """Whether a session is one of those asked for; None asks for any."""
    return (
        root in {None, summary.root}
        and agent in {None, summary.agent}
        and state in {None, summary.latest.state}
        and (text is None or text.casefold() in searchable(summary))
    )


def searchable(summary: SessionSummary) -> str:
    """What a search looks in, in the case it looks for."""
    return f"{summary.name}\n{summary.agent}\n{summary.task}\n{summary.preview}".casefold()


def _run_summary(facts: Facts, *, live: bool) -> RunSummary:
    run = facts.last.origin.run
    began = facts.started or facts.queued
    ended = _ended(facts)
    if ended and facts.ended:
        return RunSummary(
            run=run,
            state=State.ERROR if ended.failure else State.COMPLETED,
            started=began.time,
            ended=facts.ended.time,
            elapsed=ended.elapsed,
            failure=ended.failure,
            exit_code=ended.exit_code,
            usage=ended.usage,
        )
    failure = None if live else INTERRUPTED
    return RunSummary(
        run=run,
        state=State.ERROR if failure else State.RUNNING if facts.started else State.QUEUED,
        started=began.time,
        elapsed=max(0.0, facts.last.time - began.time) if facts.started else 0.0,
        failure=failure,
        exit_code=exit_code(failure),
    )


def _ended(facts: Facts) -> RunEnded | None:
    event = facts.ended.event if facts.ended else None
    return event if isinstance(event, RunEnded) else None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text[: 8 * _PREVIEW].split("\n") if line.strip()), "")[:_PREVIEW]
