"""Restore a session that only the host of the conversation still has."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct, structs

from retinue.model.agents import AgentProfile
from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import PersistedEvent, RunQueued, RunStarted
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext
from retinue.output.redaction.redactor import Redactor
from retinue.runtime.recorder import EventRedactor
from retinue.sessions.paths import SHORT_ID_LENGTH, parse_id_digits
from retinue.sessions.store import SessionStore

SHOWN_DIGITS, ID_DIGITS = 16, 32
NO_AGENT = "default"


class PastRun(Struct, frozen=True, kw_only=True):
    """An ended run, as far as the host knows it."""

    name: str
    agent: str | None
    task: str
    cwd: str
    started: float
    """Seconds since the epoch."""
    events: Sequence[PersistedEvent]
    """The events after its start; the last is its end."""


async def restore_session(
    store: SessionStore, redactor: Redactor, call: CallContext, session: str, runs: Sequence[PastRun]
) -> bool:
    """Write the runs of a session to the store, oldest first, and return whether that was necessary.

    Nothing is written if the store has the session, or another one with the same first digits.
    """
    id_ = _full_id(session)
    if id_ is None or await store.find(id_[:SHORT_ID_LENGTH]):
        return False
    for number, run in enumerate(runs):
        spec = RunSpec(
            run=store.claim(id_) if number else id_,
            session=id_,
            name=run.name,
            toolset=call.toolset,
            agent=AgentProfile(name=run.agent or NO_AGENT),
            task=run.task,
            prompt=run.task,
            cwd=run.cwd,
            engine="",
            lineage=structs.replace(call.lineage, depth=call.lineage.depth + 1),
            resumes=number > 0,
        )
        await _write(store, redactor, spec, run)
    return bool(runs)


async def _write(store: SessionStore, redactor: Redactor, spec: RunSpec, run: PastRun) -> None:
    record = await store.open_record(spec)
    try:
        events = map(EventRedactor(redactor).redact, (RunQueued.of(spec), RunStarted(), *run.events))
        for seq, event in enumerate(events, 1):
            record.append(EventRecord(EventSource.of(spec), seq, run.started, event))
        await record.sync()
    finally:
        await record.release()


def _full_id(shown: str) -> str | None:
    """Return the id of 32 digits that a shown id stands for; the digits it lacks are derived from it."""
    found = parse_id_digits(shown) or ""
    if len(found) == SHOWN_DIGITS:
        found += f"8{sha256(found.encode()).hexdigest()}"  # the first of them is the variant of a UUID
    return found[:ID_DIGITS] if len(found) >= ID_DIGITS else None
