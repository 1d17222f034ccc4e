"""The environment each host gives the servers it starts, and the names of variables in its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from retinue.config.run_environment import FOLDER_VARIABLES, NETWORK_VARIABLES
from retinue.engines.base import EngineInfo
from retinue.hosts.config_editors import ConfigEntry
from retinue.support.own_process import drop_placeholders

_OWN_PREFIX = "RETINUE_"
_OF_ONE_PROCESS = frozenset({"RETINUE_AGENT_API_KEY", "RETINUE_AUTHORITY", "RETINUE_CHILD", "RETINUE_INSTANCE"})
"""Variables that mark one process and its children."""
_ALWAYS = FOLDER_VARIABLES | {"PI_CODING_AGENT_DIR"}


def list_needed_variables(
    environ: Mapping[str, str], engines: Iterable[EngineInfo], model: str | None = None
) -> tuple[str, ...]:
    """Return the names of the variables that are set and that a server needs to work as this process does.

    These are our own, those of folders, proxies and certificates, and those of the engines that can be used here.
    `model` is the user's setting.
    """
    needed: set[str] = set(_ALWAYS)
    for engine in engines:
        if engine.automatic and engine.uses_models and engine.unavailable_reason() is None:
            needed |= engine.capabilities.environment | engine.configured_variables()
            needed |= engine.provider_variables((model,), None)
    prefixes = (_OWN_PREFIX, *(name[:-1] for name in needed if name.endswith("*")))
    return tuple(
        name
        for name, value in sorted(drop_placeholders(environ).items())
        if value
        and (name in needed or name.upper() in NETWORK_VARIABLES or name.startswith(prefixes))
        and name not in _OF_ONE_PROCESS
    )


class EnvironmentRules(Protocol):
    def name_variables(self, entry: ConfigEntry, names: Sequence[str]) -> ConfigEntry:
        """Return the entry with what makes the host pass these variables; their values are not written."""

    def build_environment(self, environ: Mapping[str, str], entry: ConfigEntry) -> dict[str, str]:
        """Return the environment of the server, if this is the environment of the host."""


class PassesAll:
    """The host passes its whole environment, and what stands under a key of the entry."""

    def __init__(self, key: str = "env") -> None:
        self._key = key

    def name_variables(self, entry: ConfigEntry, names: Sequence[str]) -> ConfigEntry:
        return entry

    def build_environment(self, environ: Mapping[str, str], entry: ConfigEntry) -> dict[str, str]:
        return {**environ, **_expand_values(entry.get(self._key), environ)}


class PassesNamed:
    """Codex passes a few variables and those whose names the entry lists."""

    _PASSED = frozenset({
        "HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
        "__CF_USER_TEXT_ENCODING",
        "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROGRAMDATA", "PROGRAMFILES",
        "PROGRAMFILES(X86)", "PROGRAMW6432", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERDOMAIN", "USERNAME",
        "USERPROFILE",
    })  # fmt: skip

    def name_variables(self, entry: ConfigEntry, names: Sequence[str]) -> ConfigEntry:
        return {**entry, "env_vars": list(names)} if names else entry

    def build_environment(self, environ: Mapping[str, str], entry: ConfigEntry) -> dict[str, str]:
        listed = entry.get("env_vars")
        named = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
        passed = {name: value for name, value in environ.items() if name.upper() in self._PASSED or name in named}
        return {**passed, **_read_values(entry.get("env"))}


class PassesInnocuous:
    """Gemini CLI passes what does not look like a secret, and what stands under `env`, where `$NAME` is a value."""

    _PASSED = frozenset({
        "COLORTERM", "COMSPEC", "HOME", "LANG", "LOGNAME", "PATH", "PATHEXT", "SHELL", "SYSTEMDRIVE", "SYSTEMROOT",
        "TEMP", "TERM", "TMP", "TMPDIR", "USER", "USERPROFILE", "WINDIR",
    })  # fmt: skip
    _REMOVED = frozenset({
        "AWS_DEFAULT_REGION", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "CLIENT_ID", "CONNECTION_STRING", "DATABASE_URL",
        "DB_URI", "FIREBASE_PROJECT_ID", "GOOGLE_CLOUD_ACCOUNT", "GOOGLE_CLOUD_PROJECT", "SLACK_WEBHOOK_URL",
        "TWILIO_ACCOUNT_SID",
    })  # fmt: skip
    _SECRET_NAME = re.compile("TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|CREDENTIAL|CREDS|PRIVATE|CERT", re.IGNORECASE)
    _SECRET_VALUE = re.compile(r"(?:https?|ftp|smtp)://[^:\s]+:[^@\s]+@|-----BEGIN ", re.IGNORECASE)

    def name_variables(self, entry: ConfigEntry, names: Sequence[str]) -> ConfigEntry:
        return {**entry, "env": {name: f"${name}" for name in names}} if names else entry

    def build_environment(self, environ: Mapping[str, str], entry: ConfigEntry) -> dict[str, str]:
        passed = {name: value for name, value in environ.items() if self._is_passed(name, value)}
        return {**passed, **_expand_values(entry.get("env"), environ)}

    def _is_passed(self, name: str, value: str) -> bool:
        if name.startswith("GEMINI_CLI_"):
            return True
        if self._SECRET_VALUE.search(value):
            return False
        return name.upper() in self._PASSED or not (name in self._REMOVED or self._SECRET_NAME.search(name))


_REFERENCE = re.compile(r"\$(?:(\w+)|\{(?:env:)?(\w+)(?::-([^}]*))?\})")


def _read_values(value: Any) -> dict[str, str]:
    """Return the variables with their values in an entry, whatever else it contains."""
    return {name: str(each) for name, each in value.items()} if isinstance(value, dict) else {}


def _expand_values(value: Any, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables in an entry, with references to variables that are set replaced."""

    def replace(found: re.Match[str]) -> str:
        known = environ.get(found[1] or found[2])
        return known if known is not None else found[3] if found[3] is not None else found[0]

    return {name: _REFERENCE.sub(replace, each) for name, each in _read_values(value).items()}
