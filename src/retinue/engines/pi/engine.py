"""The pi engine: a child `pi` process, warm where it can be (`--mode rpc`), else one per run (`--mode json -p`)."""

from __future__ import annotations

from pathlib import Path

from anyio.abc import TaskStatus

from retinue.engines.base import Emit
from retinue.engines.child_environment import build_prompt
from retinue.engines.pi.installation import require_pi
from retinue.engines.pi.launch import (
    PiLaunch,
    continue_or_set_aside,
    list_unapplied_preferences,
    plan_launch,
)
from retinue.engines.pi.oneshot import run_oneshot
from retinue.engines.pi.pool import PoolLimits, ProcessPool
from retinue.engines.pi.rpc_process import StaleProcessError
from retinue.engines.process.child import open_child
from retinue.engines.process.supervisor import ProcessSupervisor, SharedProcessTable
from retinue.engines.steering import SteeringChannel, SteeringRegistry
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import Notice
from retinue.model.runs import RunSpec

NO_DELEGATION = (
    "The agent cannot delegate here: its pi is older than 0.87, or is started with arguments of the agent's own, and "
    "takes no commands."
)


STEERING_UNSUPPORTED = Failure(
    ErrorCode.UNSUPPORTED,
    "This pi takes nothing while its agent works: it is older than 0.87, or has arguments of the agent's own. "
    "Nothing was said to it, and it goes on. Stop it, and resume its session with what it should know.",
    "steer",
)
"""The refusal of a process that reads its task from standard input and nothing after it."""


class PiEngine:
    """An engine that runs specs on the `pi` of their environment."""

    def __init__(
        self,
        *,
        owns_process: bool = False,
        limits: PoolLimits | None = None,
        shared_processes: SharedProcessTable | None = None,
    ) -> None:
        self._owns_process = owns_process
        self._shared_processes = shared_processes
        self._limits = limits
        self._supervisor: ProcessSupervisor | None = None
        self._pool: ProcessPool | None = None
        self._steering = SteeringRegistry()

    async def run_background(self, *, task_status: TaskStatus[None]) -> None:
        async with ProcessSupervisor(
            owns_process=self._owns_process, shared=self._shared_processes
        ) as self._supervisor:
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
            await emit(Notice("not_applied", warning))
        if spec.agent.extra_args or not installation.supports_rpc:
            steering.close(STEERING_UNSUPPORTED)
            await self._run_oneshot(spec, start, emit, settles=installation.settles)
            return
        assert self._pool is not None
        while True:
            try:
                async with self._pool.acquire(start, reuse=spec.allow_process_reuse) as process:
                    await self._warn_without_watchdog(emit)
                    await process.run(spec, start.session, emit, steering)
            except StaleProcessError:
                continue
            else:
                return

    async def _warn_without_watchdog(self, emit: Emit) -> None:
        if self._supervisor and self._supervisor.no_watchdog_reason:
            await emit(Notice("unguarded", self._supervisor.no_watchdog_reason))

    async def _run_oneshot(self, spec: RunSpec, start: PiLaunch, emit: Emit, *, settles: bool) -> None:
        import tempfile

        if spec.callback:
            await emit(Notice("not_applied", NO_DELEGATION))
        assert self._supervisor is not None
        with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
            async with open_child(start.oneshot_command(spec, Path(folder)), self._supervisor) as process:
                await self._warn_without_watchdog(emit)
                await run_oneshot(process, build_prompt(spec), start.session, emit, settles=settles)
