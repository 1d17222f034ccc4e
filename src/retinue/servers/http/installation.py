"""What the API answers of agents, engines, settings, and of the server itself."""

from __future__ import annotations

from typing import Any, Literal

from retinue.servers.http.schemas import ApiValue


class AgentLocation(ApiValue, frozen=True, kw_only=True, rename="camel"):
    layer: str
    file: str | None


class AgentRow(ApiValue, frozen=True, kw_only=True, rename="camel"):
    """An agent as others may see it: no persona, no memory, no key."""

    name: str
    description: str
    layer: str
    file: str | None
    model: str | None
    engine: str | None
    provider: str | None
    tools: tuple[str, ...] | None
    """Null: it inherits its caller's."""
    denied_tools: tuple[str, ...]
    readonly: bool
    delegates: bool
    trust: Literal["trusted", "untrusted", "changed", "not needed"]
    enabled: bool
    skills: tuple[str, ...]
    timeout: float | None
    shadowed: tuple[AgentLocation, ...]
    """Weaker definitions of the same name."""
    problems: tuple[str, ...]
    runnable: bool
    why: str | None
    """Why it is not."""


class AgentDetail(AgentRow, frozen=True, kw_only=True, rename="camel"):
    body: str
    fallback_models: tuple[str, ...]
    extensions: tuple[str, ...]
    extra_args: tuple[str, ...]
    environment: tuple[str, ...]
    """Names of variables it asks to see."""
    digest: str


class FileProblem(ApiValue, frozen=True, kw_only=True, rename="camel"):
    file: str
    message: str


class AgentList(ApiValue, frozen=True, kw_only=True, rename="camel"):
    agents: tuple[AgentRow, ...]
    problems: tuple[FileProblem, ...]
    cwd: str


class EngineRow(ApiValue, frozen=True, kw_only=True, rename="camel"):
    name: str
    about: str
    available: bool
    why: str | None
    """Why it cannot be used, or why `auto` passes it over."""
    automatic: bool
    steers: bool
    resumes: bool
    nests: bool


class EngineList(ApiValue, frozen=True, kw_only=True, rename="camel"):
    engines: tuple[EngineRow, ...]
    auto: str | None
    """What `auto` means here; null if none can be used."""


class SettingRow(ApiValue, frozen=True, kw_only=True, rename="camel"):
    name: str
    value: Any
    source: str
    default: Any
    note: str


class ToolsetSettings(ApiValue, frozen=True, kw_only=True, rename="camel"):
    surface: str
    settings: tuple[SettingRow, ...]
    problems: tuple[FileProblem, ...]


# -- the server itself -----------------------------------------------------------------------------


class StreamCursor(ApiValue, frozen=True, kw_only=True, rename="camel"):
    cursor: str


class HealthStatus(ApiValue, frozen=True, kw_only=True, rename="camel"):
    status: Literal["ok"]
    version: str
    pid: int
    started: float
    state: str
    """The folder where everything is remembered."""
    cwd: str
    live: int
    watchers: int
    stream: StreamCursor


class LoginResponse(ApiValue, frozen=True, kw_only=True, rename="camel"):
    ok: Literal[True] = True


class LoginLink(ApiValue, frozen=True, kw_only=True, rename="camel"):
    link: str
    """Opens the dashboard once."""
