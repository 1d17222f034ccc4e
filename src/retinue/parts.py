"""The parts there are, by name: engines and surfaces, each imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from retinue.engines.base import Engine, EngineKind
from retinue.orchestrator import Orchestrator
from retinue.surfaces.base import Toolset

if TYPE_CHECKING:
    from retinue.engines.processes.keeper import Family


def engine_kinds(environ: Mapping[str, str], *, owns_process: bool = False) -> Mapping[str, EngineKind]:
    """The engines of this installation, in the order `auto` prefers them.

    `owns_process` says that nobody but Retinue starts processes in this one.
    """
    from retinue.engines import offline, script_file, scripted
    from retinue.engines.claude import installation as claude_code
    from retinue.engines.pi import installation, providers

    @cache
    def family() -> Family:
        from retinue.engines.processes.keeper import Family

        return Family()

    def pi() -> Engine:
        from retinue.engines.pi.engine import PiEngine

        return PiEngine(owns_process=owns_process, family=family())

    def claude() -> Engine:
        from retinue.engines.claude.engine import ClaudeEngine

        return ClaudeEngine(owns_process=owns_process, family=family())

    return {
        "pi": EngineKind(
            name="pi",
            capabilities=installation.CAPABILITIES,
            make=pi,
            missing=lambda: installation.missing(environ),
            unready=lambda: installation.unready(environ),
            provider_variables=lambda models, provider: providers.provider_variables(models, provider, environ),
            about="the pi coding agent, with your own models, extensions and login",
        ),
        "claude": EngineKind(
            name="claude",
            capabilities=claude_code.CAPABILITIES,
            make=claude,
            missing=lambda: claude_code.missing(environ),
            missing_with_key=lambda: claude_code.absent(environ),
            provider_variables=lambda _models, _provider: claude_code.provider_variables(environ),
            about="Claude Code, with your own key or login",
        ),
        "offline": EngineKind(
            name="offline",
            capabilities=offline.CAPABILITIES,
            make=offline.OfflineEngine,
            missing=lambda: None,
            uses_models=False,
            about="rules, not a language model: searches and reads your files, no key, no network",
        ),
        "scripted": EngineKind(
            name="scripted",
            capabilities=scripted.CAPABILITIES,
            make=lambda: script_file.from_environment(environ),
            missing=lambda: None,
            automatic=False,
            about="plays back a script, for tests and documents",
        ),
    }


def _single(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.surfaces.single import Single

    return Single(orchestrator, home)


def _sticky(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.surfaces.sticky import Sticky

    return Sticky(orchestrator, home)


def _fanout(orchestrator: Orchestrator, home: str) -> Toolset:
    from retinue.surfaces.fanout.surface import Fanout

    return Fanout(orchestrator, home)


def _nested(orchestrator: Orchestrator, _: str) -> Toolset:
    from retinue.surfaces.nested.surface import Nested

    return Nested(orchestrator)


SURFACES: Mapping[str, Callable[[Orchestrator, str], Toolset]] = {
    "single": _single,
    "sticky": _sticky,
    "fanout": _fanout,
    "nested": _nested,
}
"""The families of tools."""
