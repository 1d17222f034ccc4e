"""The claude engine: one Claude Code process per run, connected through the Claude Agent SDK."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import anyio
from anyio import CapacityLimiter
from anyio.abc import TaskStatus
from msgspec import structs

from retinue.config.run_environment import build_prompt
from retinue.engines.base import Completion, Emit, EngineError
from retinue.engines.claude import sdk
from retinue.engines.claude.confinement import confine_claude, list_needs
from retinue.engines.claude.installation import require_claude
from retinue.engines.claude.launch import (
    build_command,
    list_allowed_tools,
    list_builtin_tools,
    list_preapproved_tools,
    list_setting_sources,
    list_unapplied_preferences,
)
from retinue.engines.claude.messages import ModelRequestStarted, ResultReceived
from retinue.engines.claude.run import (
    ClaudeRun,
    SessionNotFoundError,
    find_resumable_session,
    new_session_id,
    pointer_path,
    raise_if_session_unknown,
    why_not_resumable,
    write_pointer,
)
from retinue.engines.claude.tools import (
    build_own_toolbox,
    make_server_toolboxes,
    to_mcp_tool_name,
    to_retinue_name,
    tool_aliases,
)
from retinue.engines.claude.wire import ClaudeTransport
from retinue.engines.process.child import ChildProcess, open_child
from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.engines.process_reporter import usage_reporter
from retinue.engines.sandbox.launch import open_sandbox
from retinue.engines.sandbox.report import report_refused_hosts
from retinue.engines.steering import SteeringChannel, SteeringRegistry
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import EngineSessionStarted, Notice
from retinue.model.runs import RunSpec
from retinue.model.tool_names import SPAWN_TOOL
from retinue.support.tasks import BackgroundTasks

MAX_READERS = 4
"""Session directories listed at once, over all runs."""


class ClaudeEngine:
    """An engine that runs specs on the Claude Code of their environment."""

    def __init__(self, *, supervisor: ProcessSupervisor | None = None) -> None:
        self._supervisor = supervisor or ProcessSupervisor()
        self._readers = CapacityLimiter(MAX_READERS)
        self._steering = SteeringRegistry()

    async def run_background(self, *, task_status: TaskStatus[None]) -> None:
        async with self._supervisor:
            task_status.started()
            await anyio.sleep_forever()

    async def steer(self, run: str, text: str) -> Failure | None:
        return await self._steering.send(run, text)

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        with self._steering.register(spec.run) as steering:
            async with confine_claude(spec) as confined:
                await self._run(confined, emit, steering)

    async def _run(self, spec: RunSpec, emit: Emit, steering: SteeringChannel) -> None:
        program = require_claude(spec.environment)
        for warning in list_unapplied_preferences(spec):
            await emit(warning)
        session = find_resumable_session(spec)
        if session:
            try:
                await self._run_session(spec, program, session, emit, steering, resumes=True)
            except SessionNotFoundError:
                pass
            else:
                return
        if spec.native_session:
            await emit(Notice("native_session", why_not_resumable(spec)))
            spec = structs.replace(spec, native_session=None)
        await self._run_session(spec, program, new_session_id(), emit, steering, resumes=False)

    async def _run_session(
        self, spec: RunSpec, program: str, session: str, emit: Emit, steering: SteeringChannel, *, resumes: bool
    ) -> None:
        """Run the spec in a session that is new or resumed.

        Raises:
            EngineError: Claude Code cannot do what the spec asks for, or exited.
            SessionNotFoundError: it does not know the session.
        """
        with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
            start = build_command(spec, program, Path(folder), session=session, resumes=resumes)
            needs = list_needs(spec, program, folder) if spec.sandbox.is_on else None
            async with (
                open_sandbox(start, spec.sandbox, needs) as sandboxed,
                open_child(sandboxed.command, self._supervisor, on_usage=usage_reporter(emit)) as process,
            ):
                if self._supervisor.no_watchdog_reason:
                    await emit(Notice("unguarded", self._supervisor.no_watchdog_reason))
                await sdk.import_sdk()
                await self._run_process(spec, process, emit, steering)
                await report_refused_hosts(sandboxed.proxy, emit)

    async def _run_process(self, spec: RunSpec, process: ChildProcess, emit: Emit, steering: SteeringChannel) -> None:
        wire = ClaudeTransport(process, tool_aliases(to_mcp_tool_name(SPAWN_TOOL)) if spec.delegation else None)
        run = ClaudeRun(process, wire, emit, steering)
        await run.start()
        await emit(Completion.PENDING)
        toolbox = build_own_toolbox(spec, self._readers)
        agents = spec.delegation.list_agents() if spec.delegation else ()
        servers = await make_server_toolboxes(spec.tool_servers) if spec.tool_servers else {}
        allowed = [*list_allowed_tools(spec), *(tool.name for box in servers.values() for tool in box.schemas)]
        async with (
            BackgroundTasks(wire.pump),
            sdk.connect_client(
                wire,
                toolbox,
                allowed,
                agents,
                preapproved=list_preapproved_tools(spec),
                gate=spec.gate,
                servers=servers,
            ) as client,
        ):
            if client:
                await client.query(build_prompt(spec))
            started = await run.wait_started()
            if client and isinstance(started, ModelRequestStarted):
                steering.open(partial(sdk.send_text, client))
                try:
                    await _check_tools(spec, started, emit)
                    await _save_session(spec, started.session, emit)
                    started = await run.wait_ended()
                finally:
                    steering.close()  # before the client is closed, which could not receive anything
            if isinstance(started, ResultReceived):
                raise_if_session_unknown(started)
                await run.finish(started, spec.limits)
            else:
                await run.finish_after_exit()


async def _save_session(spec: RunSpec, session: str, emit: Emit) -> None:
    pointer = pointer_path(spec)
    try:
        write_pointer(pointer, session)
    except OSError as error:
        message = f"Claude Code's own session is not kept: {pointer.parent} cannot be written ({error.strerror})."
        await emit(Notice("not_applied", message))
    else:
        await emit(EngineSessionStarted(str(pointer)))


async def _check_tools(spec: RunSpec, started: ModelRequestStarted, emit: Emit) -> None:
    """Check that this Claude Code has the granted tools.

    Raises:
        EngineError: it lacks one that the agent needs.
    """
    missing = [to_retinue_name(tool) for tool in list_builtin_tools(spec) if tool not in started.tools]
    required = [tool for tool in missing if tool not in spec.agent.tools.optional]
    if required:
        named = f"the tool{'s' * (len(required) > 1)} {', '.join(required)}"
        why = (
            "does not have or its settings deny (claude_settings)" if list_setting_sources(spec) else "does not have"
        )
        raise EngineError(
            Failure(
                ErrorCode.UNSUPPORTED,
                f'Agent "{spec.agent.name}" needs {named}, which this Claude Code {why}. No tool was run. '
                "Choose another engine, or list it under optional_tools.",
                "missing_tool",
                {"agent": spec.agent.name, "tools": ", ".join(required), "engine": "claude"},
            )
        )
    if missing:
        message = f"This Claude Code does not have {', '.join(missing)}, which are optional for the agent."
        await emit(Notice("missing_tools", message))
