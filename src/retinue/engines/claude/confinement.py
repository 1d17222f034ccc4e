"""A sandboxed Claude Code: a configuration folder of its own, of which a refreshed login and the session come back.

What the agent plants there, such as a hook, is gone with the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from msgspec import structs

from retinue.config.directories import claude_folder, home_folder
from retinue.engines.claude.installation import TRUE
from retinue.engines.claude.launch import list_setting_sources
from retinue.engines.sandbox.access import find_installation
from retinue.engines.sandbox.launch import SandboxNeeds
from retinue.engines.sandbox.private_folder import (
    open_private_folder,
    read_file,
    read_json_object,
    renew_fields,
    write_private_file,
)
from retinue.model.runs import RunSpec
from retinue.model.sandbox import host_of_url

LOGIN_FILE = ".credentials.json"
STATE_FILE = ".claude.json"
LOGIN_KEY = "claudeAiOauth"
REFRESHED_KEYS = ("accessToken", "refreshToken", "expiresAt")
"""The parts of a login that Anthropic renews."""
STATE_KEYS = ("oauthAccount", "userID", "hasCompletedOnboarding", "primaryApiKey", "customApiKeyResponses")
"""The parts of Claude Code's state that belong to the login."""
CODE_SETTINGS = frozenset({"hooks", "enabledPlugins", "extraKnownMarketplaces", "statusLine", "mcpServers"})
"""Settings that start programs of the user, which are out of reach."""
ANTHROPIC_HOSTS = ("api.anthropic.com", "platform.claude.com", "console.anthropic.com")
"""The provider's, and those at which it refreshes a login."""
CLOUD_HOSTS = {
    "CLAUDE_CODE_USE_BEDROCK": ("*.amazonaws.com",),
    "CLAUDE_CODE_USE_FOUNDRY": ("*.services.ai.azure.com", "login.microsoftonline.com"),
    "CLAUDE_CODE_USE_VERTEX": ("*.googleapis.com",),
}
BASE_URL_VARIABLES = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL",
)  # fmt: skip


class PrivateClaudeConfig:
    """The folder of one sandboxed Claude Code, and its way back to the user's files."""

    def __init__(self, folder: Path, source: Path, kept_sessions: Path) -> None:
        self.folder = folder
        self._source = source
        self._kept_sessions = kept_sessions
        """Where the records of sandboxed sessions are kept: the user's own folder has none of them."""
        self._login: dict[str, Any] = {}

    def copy_configuration(self, state: Path, *, with_settings: bool) -> None:
        self._login = read_json_object(read_file(self._source / LOGIN_FILE))
        found = read_json_object(read_file(state))
        kept = {name: found[name] for name in STATE_KEYS if name in found}
        settings = read_json_object(read_file(self._source / "settings.json")) if with_settings else {}
        settings = {name: value for name, value in settings.items() if name not in CODE_SETTINGS}
        for name, value in ((LOGIN_FILE, self._login), (STATE_FILE, kept), ("settings.json", settings)):
            if value:
                write_private_file(self.folder / name, msgspec.json.encode(value))
        if with_settings and (text := read_file(self._source / "CLAUDE.md")):
            write_private_file(self.folder / "CLAUDE.md", text)
        for record in self._kept_sessions.glob("*/*.jsonl"):
            self._copy_record(record, self.folder / "projects")

    def collect(self) -> None:
        """Copy the records of sessions and a refreshed login back."""
        for record in (self.folder / "projects").glob("*/*.jsonl"):
            self._copy_record(record, self._kept_sessions)
        now = read_json_object(read_file(self.folder / LOGIN_FILE))
        renewed = renew_fields(self._login.get(LOGIN_KEY), now.get(LOGIN_KEY), REFRESHED_KEYS)
        theirs = read_json_object(read_file(self._source / LOGIN_FILE))
        # Not over a login that the user changed meanwhile.
        if renewed and theirs == self._login:
            with suppress(OSError):
                write_private_file(self._source / LOGIN_FILE, msgspec.json.encode({**theirs, LOGIN_KEY: renewed}))

    def _copy_record(self, record: Path, folder: Path) -> None:
        content = read_file(record)
        if content is None:
            return
        # Without the record, the stored messages continue the session.
        with suppress(OSError):
            target = folder / record.parent.name
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private_file(target / record.name, content)


@asynccontextmanager
async def confine_claude(spec: RunSpec) -> AsyncIterator[RunSpec]:
    """Provide the spec with the configuration folder of a sandboxed run; the same spec without a sandbox."""
    if not spec.sandbox.is_on:
        yield spec
        return
    source = claude_folder(spec.environment)
    own = spec.environment.get("CLAUDE_CONFIG_DIR")
    state = (source if own else home_folder(spec.environment)) / STATE_FILE
    kept_sessions = Path(spec.native_folder, "sandboxed", spec.session)
    with_settings = "user" in list_setting_sources(spec)

    def make(folder: Path) -> PrivateClaudeConfig:
        config = PrivateClaudeConfig(folder, source, kept_sessions)
        config.copy_configuration(state, with_settings=with_settings)
        return config

    async with open_private_folder(make) as config:
        try:
            yield structs.replace(spec, environment={**spec.environment, "CLAUDE_CONFIG_DIR": str(config.folder)})
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(config.collect)


def list_needs(spec: RunSpec, program: str, folder: str) -> SandboxNeeds:
    """Return what Claude Code needs in a sandbox; `folder` has its prompts."""
    environ = spec.environment
    return SandboxNeeds(
        read=(*find_installation(program, environ.get("PATH", "")), folder),
        write=(environ["CLAUDE_CONFIG_DIR"],) if spec.sandbox.is_on else (),
        hosts=tuple(_list_hosts(environ)),
    )


def _list_hosts(environ: Mapping[str, str]) -> list[str]:
    named = [host for name in BASE_URL_VARIABLES if (host := host_of_url(environ.get(name, "")))]
    clouds = [switch for switch in CLOUD_HOSTS if environ.get(switch, "").strip().lower() in TRUE]
    own = [host for switch in clouds for host in CLOUD_HOSTS[switch]] or list(ANTHROPIC_HOSTS)
    return named or own
