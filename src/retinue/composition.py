"""The engines and toolsets of this installation by name, each imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from retinue.config.settings_files import ForeignSettings, parse_devkit, parse_pi_subagents
from retinue.engines.base import Engine, EngineInfo
from retinue.runtime.delegation import DelegationTools
from retinue.runtime.orchestrator import Orchestrator
from retinue.toolsets.base import Toolset

if TYPE_CHECKING:
    from retinue.engines.process.supervisor import SharedProcessTable


def available_engines(environ: Mapping[str, str], *, owns_process: bool = False) -> Mapping[str, EngineInfo]:
    """The engines of this installation, in the order `auto` prefers them.

    `owns_process` says that nobody but Retinue starts processes in this one.
    """
    from retinue.engines import script_file, scripted
    from retinue.engines.claude import installation as claude_code
    from retinue.engines.offline import engine as offline
    from retinue.engines.pi import installation, providers

    @cache
    def family() -> SharedProcessTable:
        from retinue.engines.process.supervisor import SharedProcessTable

        return SharedProcessTable()

    def pi() -> Engine:
        from retinue.engines.pi.engine import PiEngine

        return PiEngine(owns_process=owns_process, shared_processes=family())

    def claude() -> Engine:
        from retinue.engines.claude.engine import ClaudeEngine

        return ClaudeEngine(owns_process=owns_process, shared_processes=family())

    return {
        "pi": EngineInfo(
            name="pi",
            capabilities=installation.CAPABILITIES,
            make=pi,
            not_installed_reason=lambda: installation.not_installed_reason(environ),
            not_configured_reason=lambda: installation.not_configured_reason(environ),
            provider_variables=lambda models, provider: providers.provider_variables(models, provider, environ),
            summary="the pi coding agent, with your own models, extensions and login",
        ),
        "claude": EngineInfo(
            name="claude",
            capabilities=claude_code.CAPABILITIES,
            make=claude,
            not_installed_reason=lambda: claude_code.not_installed_reason(environ),
            not_installed_reason_with_key=lambda: claude_code.no_program_reason(environ),
            provider_variables=lambda _models, _provider: claude_code.provider_variables(environ),
            api_key_variable="ANTHROPIC_API_KEY",
            setting_sources={"none": (), "user": ("user",), "project": ("project",), "both": ("user", "project")},
            summary="Claude Code, with your own key or login",
        ),
        "offline": EngineInfo(
            name="offline",
            capabilities=offline.CAPABILITIES,
            make=offline.OfflineEngine,
            not_installed_reason=lambda: None,
            uses_models=False,
            summary="rules, not a language model: searches and reads your files, no key, no network",
        ),
        "scripted": EngineInfo(
            name="scripted",
            capabilities=scripted.CAPABILITIES,
            make=lambda: script_file.from_environment(environ),
            not_installed_reason=lambda: None,
            automatic=False,
            summary="plays back a script, for tests and documents",
        ),
    }


def _make_single_toolset(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.toolsets.single import SingleToolset

    return SingleToolset(orchestrator, home)


def _make_sticky_toolset(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.toolsets.sticky import StickyToolset

    return StickyToolset(orchestrator, home)


def _make_fanout_toolset(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.toolsets.fanout.toolset import FanoutToolset

    return FanoutToolset(orchestrator, home)


def _make_nested_toolset(orchestrator: Orchestrator, _home: str) -> Toolset:
    from retinue.toolsets.nested import NestedToolset

    return NestedToolset(orchestrator)


class ToolsetInfo(Struct, frozen=True, kw_only=True):
    """A toolset of this installation, known without importing it."""

    make: Callable[[Orchestrator, str], Toolset]
    """Makes the toolset, given the user's home folder."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The settings whose default differs from the general one."""
    bounded_prompt: bool = False
    resume_as_transcript: bool = False
    """Both as in `CallContext`: the prompt and the way to resume that callers of the toolset expect."""


TOOLSETS: Mapping[str, ToolsetInfo] = {
    "single": ToolsetInfo(
        make=_make_single_toolset,
        defaults={
            "timeout": 900.0,
            "idle_timeout": 180.0,
            "extend_timeout_debounce": 0.0,
            "ceiling_factor": 1.0,
            "max_depth": 1,
            "allow_write": False,
            "retry_attempts": 2,
        },
        bounded_prompt=True,
    ),
    "sticky": ToolsetInfo(make=_make_sticky_toolset, defaults={"extend_timeout_debounce": 0.0, "max_depth": 1}),
    "fanout": ToolsetInfo(make=_make_fanout_toolset, defaults={"timeout": 600.0}, resume_as_transcript=True),
    "nested": ToolsetInfo(make=_make_nested_toolset),
}

TOOLSET_DEFAULTS = {name: info.defaults for name, info in TOOLSETS.items()}

FOREIGN_SETTINGS = (
    ForeignSettings("fanout", "settings.json", parse_pi_subagents, in_projects=True),
    ForeignSettings("single", "extensions/devkit-pi/config.json", parse_devkit),
)
"""Settings files of the pi extensions that the toolsets are compatible with."""

DELEGATION_TOOLS = DelegationTools("nested", ("spawn_subagent", "agent_info"))
