"""The files settings are found in: ours, and those of the systems people already have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from retinue.folders import config_folder, pi_folder, project_levels, user_path
from retinue.regular_files import NotRegular, TooLarge, read_regular
from retinue.remembered import Remembered
from retinue.settings import Layer, Problem, Resolved, environment_layer, resolve

MAX_BYTES = 256 * 1024
"""Of a settings file; ours are a few lines."""

Read = Callable[[bytes], Mapping[str, Any]]
"""The content of a file as the values of a layer; raises ValueError."""
Place = tuple[Path, Read, bool]
"""A file, how it is read, and whether it is a project's."""
Content = tuple[Mapping[str, Any], Problem | None]
"""What a file says, and what was wrong with it."""

_ABSENT: Content = ({}, None)


class SettingsFiles:
    """Settings of a process: read when asked for, and again only when a file has changed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._from_environ = environment_layer(environ)
        self._user = config_folder(environ), pi_folder(environ)
        self._read: dict[Path, tuple[tuple[int, int, int], Content]] = {}
        self._found: dict[tuple[Path, ...], list[Place]] = {}
        self._resolved = Remembered[tuple[str, Path], Resolved]()

    def resolve(self, surface: str, cwd: Path, call: Mapping[str, Any] | None = None) -> Resolved:
        """The settings of a call made in `cwd` on a surface; what came with the call does not change after it."""
        places = self._places(cwd)
        contents = [self._content(path, read) for path, read, _ in places]
        merge = partial(self._merged, surface, call, places, contents)
        return self._resolved.made_of((surface, cwd), (call, places, *contents), merge)

    def _merged(
        self, surface: str, call: Mapping[str, Any] | None, places: list[Place], contents: list[Content]
    ) -> Resolved:
        layers, problems = [Layer(name="call", values=call or {}), self._from_environ], []
        for (path, _, is_project), (values, problem) in zip(places, contents, strict=True):
            if values:
                layers.append(Layer(name=str(path), values=values, is_project=is_project))
            if problem:
                problems.append(problem)
        found = resolve(surface, layers)
        settings = found.settings
        if settings.vault:
            settings = structs.replace(settings, vault=str(user_path(settings.vault, self._environ)))
        return Resolved(settings, found.sources, (*problems, *found.problems))

    def _places(self, cwd: Path) -> list[Place]:
        """The files to look at from a directory. Every call asks, and joining paths costs more than the looks."""
        levels = project_levels(cwd)
        known = self._found.get(levels)
        if known is None:
            known = self._found[levels] = self._joined(levels, *self._user)
        return known

    def _joined(self, levels: Sequence[Path], user: Path, pi: Path) -> list[Place]:
        places: list[Place] = []
        for level in levels:
            places.append((level / ".retinue" / "config.toml", _ours, True))
            places.append((level / ".pi" / "settings.json", _harms_haus, True))
        places.append((user / "config.toml", _ours, False))
        places.append((pi / "settings.json", _harms_haus, False))
        places.append((pi / "extensions" / "devkit-pi" / "config.json", _devkit, False))
        # A working directory of ~ makes a user's file look like a project's: the user's reading wins.
        mine = {path for path, _, is_project in places if not is_project}
        return [place for place in places if not (place[2] and place[0] in mine)]

    def _content(self, path: Path, read: Read) -> Content:
        """What the file says; the same object as long as it does not change."""
        try:
            status = path.stat()
        except OSError:
            return _ABSENT
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._read.get(path)
        if known is None or known[0] != state:
            known = self._read[path] = (state, _read_file(path, read))
        return known[1]


def _read_file(path: Path, read: Read) -> Content:
    try:
        return read(read_regular(path, MAX_BYTES)), None
    except (NotRegular, TooLarge):
        return {}, Problem(str(path), f"not a file of at most {MAX_BYTES // 1024} KiB; ignored")
    except (OSError, ValueError, RecursionError) as error:
        return {}, Problem(str(path), f"could not be read and is ignored: {error}")


def _ours(content: bytes) -> Mapping[str, Any]:
    import tomllib

    return tomllib.loads(content.decode("utf-8-sig"))


def _harms_haus(content: bytes) -> Mapping[str, Any]:
    """Seed 003's settings; they speak of its own surface."""
    match _json(content):
        case {"subagents": dict(found)}:
            names = {
                "maxLinesPerWindow": "max_lines_per_window",
                "extend_timeout_debounce": "extend_timeout_debounce",
                "looping_tool_count": "looping_tool_count",
            }
            return {"fanout": {names[key]: value for key, value in found.items() if key in names}}
    return {}


def _devkit(content: bytes) -> Mapping[str, Any]:
    """Seed 000's settings; milliseconds there are seconds here."""
    match _json(content):
        case {"subagents": dict(found)}:
            pass
        case _:
            return {}
    names = {"enabled": "enabled", "maxDepth": "max_depth", "allowWrite": "allow_write"}
    values = {names[key]: value for key, value in found.items() if key in names}
    for key, name in (("timeoutMs", "timeout"), ("idleTimeoutMs", "idle_timeout")):
        if isinstance(found.get(key), int | float):
            values[name] = found[key] / 1000
    match found.get("retry"):
        case {"enabled": False}:
            values["retry_attempts"] = 1
        case {"maxAttempts": attempts}:
            values["retry_attempts"] = attempts
    if found.get("projectAgentPolicy") == "allow":
        values["project_agents"] = "allow"
    return {"single": values}


def _json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
