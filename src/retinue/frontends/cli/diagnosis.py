"""What `retinue doctor` finds out: plain values, gathered in one place and told in another."""

from __future__ import annotations

import errno
import os
import platform
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue import __version__
from retinue.app import Retinue
from retinue.folders import config_folder
from retinue.frontends.hosts.checking import HostFound, installations, tried
from retinue.frontends.hosts.places import Machine
from retinue.settings import KEYS, SURFACES, Problem
from retinue.types import Refused

PROBE_BYTES = 64 * 2**10
"""Written to see whether there is room: more than what is left of a full disk's last block."""
AUTO = "auto"
FULL = "Free some space, or set RETINUE_STATE to a folder elsewhere"
OTHERWISE = "Make it writable, or set RETINUE_STATE to another folder"


class EngineFound(Struct, frozen=True, rename="camel"):
    name: str
    about: str
    missing: str | None
    """Why it cannot be used and what to do; None if it can."""
    is_chosen: bool
    """Whether `auto` takes it."""
    is_automatic: bool = True
    """Whether `auto` may take it."""
    uses_models: bool = True


class StateFound(Struct, frozen=True, rename="camel"):
    """The state folder as it is."""

    folder: str
    sessions: int | None
    """How many there are; None if they cannot be read."""
    size_bytes: int
    faults: tuple[str, ...]
    """What is wrong with it, each with what to do."""


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
    processes: str
    """What holds the processes of an agent together."""
    agents: int
    broken_agents: tuple[str, ...]
    hosts: tuple[HostFound, ...]
    """Other programs in which we are installed."""
    settings: tuple[SettingFound, ...]
    problems: tuple[Problem, ...]
    """Of settings: what was not taken as it is written."""
    broken: tuple[str, ...]
    """What needs the user, each in a sentence."""


async def diagnose(retinue: Retinue) -> Diagnosis:
    """Looks at everything, changes nothing; starts what hosts start of us. Retinue need not be open."""
    engines = tuple(engines_found(retinue))
    state = await _state(retinue)
    problems = tuple(dict.fromkeys(problem for name in SURFACES for problem in retinue.settings(name).problems))
    installed = tuple(installations(Machine(os.environ), Path(retinue.cwd)))
    roster, hosts = retinue.roster(), await tried(installed, retinue.cwd)
    return Diagnosis(
        version=__version__,
        python=platform.python_version(),
        platform=platform.platform(terse=True),
        terminal=_terminal(),
        engines=engines,
        state=state,
        processes=retinue.containment[1],
        agents=len(roster.names()),
        broken_agents=tuple(map(str, roster.problems)),
        hosts=hosts,
        settings=tuple(_settings(retinue)),
        problems=problems,
        broken=(
            *_broken(retinue, engines, state, problems),
            *(host.fault for host in hosts if host.fault),
            *without_engine(retinue, engines, hosts),
        ),
    )


def engines_found(retinue: Retinue) -> Iterator[EngineFound]:
    """The engines in the order `auto` prefers them. Starts no process."""
    is_taken = False
    for kind in retinue.engines.values():
        missing = kind.passed_over()
        is_chosen = kind.automatic and missing is None and not is_taken
        is_taken = is_taken or is_chosen
        yield EngineFound(kind.name, kind.about, missing, is_chosen, kind.automatic, kind.uses_models)


# -- where everything is remembered ----------------------------------------------------------------


async def _state(retinue: Retinue) -> StateFound:
    folder, faults = retinue.state, [*_unwritable(retinue.state), *_open_to_others(retinue.state)]
    sessions = None
    try:
        sessions = len(await retinue.sessions())
    except Refused as refusal:
        faults.append(refusal.failure.message)
    return StateFound(str(folder), sessions, _size(folder), tuple(faults))


def _unwritable(folder: Path) -> Iterator[str]:
    """Why nothing can be written into a folder, or to where it will be: found out by writing."""
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - never raises
    try:
        with tempfile.TemporaryFile(dir=nearest, prefix=".doctor-") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        advice = FULL if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} else OTHERWISE
        yield f"Nothing can be remembered: {nearest} cannot be written ({error.strerror}). {advice}."


def _open_to_others(folder: Path) -> Iterator[str]:
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError:
        return
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        remedy = f"chmod go-w {shlex.quote(str(folder))}"
        yield f"Others can change what is remembered in {folder} (mode {mode:o}). Run: {remedy}"


def _size(folder: Path) -> int:
    """Bytes of all its files, as far as they can be seen."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(place, name).lstat().st_size
    return total


# -- settings, and what needs the user -------------------------------------------------------------


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
    yield from state.faults
    if not any(engine.is_chosen for engine in engines):
        yield "No engine can be used: see above what each of them lacks."
    if fault := retinue.trust.fault():
        yield f"{fault}. Accept them again with `retinue agents trust NAME`."
    mine = str(config_folder(os.environ))
    for problem in problems:
        # What a project's file may not set is no fault of the user's.
        if problem.source == "environment" or problem.source.startswith(mine):
            yield f"{problem.source}: {problem.message}. Mend it there."


def without_engine(retinue: Retinue, engines: tuple[EngineFound, ...], hosts: tuple[HostFound, ...]) -> Iterator[str]:
    """Whose calls would all be refused, as what a host's model is answered must come from a model."""
    usual = retinue.settings("single").settings.engine
    titles = dict.fromkeys(host.title for host in hosts if not host.fault and (host.engine or usual) == AUTO)
    if titles and not any(engine.is_chosen and engine.uses_models for engine in engines):
        yield (
            f"Calls from {', '.join(titles)} are refused, as no engine with a language model is ready. "
            "`retinue setup` says what each lacks, and tries it."
        )
    missing = {name: kind.missing() for name, kind in retinue.engines.items()}
    for host in hosts:
        if (name := host.engine or usual) != AUTO and (why := missing.get(name)):
            yield f"Calls from {host.title} are refused, as the engine {name} cannot be used: {why}"


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
