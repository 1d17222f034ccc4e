"""Plan the sandbox of a run: the strictest of what the user, the caller and the agent ask for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property

import anyio.to_thread
from msgspec import structs

from retinue.config.directories import expand_user_path
from retinue.config.settings import Settings
from retinue.engines.base import EngineInfo
from retinue.model.agents import AgentProfile
from retinue.model.errors import ErrorCode, Failure
from retinue.model.runs import ToolGrant
from retinue.model.sandbox import SandboxMode, SandboxPolicy, strictest_mode

FUNCTIONS_GAP = "functions of the program that are tools run outside the sandbox"


class SandboxPlanner:
    """Plans the sandboxes of runs on this machine."""

    def __init__(self, environ: Mapping[str, str], hidden: tuple[str, ...]) -> None:
        self._environ = environ
        self._folders = hidden
        """Folders of Retinue that no sandboxed run reaches."""

    async def plan(
        self,
        agent: AgentProfile,
        grant: ToolGrant,
        engine: EngineInfo,
        settings: Settings,
        caller: SandboxPolicy,
        *,
        task_mode: SandboxMode | None = None,
        is_accepted: bool = True,
        has_functions: bool = False,
    ) -> SandboxPolicy | Failure:
        """Return the sandbox of a run, or why it cannot be built.

        An agent of a project that nobody accepted gets the strictest one, in which it reads the repository only.
        """
        required = None if is_accepted else SandboxMode.STRICT
        mode = strictest_mode((SandboxMode(settings.sandbox), caller.mode, agent.sandbox, task_mode, required))
        if mode is SandboxMode.OFF:
            return caller
        if not engine.capabilities.confines:
            return _unconfined_failure(agent, engine, mode)
        from retinue.engines.sandbox.mechanisms import choose_mechanism, find_support

        support = await anyio.to_thread.run_sync(find_support, self._environ)
        starts = engine.capabilities.runs_program or bool(engine.capabilities.command_tools.intersection(grant.tools))
        report = choose_mechanism(mode, support, starts_processes=starts)
        if isinstance(report, Failure):
            return report
        if has_functions:
            report = structs.replace(report, gaps=(*report.gaps, FUNCTIONS_GAP))
        return SandboxPolicy(
            report=report,
            bubblewrap=support.bubblewrap,
            read=self._expand(settings.sandbox_read),
            write=self._expand(settings.sandbox_write),
            hosts=settings.sandbox_hosts,
            hidden=self._hidden,
            repository_only=caller.repository_only or not is_accepted,
            writes_cwd=caller.writes_cwd and is_accepted,
        )

    @cached_property
    def _hidden(self) -> tuple[str, ...]:
        from retinue.engines.sandbox.access import list_secrets

        return (*map(os.path.realpath, self._folders), *list_secrets(self._environ))

    def _expand(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(expand_user_path(path, self._environ)) for path in paths)


def bind_to_folder(policy: SandboxPolicy, cwd: str) -> SandboxPolicy:
    """Return the sandbox for one directory, which cannot be replaced by a link to another before the start."""
    return structs.replace(policy, folder=os.path.realpath(cwd))


def _unconfined_failure(agent: AgentProfile, engine: EngineInfo, mode: SandboxMode) -> Failure:
    message = (
        f'The engine "{engine.name}" cannot confine its runs, and the sandbox of agent "{agent.name}" is "{mode}". '
        "Nothing was started. Choose another engine, or lift the restriction."
    )
    return Failure(ErrorCode.UNSUPPORTED, message, "restriction", {"agent": agent.name, "engine": engine.name})
