"""Whether our entries in the configurations of hosts lead to us: what `retinue doctor` looks at."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
from msgspec import Struct, structs

from retinue.frontends.hosts.changes import text_of
from retinue.frontends.hosts.forms import Entry, Unfit
from retinue.frontends.hosts.places import WINDOWS, Machine
from retinue.frontends.hosts.table import HOSTS, Host, own_command
from retinue.frontends.hosts.trying import tools_offered


class HostFound(Struct, frozen=True, rename="camel"):
    """A host in which we are installed."""

    name: str
    title: str
    file: str
    fault: str | None
    """Why it cannot use us and what to do; None if it can."""
    command: tuple[str, ...] = ()
    """What it starts."""
    is_ours: bool = False
    """Whether that is this installation of Retinue."""
    tools: int | None = None
    """How many it was offered when that was started; None if it was not."""

    @property
    def engine(self) -> str | None:
        """The engine that its entry names; None if it leaves that to the settings."""
        for number, word in enumerate(self.command):
            if word == "--engine" and number + 1 < len(self.command):
                return self.command[number + 1]
            if word.startswith("--engine="):
                return word.partition("=")[2]
        return None


def installations(machine: Machine, cwd: Path) -> Iterator[HostFound]:
    """Where we are installed, for the user and for the project. What cannot be read is nobody's fault here."""
    for host in HOSTS.values():
        # Who works at home has a project's files in the same place.
        places = {host.file(machine, project): project for project in (cwd, None)}
        for file, project in places.items():
            with suppress(Unfit):
                entry = host.form.entry(text_of(file) or "")
                if entry is not None:
                    yield _found(host, file, entry, project, machine.platform)


async def tried(found: Sequence[HostFound], cwd: str) -> tuple[HostFound, ...]:
    """The same, each after what it starts was started as it would be, once for all that start the same.

    Only this installation of Retinue is started: a project's file may name anything.
    """
    offered: dict[tuple[str, ...], int | str] = {}

    async def start(host: HostFound) -> None:
        offered[host.command] = await tools_offered(
            host.command, speaks_mcp=HOSTS[host.name].speaks_mcp, cwd=cwd, environ=os.environ
        )

    async with anyio.create_task_group() as group:
        for host in {each.command: each for each in found if each.is_ours and not each.fault}.values():
            group.start_soon(start, host)
    return tuple(_after(host, offered.get(host.command)) for host in found)


def _after(host: HostFound, offered: int | str | None) -> HostFound:
    if host.fault or offered is None:
        return host
    if isinstance(offered, int):
        return structs.replace(host, tools=offered)
    fault = f"{host.title} cannot use what it starts ({shlex.join(host.command)}): {offered.removesuffix('.')}."
    return structs.replace(host, fault=fault)


def _found(host: Host, file: Path, entry: Entry, project: Path | None, platform: str) -> HostFound:
    command, own = command_of(host, entry), own_command()
    return HostFound(
        host.name,
        host.title,
        str(file),
        _fault(host, entry, project, platform),
        command,
        command[: len(own) + 1] == (*own, "mcp" if host.speaks_mcp else "bridge"),
    )


def command_of(host: Host, entry: Entry) -> tuple[str, ...]:
    """What a host starts, word by word."""
    words = _words(entry.get("command"))
    if host.speaks_mcp:
        return (*words, *_words(entry.get("args", [])))
    surface = entry.get("surface")
    chosen = ("--surface", surface) if isinstance(surface, str) else ()
    return (*words, "bridge", *chosen, *_words(entry.get("arguments", [])))


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _fault(host: Host, entry: Entry, project: Path | None, platform: str) -> str | None:
    again = f"Run: retinue install {host.name}{' --project' if project else ''}"
    extension = str(entry.get("extension", ""))
    if extension and not os.path.exists(path_of(extension, platform)):  # noqa: PTH110 - never raises
        return f"{host.title} loads an extension that is not there any more ({extension}). {again}"
    program = next(iter(_words(entry.get("command"))), None)
    if program is None or shutil.which(program) is None:
        return f"{host.title} starts a program that is not there ({program}). {again}"
    if entry.get("enabled") is False:
        return f"{host.title} has us switched off. Set enabled to true in its configuration."
    return None


def path_of(uri: str, platform: str) -> str:
    """The path in a `file:` URI: a drive of Windows stands after a slash there."""
    path = unquote(urlsplit(uri).path)
    return path.removeprefix("/") if platform == WINDOWS and path[2:3] == ":" else path
