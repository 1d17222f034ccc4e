"""A stage for tests of the pi engine: Retinue on a pi that does as it is told, in a home of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.fake_pi import FakePiAction, encode_script, install_fake_pi

from retinue.client import Retinue
from retinue.engines.base import EngineInfo
from retinue.engines.pi.engine import PiEngine
from retinue.engines.pi.installation import CAPABILITIES
from retinue.engines.pi.pool import PoolLimits
from retinue.model.errors import ErrorCode
from retinue.model.event_codec import EventRecord
from retinue.model.events import Event
from retinue.model.results import RunResult
from retinue.model.tasks import Task
from retinue.runtime.event_bus import EventSubscription

OLD = "0.86.1"
"""A version that is started once per run."""
MODES = pytest.mark.parametrize("version", [None, OLD], ids=["conversing", "once"])


def pi_stage(
    home: Path,
    *at_start: FakePiAction,
    version: str | None = None,
    environ: Mapping[str, str] | None = None,
    bounds: PoolLimits | None = None,
    **options: Any,
) -> Retinue:
    """Retinue whose pi does these things at its start, and then what its prompts say."""
    install_fake_pi(home / "bin", *at_start, version=version)
    work = home / "work"
    work.mkdir(exist_ok=True)
    if bounds:
        options["engines"] = {
            "pi": EngineInfo(
                name="pi",
                capabilities=CAPABILITIES,
                make=lambda: PiEngine(limits=bounds),
                not_installed_reason=lambda: None,
            )
        }
    options.setdefault("cwd", work)
    options.setdefault("engine", "pi")
    return Retinue(environ={**environment(home), **(environ or {})}, **options)


def environment(home: Path) -> dict[str, str]:
    """With which pi is found, and has a provider."""
    path = os.pathsep.join((str(home / "bin"), os.environ.get("PATH", os.defpath)))
    return {"HOME": str(home), "PATH": path, "ANTHROPIC_API_KEY": "sk-not-a-real-key"}


async def play(
    retinue: Retinue, *deeds: FakePiAction, agent: str | None = None, ask: str = "", **options: Any
) -> RunResult:
    """The result of a run that is asked for something, and in which pi does these things."""
    result: RunResult = await retinue.run(agent, f"{ask} {encode_script(*deeds)}".strip(), **options)
    return result


def reported(result: RunResult) -> dict[str, Any]:
    """What pi knew, by its `report`."""
    assert result.failure is None, result.failure
    told: dict[str, Any] = json.loads(result.text)
    return told


def task(*deeds: FakePiAction, **options: Any) -> Task:
    """A task in which pi does these things."""
    return Task(prompt=encode_script(*deeds), **options)


def ended(result: RunResult) -> tuple[ErrorCode | None, str | None]:
    """Why a run failed: code and reason."""
    return (result.failure.code, result.failure.reason) if result.failure else (None, None)


def words(result: RunResult) -> str:
    """What the failure of a run says."""
    assert result.failure
    return result.failure.message


async def until_told(events: EventSubscription, is_it: Callable[[Event], bool]) -> EventRecord:
    """The first event that is it."""
    with anyio.fail_after(20):
        async for stamped in events:
            if is_it(stamped.event):
                return stamped
    raise AssertionError("it was never told")


def alive(home: Path) -> list[str]:
    """The processes that were started with this home, or name it: commands of those that are no zombies."""
    mark, found = os.fsencode(home), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
                if command and (mark in command or mark in (entry / "environ").read_bytes()):
                    found.append(f"{entry.name} {os.fsdecode(command).replace(chr(0), ' ')}")
            except OSError:  # it has ended meanwhile
                continue
    return found
