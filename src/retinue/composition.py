"""The parts there are, by name: engines and surfaces, each imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from retinue.engines.base import Engine, EngineInfo
from retinue.runtime.orchestrator import Orchestrator
from retinue.toolsets.base import Toolset

if TYPE_CHECKING:
    from retinue.engines.process.supervisor import SharedProcessTable


def available_engines(environ: Mapping[str, str], *, owns_process: bool = False) -> Mapping[str, EngineInfo]:
    """The engines of this installation, in the order `auto` prefers them.

    `owns_process` says that nobody but Retinue starts processes in this one.
    """
    from retinue.engines import offline, script_file, scripted
    from retinue.engines.claude import installation as claude_code
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


def _make_nested_toolset(orchestrator: Orchestrator, _: str) -> Toolset:
    from retinue.toolsets.nested import NestedToolset

    return NestedToolset(orchestrator)


TOOLSETS: Mapping[str, Callable[[Orchestrator, str], Toolset]] = {
    "single": _make_single_toolset,
    "sticky": _make_sticky_toolset,
    "fanout": _make_fanout_toolset,
    "nested": _make_nested_toolset,
}
"""The families of tools."""
