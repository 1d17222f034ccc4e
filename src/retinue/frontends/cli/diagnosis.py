"""What `retinue doctor` finds out: plain values, gathered in one place and told in another."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue import __version__
from retinue.app import Retinue
from retinue.folders import config_folder
from retinue.settings import KEYS, SURFACES, Problem

AUTO = "auto"


class EngineFound(Struct, frozen=True, rename="camel"):
    name: str
    about: str
    missing: str | None
    """Why it cannot be used and what to do; None if it can."""
    is_chosen: bool
    """Whether `auto` takes it."""


class StateFound(Struct, frozen=True, rename="camel"):
    """The state folder as it is."""

    folder: str
    sessions: int
    size_bytes: int
    fault: str | None
    """Why nothing can be written there; None if it can."""


class SettingFound(Struct, frozen=True):
    """A setting on each surface, with where its value comes from."""

    name: str
    values: Mapping[str, Any]
    sources: Mapping[str, str]


class Diagnosis(Struct, frozen=True, kw_only=True, rename="camel"):
    version: str
    python: str
    platform: str
    terminal: Mapping[str, Any]
    engines: tuple[EngineFound, ...]
    state: StateFound
    agents: int
    broken_agents: tuple[str, ...]
    settings: tuple[SettingFound, ...]
    problems: tuple[Problem, ...]
    """Of settings: what was not taken as it is written."""
    broken: tuple[str, ...]
    """What needs the user, each in a sentence."""


async def diagnose(retinue: Retinue) -> Diagnosis:
    """Looks at everything, changes nothing. Retinue must be open."""
    engines = tuple(_engines(retinue))
    state = _state(retinue.state, len(await retinue.sessions()))
    problems = tuple(dict.fromkeys(problem for name in SURFACES for problem in retinue.settings(name).problems))
    roster = retinue.roster()
    return Diagnosis(
        version=__version__,
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        terminal=_terminal(),
        engines=engines,
        state=state,
        agents=len(roster.names()),
        broken_agents=tuple(map(str, roster.problems)),
        settings=tuple(_settings(retinue)),
        problems=problems,
        broken=tuple(_broken(retinue, engines, state, problems)),
    )


def _engines(retinue: Retinue) -> Iterator[EngineFound]:
    is_taken = False
    for kind in retinue.engines.values():
        missing = kind.missing()
        is_chosen = kind.automatic and missing is None and not is_taken
        is_taken = is_taken or is_chosen
        yield EngineFound(kind.name, kind.about, missing, is_chosen)


def _state(folder: Path, sessions: int) -> StateFound:
    size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    return StateFound(str(folder), sessions, size, _unwritable(folder))


def _unwritable(folder: Path) -> str | None:
    """Why nothing can be written into a folder that may not be there yet."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as error:
        return f"{nearest}: {error.strerror}"


def _settings(retinue: Retinue) -> Iterator[SettingFound]:
    found = {surface: retinue.settings(surface).sources for surface in SURFACES}
    for name in KEYS:
        yield SettingFound(
            name,
            {surface: sources[name].value for surface, sources in found.items()},
            {surface: sources[name].source for surface, sources in found.items()},
        )


def _broken(
    retinue: Retinue, engines: tuple[EngineFound, ...], state: StateFound, problems: tuple[Problem, ...]
) -> Iterator[str]:
    if state.fault:
        yield f"Nothing can be remembered: {state.fault}. Make it writable, or set RETINUE_STATE to another folder."
    if not any(engine.is_chosen for engine in engines):
        yield "No engine can be used: see above what each of them lacks."
    if fault := retinue.trust.fault():
        yield f"{fault}. Accept them again with `retinue agents trust NAME`."
    mine = str(config_folder(os.environ))
    for problem in problems:
        # What a project's file may not set is no fault of the user's.
        if problem.source == "environment" or problem.source.startswith(mine):
            yield f"{problem.source}: {problem.message}. Mend it there."


def _terminal() -> dict[str, Any]:
    size = shutil.get_terminal_size()
    return {
        "stdin": _kind(sys.stdin),
        "stdout": _kind(sys.stdout),
        "stderr": _kind(sys.stderr),
        "encoding": getattr(sys.stdout, "encoding", None),
        "term": os.environ.get("TERM"),
        "columns": size.columns,
        "lines": size.lines,
    }


def _kind(stream: Any) -> str:
    if stream is None:
        return "closed"
    return "terminal" if stream.isatty() else "not a terminal"
