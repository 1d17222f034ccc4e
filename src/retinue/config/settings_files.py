"""Settings files: Retinue's own, and those of the pi extensions that toolsets are compatible with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from retinue.config.directories import config_folder, expand_user_path, find_project_levels, pi_folder
from retinue.config.settings import (
    PROVIDERS_KEY,
    ResolvedSettings,
    SettingProblem,
    SettingsLayer,
    ToolsetDefaults,
    environment_layer,
    parse_providers,
    resolve_settings,
)
from retinue.model.providers import ProviderSettings
from retinue.support.cache import IdentityCache
from retinue.support.safe_files import FileTooLargeError, NotRegularFileError, read_regular_file

MAX_FILE_BYTES = 256 * 1024
"""Largest settings file that is read."""

ParseContent = Callable[[bytes], Mapping[str, Any]]
"""Turns the content of a file into the values of a layer; raises ValueError."""
SettingsLocation = tuple[Path, ParseContent, Path | None]
"""A file, its parser, and the root of the project it belongs to; None for the user's."""
FileContent = tuple[Mapping[str, Any], SettingProblem | None]
"""The values of a file, and the problem that kept it from being read."""


class ForeignSettings(Struct, frozen=True):
    """Settings file of a pi extension, whose values apply to one toolset."""

    toolset: str
    path: str
    """Below pi's folder."""
    parse: ParseContent
    in_projects: bool = False
    """Whether a project may have such a file, too, in its `.pi` folder."""

    def parse_table(self, content: bytes) -> Mapping[str, Any]:
        """Return the values of the file as the table of its toolset; none if it has none."""
        values = self.parse(content)
        return {self.toolset: values} if values else {}


LINKED_OUT = "is a link out of the project and is ignored"
_ABSENT_FILE: FileContent = ({}, None)


class SettingsFiles:
    """Settings of a process: read on demand, and again only when a file has changed."""

    def __init__(
        self, environ: Mapping[str, str], defaults: ToolsetDefaults, foreign: Sequence[ForeignSettings] = ()
    ) -> None:
        self._environ = environ
        self._defaults = defaults
        self._foreign = foreign
        self._environment_layer = environment_layer(environ)
        self._user = config_folder(environ), pi_folder(environ)
        self._contents: dict[Path, tuple[tuple[int, int, int], FileContent]] = {}
        self._linked: dict[Path, FileContent] = {}
        self._locations: dict[tuple[Path, ...], list[SettingsLocation]] = {}
        self._resolved = IdentityCache[tuple[str, Path], ResolvedSettings]()

    def resolve(self, toolset: str, cwd: Path, call: Mapping[str, Any] | None = None) -> ResolvedSettings:
        """Return the settings of a call made in `cwd` with a toolset; `call` must not change later."""
        locations = self._find_locations(cwd)
        contents = [self._load_content(path, read, root) for path, read, root in locations]
        merge = partial(self._merge_layers, toolset, call, locations, contents)
        return self._resolved.get_or_make((toolset, cwd), (call, locations, *contents), merge)

    def user_providers(self) -> Mapping[str, ProviderSettings]:
        """Return the valid providers of the user's own file, by name; `resolve` reports the others as problems."""
        values, _ = self._load_content(self._user[0] / "config.toml", _parse_own)
        return parse_providers(values.get(PROVIDERS_KEY, {}))[0]

    def _merge_layers(
        self,
        toolset: str,
        call: Mapping[str, Any] | None,
        locations: list[SettingsLocation],
        contents: list[FileContent],
    ) -> ResolvedSettings:
        layers, problems = (
            [SettingsLayer(name="call", values=call or {}), self._environment_layer],
            [*self._environment_layer.problems],
        )
        for (path, _, root), (values, problem) in zip(locations, contents, strict=True):
            if values:
                is_user_file = path == self._user[0] / "config.toml"
                layers.append(
                    SettingsLayer(
                        name=str(path), values=values, is_project=root is not None, is_user_file=is_user_file
                    )
                )
            if problem:
                problems.append(problem)
        found = resolve_settings(toolset, layers, self._defaults)
        settings = found.settings
        if settings.vault:
            settings = structs.replace(settings, vault=str(expand_user_path(settings.vault, self._environ)))
        return ResolvedSettings(settings, found.sources, (*problems, *found.problems))

    def _find_locations(self, cwd: Path) -> list[SettingsLocation]:
        """Return the files that apply in a directory. Cached: joining paths costs more than the file checks."""
        levels = find_project_levels(cwd)
        cached = self._locations.get(levels)
        if cached is None:
            cached = self._locations[levels] = self._build_locations(levels, *self._user)
        return cached

    def _build_locations(self, levels: Sequence[Path], user: Path, pi: Path) -> list[SettingsLocation]:
        locations: list[SettingsLocation] = []
        foreign = self._foreign
        for level in levels:
            locations.append((level / ".retinue" / "config.toml", _parse_own, levels[-1]))
            own = (each for each in foreign if each.in_projects)
            locations += [(level / ".pi" / each.path, each.parse_table, levels[-1]) for each in own]
        locations.append((user / "config.toml", _parse_own, None))
        locations += [(pi / each.path, each.parse_table, None) for each in foreign]
        # With the home directory as working directory a user's file is also a project's: it counts as the user's.
        user_files = {path for path, _, root in locations if root is None}
        return [location for location in locations if not (location[2] and location[0] in user_files)]

    def _load_content(self, path: Path, read: ParseContent, root: Path | None = None) -> FileContent:
        """Return the content of the file: the same object as long as the file does not change."""
        try:
            status = path.stat()
        except OSError:
            return _ABSENT_FILE
        if root and _leaves_project(path, root):
            return self._linked.setdefault(path, ({}, SettingProblem(str(path), LINKED_OUT)))
        state = (status.st_mtime_ns, status.st_size, status.st_ino)
        cached = self._contents.get(path)
        if cached is None or cached[0] != state:
            cached = self._contents[path] = (state, _read_file(path, read))
        return cached[1]


def _leaves_project(path: Path, root: Path) -> bool:
    """Return whether a file of a project is elsewhere, because it or a folder above it is a link."""
    real = os.path.realpath(path)
    return real != str(path) and not Path(real).is_relative_to(os.path.realpath(root))


def _read_file(path: Path, read: ParseContent) -> FileContent:
    try:
        return read(read_regular_file(path, MAX_FILE_BYTES)), None
    except (NotRegularFileError, FileTooLargeError):
        return {}, SettingProblem(str(path), f"not a file of at most {MAX_FILE_BYTES // 1024} KiB; ignored")
    except (OSError, ValueError, RecursionError) as error:
        return {}, SettingProblem(str(path), f"could not be read and is ignored: {error}")


def _parse_own(content: bytes) -> Mapping[str, Any]:
    import tomllib

    return tomllib.loads(content.decode("utf-8-sig"))


def parse_pi_subagents(content: bytes) -> Mapping[str, Any]:
    """Return the `subagents` settings of a pi settings file."""
    match _parse_json(content):
        case {"subagents": dict(found)}:
            names = {
                "maxLinesPerWindow": "max_lines_per_window",
                "extend_timeout_debounce": "extend_timeout_debounce",
                "looping_tool_count": "looping_tool_count",
            }
            return {names[key]: value for key, value in found.items() if key in names}
    return {}


def parse_devkit(content: bytes) -> Mapping[str, Any]:
    """Return the settings of the devkit-pi extension, with its milliseconds as seconds."""
    match _parse_json(content):
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
    return values


def _parse_json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
