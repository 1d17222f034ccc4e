"""What a run goes on from that continues a session: the messages so far, and the engine's own session, if any."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import structs

from retinue.engines.base import EngineKind
from retinue.folders import native_file
from retinue.sessions.store import SessionStore, SessionSummary
from retinue.sessions.transcript import recalled
from retinue.types import RunSpec


async def resumed(spec: RunSpec, kind: EngineKind, before: SessionSummary | None, store: SessionStore) -> RunSpec:
    """The spec with what it goes on from.

    Raises:
        Refused: `storage`.
    """
    spec = structs.replace(spec, history=await recalled(store, spec.session))
    if not kind.capabilities.resumes_natively:
        return spec
    # What another engine did since is not in this one's file; a run that never started has no engine.
    is_current = before is not None and before.engine in {kind.name, ""}
    return _native(spec) if is_current else _from_messages(spec)


def is_same_work(spec: RunSpec, before: SessionSummary | None) -> bool:
    """Whether the engine finds in its own session what the run needs: the same work, cleanly ended."""
    if before is None or before.latest.failure is not None:
        return False
    same_place = os.path.realpath(before.cwd) == os.path.realpath(spec.cwd)
    return same_place and (before.engine, before.agent) == (spec.engine, spec.agent.name)


def _native(spec: RunSpec) -> RunSpec:
    """The spec with the engine's own session to continue, if it is still there."""
    file = native_file(Path(spec.native_folder), spec.agent.name, spec.session)
    there = os.path.isfile(file)  # noqa: PTH113 - Path.is_file raises where nothing may be looked at
    return structs.replace(spec, native_session=str(file)) if there else _from_messages(spec)


def _from_messages(spec: RunSpec) -> RunSpec:
    notice = f"The {spec.engine} engine has no own record of the latest run: it goes on from the stored messages."
    return structs.replace(spec, notices=(*spec.notices, notice))
