"""The pi engine: a child `pi` process, warm where it can be (`--mode rpc`), else one per run (`--mode json -p`)."""

from __future__ import annotations

from pathlib import Path

from anyio.abc import TaskStatus

from retinue.engines.base import Emit
from retinue.engines.child import child
from retinue.engines.pi.conversation import Stale
from retinue.engines.pi.installation import found
from retinue.engines.pi.launch import Launch, launch, unapplied
from retinue.engines.pi.once import follow
from retinue.engines.pi.pool import Bounds, Pool
from retinue.engines.pi.session_file import continue_or_set_aside
from retinue.engines.processes.keeper import Family, Keeper
from retinue.engines.prompt import prompt_of
from retinue.engines.steering import SteeredRuns, Steering
from retinue.events import Notice
from retinue.types import Code, Failure, RunSpec

NO_DELEGATION = (
    "The agent cannot delegate here: its pi is older than 0.87, or is started with arguments of the agent's own, and "
    "takes no commands."
)


ONCE = Failure(
    Code.UNSUPPORTED,
    "This pi takes nothing while its agent works: it is older than 0.87, or has arguments of the agent's own. "
    "Nothing was said to it, and it goes on. Stop it, and resume its session with what it should know.",
    "steer",
)
"""Of a process that is given its task and nothing else."""


class PiEngine:
    """Runs specs on the `pi` of their environment."""

    def __init__(
        self, *, owns_process: bool = False, bounds: Bounds | None = None, family: Family | None = None
    ) -> None:
        self._owns_process = owns_process
        self._family = family
        self._bounds = bounds
        self._keeper: Keeper | None = None
        self._pool: Pool | None = None
        self._steered = SteeredRuns()

    async def keep(self, *, task_status: TaskStatus[None]) -> None:
        async with Keeper(owns_process=self._owns_process, family=self._family) as self._keeper:
            self._pool = Pool(self._keeper, self._bounds)
            await self._pool.keep(task_status=task_status)

    async def steer(self, run: str, text: str) -> Failure | None:
        return await self._steered.tell(run, text)

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        with self._steered.at_work(spec.run) as steering:
            await self._run(spec, emit, steering)

    async def _run(self, spec: RunSpec, emit: Emit, steering: Steering) -> None:
        installation = found(spec.environment)
        spec, notice = continue_or_set_aside(spec)
        if notice:
            await emit(Notice("native_session", notice))
        start = launch(spec, installation)
        for sentence in unapplied(spec, start):
            await emit(Notice("not_applied", sentence))
        if spec.agent.extra_args or not installation.converses:
            steering.end(ONCE)
            await self._once(spec, start, emit, settles=installation.settles)
            return
        assert self._pool is not None
        while True:
            try:
                async with self._pool.lent(start, reuse=spec.warm) as conversation:
                    await self._warn(emit)
                    await conversation.serve(spec, start.session, emit, steering)
            except Stale:
                continue
            else:
                return

    async def _warn(self, emit: Emit) -> None:
        if self._keeper and self._keeper.unguarded:
            await emit(Notice("unguarded", self._keeper.unguarded))

    async def _once(self, spec: RunSpec, start: Launch, emit: Emit, *, settles: bool) -> None:
        import tempfile

        if spec.home:
            await emit(Notice("not_applied", NO_DELEGATION))
        assert self._keeper is not None
        with tempfile.TemporaryDirectory(prefix="retinue-") as folder:
            async with child(start.once(spec, Path(folder)), self._keeper) as process:
                await self._warn(emit)
                await follow(process, prompt_of(spec), start.session, emit, settles=settles)
