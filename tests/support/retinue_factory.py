"""Factories for tests: Retinue on scripted engines, with a memory store and virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from retinue.client import Retinue
from retinue.engines.base import EngineCapabilities, EngineInfo
from retinue.engines.scripted import CAPABILITIES, Script, ScriptedEngine, Step
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext, Plan
from retinue.runtime.planner import PlannedRun
from retinue.sessions.memory import MemoryStore

VIRTUAL_TIME = pytest.mark.parametrize("anyio_backend", ["virtual"], indirect=True)
"""Time jumps to the next deadline whenever all tasks wait: 600 seconds pass at once."""


def scripted(engine: ScriptedEngine, capabilities: EngineCapabilities = CAPABILITIES) -> Mapping[str, EngineInfo]:
    """Return a table of engines with this one only."""
    kind = EngineInfo(
        name="scripted", capabilities=capabilities, make=lambda: engine, not_installed_reason=lambda: None
    )
    return {"scripted": kind}


def stage(home: Path, *script: Step | Callable[[RunSpec], Script], **options: Any) -> Retinue:
    """Return a Retinue in an empty home whose agents play the script."""
    options.setdefault("store", MemoryStore())
    options.setdefault("engines", scripted(ScriptedEngine(*script)))
    options.setdefault("engine", "scripted")
    options.setdefault("environ", {"HOME": str(home)})
    return Retinue(cwd=home, **options)


async def plan_of(retinue: Retinue, plan: Plan, call: CallContext) -> list[PlannedRun]:
    """Return the planned runs of a plan without running them."""
    planner = retinue._orchestrator._planner
    return await planner.plan(plan, planner.authorize(call))
