"""Retinue: run agents as tool calls; limited, observable and resumable, on any engine.

Public names are imported on first use, so that `import retinue` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retinue.agents.agent import Agent
    from retinue.client import Retinue
    from retinue.model.errors import ErrorCode, Failure, RefusedError
    from retinue.model.event_codec import EventRecord
    from retinue.model.events import Event
    from retinue.model.results import ExecutionReport, RunResult, Usage
    from retinue.model.runs import Limits
    from retinue.model.tasks import FileSlice, Mode, Plan, Task

__version__ = "0.3.0.dev0"

__all__ = [
    "Agent",
    "ErrorCode",
    "Event",
    "EventRecord",
    "ExecutionReport",
    "Failure",
    "FileSlice",
    "Limits",
    "Mode",
    "Plan",
    "RefusedError",
    "Retinue",
    "RunResult",
    "Task",
    "Usage",
]

_MODULES = {
    "Agent": "agents.agent",
    "ErrorCode": "model.errors",
    "Event": "model.events",
    "EventRecord": "model.event_codec",
    "ExecutionReport": "model.results",
    "Failure": "model.errors",
    "FileSlice": "model.tasks",
    "Limits": "model.runs",
    "Mode": "model.tasks",
    "Plan": "model.tasks",
    "RefusedError": "model.errors",
    "Retinue": "client",
    "RunResult": "model.results",
    "Task": "model.tasks",
    "Usage": "model.results",
}

_OLD_NAMES = {"Actual": "ExecutionReport", "Code": "ErrorCode", "Refused": "RefusedError", "Stamped": "EventRecord"}
"""Names of version 0.1, kept for one version."""


def __getattr__(name: str) -> object:
    name = _OLD_NAMES.get(name, name)
    if name not in _MODULES:
        raise AttributeError(f"module 'retinue' has no attribute {name!r}")
    return getattr(import_module(f"retinue.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
