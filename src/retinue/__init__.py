"""Retinue: dispatch agents as tool calls; bounded, watched, remembered, on any engine.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.agents.definition import Agent
    from retinue.app import Retinue
    from retinue.events import Event, Stamped
    from retinue.results import Actual, RunResult
    from retinue.types import Code, Failure, FileSlice, Limits, Mode, Plan, Refused, Task, Usage

__version__ = "0.1.0"

__all__ = [
    "Actual",
    "Agent",
    "Code",
    "Event",
    "Failure",
    "FileSlice",
    "Limits",
    "Mode",
    "Plan",
    "Refused",
    "Retinue",
    "RunResult",
    "Stamped",
    "Task",
    "Usage",
]

_HOMES = {
    "Actual": "results",
    "Agent": "agents.definition",
    "Code": "types",
    "Event": "events",
    "Failure": "types",
    "FileSlice": "types",
    "Limits": "types",
    "Mode": "types",
    "Plan": "types",
    "Refused": "types",
    "Retinue": "app",
    "RunResult": "results",
    "Stamped": "events",
    "Task": "types",
    "Usage": "types",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'retinue' has no attribute {name!r}")
    return getattr(import_module(f"retinue.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
