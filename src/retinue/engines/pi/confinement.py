"""Start a pi in the sandbox of its run, with a configuration of its own.

The configuration is a folder of which only a refreshed login and the session come back.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct, structs

from retinue.config.directories import pi_folder
from retinue.engines.pi.launch import PiLaunch
from retinue.engines.pi.providers import read_object
from retinue.engines.process.command import ChildCommand
from retinue.engines.sandbox.launch import open_sandbox
from retinue.engines.sandbox.private_folder import (
    open_private_folder,
    read_file,
    read_json_object,
    renew_fields,
    write_private_file,
)
from retinue.engines.sandbox.proxy import SandboxProxy


class ConfinedPi(Struct, frozen=True):
    """A pi to start, and what belongs to its sandbox."""

    command: ChildCommand
    session: str | None
    """The file of its session, as pi sees it."""
    config: PrivatePiConfig | None = None
    """None without a sandbox."""
    proxy: SandboxProxy | None = None


@asynccontextmanager
async def confine_pi(launch: PiLaunch, build: Callable[[PiLaunch], ChildCommand]) -> AsyncIterator[ConfinedPi]:
    """Provide the command that starts pi as the sandbox of the launch wants it.

    Raises:
        EngineError: the sandbox cannot be built (`unsupported`).
    """
    if not launch.sandbox.is_on:
        yield ConfinedPi(build(launch), launch.session)
        return
    async with open_private_config(launch.environ, launch.providers) as config:
        session = await config.import_session(launch.session)
        # Of a cache in its own temporary folder nothing would be left for the next start.
        cache = {"NODE_COMPILE_CACHE": launch.compile_cache} if launch.compile_cache else {}
        environ = {**launch.environ, **cache, "PI_CODING_AGENT_DIR": str(config.folder)}
        command = build(structs.replace(launch, session=session, environ=environ))
        needs = structs.replace(launch.needs, write=(str(config.folder),))
        async with open_sandbox(command, launch.sandbox, needs) as sandboxed:
            yield ConfinedPi(sandboxed.command, session, config, sandboxed.proxy)


# -- the private configuration ------------------------------------------------------------------------


LOGIN_FILE = "auth.json"
SETTINGS_FILE = "settings.json"
MODELS_FILE = "models.json"
CODE_SETTINGS = frozenset({"packages", "extensions", "skills", "prompts", "themes", "sessionDir"})
"""Settings that name files of the user, which are out of reach."""
REFRESHED_KEYS = ("access", "refresh", "expires")
"""The parts of a login that a provider renews."""


class PrivatePiConfig:
    """The folder of one sandboxed pi, and its way back to the user's files."""

    def __init__(self, folder: Path, source: Path, providers: Collection[str]) -> None:
        self.folder = folder
        self._source = source
        self._sessions = folder / "sessions"
        self._sessions.mkdir(mode=0o700)
        self._login = self._copy_configuration(providers)
        """The logins as pi got them."""

    def _copy_configuration(self, providers: Collection[str]) -> dict[str, Any]:
        """Copy settings, models and the logins of these providers, of all if none is named; return the logins."""
        settings = read_object(self._source / SETTINGS_FILE)
        models = read_object(self._source / MODELS_FILE)
        logins = read_object(self._source / LOGIN_FILE)
        kept = {name: login for name, login in logins.items() if not providers or name.lower() in providers}
        kept_settings = {name: value for name, value in settings.items() if name not in CODE_SETTINGS}
        for name, value in ((SETTINGS_FILE, kept_settings), (MODELS_FILE, models), (LOGIN_FILE, kept)):
            if value:
                write_private_file(self.folder / name, msgspec.json.encode(value))
        return kept

    async def import_session(self, session: str | None) -> str | None:
        """Return the path inside of a session file, with its content so far."""
        if session is None:
            return None
        path = self._sessions / Path(session).name
        if os.access(session, os.F_OK):  # a new session has no file yet
            await anyio.to_thread.run_sync(_copy_file, Path(session), path)
        return str(path)

    async def collect(self, session: str | None) -> None:
        """Copy the session file and refreshed logins back, even if the run was cancelled."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._collect, session)

    def _collect(self, session: str | None) -> None:
        if session is not None:
            inside = self._sessions / Path(session).name
            content = read_file(inside)
            if content is not None:
                # Without the file, the stored messages continue the session.
                with suppress(OSError):
                    write_private_file(Path(session), content)
                inside.unlink(missing_ok=True)
        self._collect_logins()

    def _collect_logins(self) -> None:
        """Write refreshed tokens of logins into the user's file, unless the user changed it meanwhile."""
        if not self._login:
            return
        now = read_json_object(read_file(self.folder / LOGIN_FILE))
        refreshed = {name: new for name, old in self._login.items() if (new := _refresh(old, now.get(name)))}
        if not refreshed:
            return
        theirs = read_object(self._source / LOGIN_FILE)
        changed = {name: new for name, new in refreshed.items() if theirs.get(name) == self._login[name]}
        self._login |= refreshed
        if changed:
            # Where the file cannot be written, pi refreshes the login again.
            with suppress(OSError):
                write_private_file((self._source / LOGIN_FILE).resolve(), msgspec.json.encode({**theirs, **changed}))


def _copy_file(source: Path, target: Path) -> None:
    if (content := read_file(source)) is not None:
        write_private_file(target, content)


def _refresh(old: Any, new: Any) -> dict[str, Any] | None:
    """Return a login with renewed tokens; None if nothing was renewed. Keys are never taken back."""
    is_login = isinstance(old, dict) and old.get("type") == "oauth"
    return renew_fields(old, new, REFRESHED_KEYS) if is_login else None


@asynccontextmanager
async def open_private_config(
    environ: Mapping[str, str], providers: Collection[str]
) -> AsyncIterator[PrivatePiConfig]:
    """Provide the configuration of a sandboxed pi; it is removed after the block."""
    source = pi_folder(environ)
    async with open_private_folder(lambda folder: PrivatePiConfig(folder, source, providers)) as config:
        yield config
