"""A stage for tests of the pi engine: Retinue on a pi that does as it is told, in a home of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.app import Retinue
from retinue.bus import Watcher
from retinue.engines.base import EngineKind
from retinue.engines.pi.engine import PiEngine
from retinue.engines.pi.installation import CAPABILITIES
from retinue.engines.pi.pool import Bounds
from retinue.events import Event, Stamped
from retinue.results import RunResult
from retinue.testing.fake_pi import Deed, install, script
from retinue.types import Code, Task

OLD = "0.86.1"
"""A version that is started once per run."""
MODES = pytest.mark.parametrize("version", [None, OLD], ids=["conversing", "once"])


def pi_stage(
    home: Path,
    *at_start: Deed,
    version: str | None = None,
    environ: Mapping[str, str] | None = None,
    bounds: Bounds | None = None,
    **options: Any,
) -> Retinue:
    """Retinue whose pi does these things at its start, and then what its prompts say."""
    install(home / "bin", *at_start, version=version)
    work = home / "work"
    work.mkdir(exist_ok=True)
    if bounds:
        options["engines"] = {
            "pi": EngineKind(
                name="pi",
                capabilities=CAPABILITIES,
                make=lambda: PiEngine(bounds=bounds),
                missing=lambda: None,
            )
        }
    options.setdefault("cwd", work)
    options.setdefault("engine", "pi")
    return Retinue(environ={**environment(home), **(environ or {})}, **options)


def environment(home: Path) -> dict[str, str]:
    """With which pi is found, and has a provider."""
    path = os.pathsep.join((str(home / "bin"), os.environ.get("PATH", os.defpath)))
    return {"HOME": str(home), "PATH": path, "ANTHROPIC_API_KEY": "sk-not-a-real-key"}


async def play(retinue: Retinue, *deeds: Deed, agent: str | None = None, ask: str = "", **options: Any) -> RunResult:
    """The result of a run that is asked for something, and in which pi does these things."""
    return await retinue.run(agent, f"{ask} {script(*deeds)}".strip(), **options)


def reported(result: RunResult) -> dict[str, Any]:
    """What pi knew, by its `report`."""
    assert result.failure is None, result.failure
    told: dict[str, Any] = json.loads(result.text)
    return told


def task(*deeds: Deed, **options: Any) -> Task:
    """A task in which pi does these things."""
    return Task(prompt=script(*deeds), **options)


def ended(result: RunResult) -> tuple[Code | None, str | None]:
    """Why a run failed: code and reason."""
    return (result.failure.code, result.failure.reason) if result.failure else (None, None)


def words(result: RunResult) -> str:
    """What the failure of a run says."""
    assert result.failure
    return result.failure.message


async def until_told(events: Watcher, is_it: Callable[[Event], bool]) -> Stamped:
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
