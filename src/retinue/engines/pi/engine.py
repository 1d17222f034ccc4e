"""The pi engine: a child `pi` process, warm where it can be (`--mode rpc`), else one per run (`--mode json -p`)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskStatus
from msgspec import structs

from retinue.config.run_environment import build_prompt
from retinue.engines.base import Completion, Emit, engine_error
from retinue.engines.json_lines import LineSplitter
from retinue.engines.pi.confinement import confine_pi
from retinue.engines.pi.events import (
    AgentIdle,
    CommandResponse,
    ExtensionPrompt,
    ExtensionReady,
    PiEventReader,
    PiReporter,
    UserMessageDelivered,
)
from retinue.engines.pi.installation import require_pi
from retinue.engines.pi.launch import PiLaunch, continue_or_set_aside, list_unapplied_preferences, plan_launch
from retinue.engines.pi.pool import PoolLimits, ProcessPool
from retinue.engines.pi.rpc_process import StaleProcessError
from retinue.engines.process.child import ChildExitedError, ChildProcess, open_child
from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.engines.process_reporter import usage_reporter
from retinue.engines.sandbox.report import report_refused_hosts
from retinue.engines.steering import SteeringChannel, SteeringRegistry
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import EngineSessionStarted, Notice
from retinue.model.runs import RunSpec
from retinue.model.tool_names import MCP_PREFIX

NO_DELEGATION = (
    "The agent cannot delegate: pi is older than 0.87, or the agent sets its own pi arguments, so pi accepts no "
    "commands."
)

NO_SERVERS = (
    "The tools of the MCP server {label} are left out: pi is older than 0.87, or the agent sets its own pi "
    "arguments, so pi accepts no commands."
)
NO_GATE = (
    'The PreToolUse hooks of agent "{agent}" cannot be enforced, because pi is older than 0.87, or the agent sets '
    "its own pi arguments, so pi cannot ask before a tool call. No model was called. Use another engine, a newer pi, "
    "or no extraArgs."
)
STEERING_UNSUPPORTED = Failure(
    ErrorCode.UNSUPPORTED,
    "This pi cannot steer a running agent: it is older than 0.87, or the agent sets its own pi arguments. The "
    "message "
    "was not sent, and the run continues. Cancel the run and resume its session with the message.",
    "steer",
)
"""The refusal of a process that reads its task from standard input and nothing after it."""


class PiEngine:
    """An engine that runs specs on the `pi` of their environment."""

    def __init__(self, *, limits: PoolLimits | None = None, supervisor: ProcessSupervisor | None = None) -> None:
        self._limits = limits
        self._supervisor = supervisor or ProcessSupervisor()
        self._pool: ProcessPool | None = None
        self._steering = SteeringRegistry()

    async def run_background(self, *, task_status: TaskStatus[None]) -> None:
        async with self._supervisor:
            self._pool = ProcessPool(self._supervisor, self._limits)
            await self._pool.run_background(task_status=task_status)

    async def steer(self, run: str, text: str) -> Failure | None:
        return await self._steering.send(run, text)

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        with self._steering.register(spec.run) as steering:
            await self._run(spec, emit, steering)

    async def _run(self, spec: RunSpec, emit: Emit, steering: SteeringChannel) -> None:
        installation = require_pi(spec.environment)
        spec, notice = continue_or_set_aside(spec)
        if notice:
            await emit(Notice("native_session", notice))
        start = plan_launch(spec, installation)
        for warning in list_unapplied_preferences(spec, start):
            await emit(warning)
        if spec.agent.extra_args or not installation.supports_rpc:
            if spec.agent.has_call_hooks:
                raise engine_error(NO_GATE.format(agent=spec.agent.name), code=ErrorCode.UNSUPPORTED, reason="hook")
            steering.close(STEERING_UNSUPPORTED)
            await self._run_oneshot(spec, start, emit, settles=installation.settles)
            return
        assert self._pool is not None
        while True:
            try:
                async with self._pool.acquire(start, reuse=spec.allow_process_reuse) as process:
                    await self._warn_without_watchdog(emit)
                    await process.run(spec, start.session, emit, steering)
                    await report_refused_hosts(process.proxy, emit)
            except StaleProcessError:
                continue
            else:
                return

    async def _warn_without_watchdog(self, emit: Emit) -> None:
        if self._supervisor.no_watchdog_reason:
            await emit(Notice("unguarded", self._supervisor.no_watchdog_reason))

    async def _run_oneshot(self, spec: RunSpec, start: PiLaunch, emit: Emit, *, settles: bool) -> None:
        import tempfile

        if spec.callback and spec.delegation:
            await emit(Notice("not_applied", NO_DELEGATION))
        if spec.tool_servers:
            for label in spec.tool_servers.labels:
                message = NO_SERVERS.format(label=label)
                await emit(Notice("not_applied", message, preference=f"{MCP_PREFIX}{label}"))
        with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
            needs = structs.replace(start.needs, read=(*start.needs.read, folder))
            confining = confine_pi(
                structs.replace(start, needs=needs), lambda launch: launch.oneshot_command(spec, Path(folder))
            )
            async with confining as confined:
                try:
                    async with open_child(
                        confined.command, self._supervisor, on_usage=usage_reporter(emit)
                    ) as process:
                        await self._warn_without_watchdog(emit)
                        await run_oneshot(process, build_prompt(spec), start.session, emit, settles=settles)
                finally:
                    if confined.config:
                        await confined.config.collect(start.session)
                await report_refused_hosts(confined.proxy, emit)


EXIT_GRACE = 1.0
"""Seconds a process has to exit once its agent is done."""


async def run_oneshot(
    process: ChildProcess, prompt: str, session: str | None, emit: Emit, *, settles: bool = True
) -> None:
    """Send the prompt and report events until the process exits, or is done and does not exit.

    `settles` is False for versions that do not report when their agent is done.

    Raises:
        EngineError: it printed nothing, or its output ended within a record.
    """
    reporter = PiReporter(process, PiEventReader(), emit)
    await reporter.start()
    with suppress(ChildExitedError):  # its exit code and stderr give the reason
        await process.send(prompt.encode())
    process.close_stdin()
    if session:
        await emit(EngineSessionStarted(session))
    if settles:
        await emit(Completion.PENDING)
    if await _report_until_closed(process, reporter, emit):
        await reporter.finish_after_exit()
    else:
        await reporter.finish()


async def _report_until_closed(process: ChildProcess, reporter: PiReporter, emit: Emit) -> bool:
    """Report events; return whether the process closed its output, as it should."""
    lines, is_idle = LineSplitter(), False
    with anyio.CancelScope() as exit_deadline:
        while True:
            chunk = await reporter.receive()
            for message in reporter.reader.read(lines.feed(chunk) if chunk else lines.flush()):
                if isinstance(message, AgentIdle):
                    process.answered = is_idle = True
                    await emit(Completion.REPORTED)
                    exit_deadline.deadline = anyio.current_time() + EXIT_GRACE
                elif isinstance(message, CommandResponse | UserMessageDelivered | ExtensionPrompt | ExtensionReady):
                    continue
                elif is_idle:
                    reporter.late_messages += 1
                else:
                    await reporter.emit(message)
            await reporter.count(len(chunk))
            if not chunk:
                return True
    return False
