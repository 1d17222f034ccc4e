"""Whether our entries in the configurations of hosts lead to us: what `retinue doctor` looks at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from retinue.frontends.hosts.changes import text_of
from retinue.frontends.hosts.forms import Entry, Unfit
from retinue.frontends.hosts.places import WINDOWS, Machine
from retinue.frontends.hosts.table import HOSTS, Host


class HostFound(Struct, frozen=True, rename="camel"):
    """A host in which we are installed."""

    name: str
    title: str
    file: str
    fault: str | None
    """Why it cannot use us and what to do; None if it can."""


def installations(machine: Machine, cwd: Path) -> Iterator[HostFound]:
    """Where we are installed, for the user and for the project. What cannot be read is nobody's fault here."""
    for host in HOSTS.values():
        # Who works at home has a project's files in the same place.
        places = {host.file(machine, project): project for project in (cwd, None)}
        for file, project in places.items():
            with suppress(Unfit):
                entry = host.form.entry(text_of(file) or "")
                if entry is not None:
                    yield HostFound(host.name, host.title, str(file), _fault(host, entry, project, machine.platform))


def _fault(host: Host, entry: Entry, project: Path | None, platform: str) -> str | None:
    again = f"Run: retinue install {host.name}{' --project' if project else ''}"
    extension = str(entry.get("extension", ""))
    if extension and not os.path.exists(path_of(extension, platform)):  # noqa: PTH110 - never raises
        return f"{host.title} loads an extension that is not there any more ({extension}). {again}"
    command = entry.get("command")
    program = command[0] if isinstance(command, list) and command else command
    if not isinstance(program, str) or shutil.which(program) is None:
        return f"{host.title} starts a program that is not there ({program}). {again}"
    if entry.get("enabled") is False:
        return f"{host.title} has us switched off. Set enabled to true in its configuration."
    return None


def path_of(uri: str, platform: str) -> str:
    """The path in a `file:` URI: a drive of Windows stands after a slash there."""
    path = unquote(urlsplit(uri).path)
    return path.removeprefix("/") if platform == WINDOWS and path[2:3] == ":" else path
