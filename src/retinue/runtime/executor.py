"""Execute a run: the protocol, and execution in this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.abc import TaskGroup

from retinue.engines.base import (
    RESOURCE_ADVICE,
    RUN_NOT_ACTIVE,
    Emit,
    Engine,
    EngineError,
    EngineInfo,
    ManagesProcesses,
    SupportsSteering,
    engine_error,
)
from retinue.model.errors import ErrorCode, Failure
from retinue.model.runs import RunSpec
from retinue.support.tasks import BackgroundTasks


class Executor(Protocol):
    """Executes runs, and passes steering messages to them."""

    async def execute(self, spec: RunSpec, emit: Emit) -> None:
        """Execute the spec with its engine, here or elsewhere; stopped by cancellation only.

        Raises:
            EngineError: the engine could not start or continue, or crashed.
        """

    def prepare(self, engine: str) -> None:
        """Start what takes a while and is needed by a run of this engine, which follows soon."""

    async def steer(self, spec: RunSpec, text: str) -> Failure | None:
        """Send a text to the agent of an active run; return why that failed, or None."""


class LocalExecutor:
    """Executes runs in this process, with engines made on first use."""

    def __init__(self, engine_infos: Mapping[str, EngineInfo]) -> None:
        self._engine_infos = engine_infos
        self._engines: dict[str, Engine] = {}
        self._prepared: set[str] = set()
        self._make_lock = anyio.Lock()
        self._tasks = BackgroundTasks()
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.__aexit__(kind, error, trace)

    def prepare(self, engine: str) -> None:
        if engine not in self._prepared:
            self._prepared.add(engine)
            self._engine_infos[engine].prepare()

    async def execute(self, spec: RunSpec, emit: Emit) -> None:
        try:
            engine = self._engines.get(spec.engine) or await self._make_engine(spec.engine)
            if not spec.sandbox.is_on:
                await engine.run(spec, emit)
                return
            from retinue.engines.sandbox.restoration import guard_project

            async with guard_project(spec, emit):
                await engine.run(spec, emit)
        except EngineError:
            raise
        except (Exception, SystemExit, BaseExceptionGroup) as crash:
            # An engine runs foreign code (models, tools): its crash fails its run, never other runs.
            rest = _find_crash(crash)
            if rest is None:
                raise
            if shortage := _find_shortage(rest):
                message = (
                    f"The {spec.engine} engine could not continue: {shortage} The run's partial output was kept."
                )
                raise engine_error(message, code=ErrorCode.SPAWN_FAILED, reason="spawn_failed") from crash
            message = f"The {spec.engine} engine crashed: {_describe_crash(rest)}. The run's partial output was kept."
            raise engine_error(message, reason="crashed") from crash

    async def steer(self, spec: RunSpec, text: str) -> Failure | None:
        if not self._engine_infos[spec.engine].capabilities.steers:
            return _unsteerable_failure(
                spec, [kind.name for kind in self._engine_infos.values() if kind.capabilities.steers]
            )
        engine = self._engines.get(spec.engine)
        if engine is None or not isinstance(engine, SupportsSteering):
            return RUN_NOT_ACTIVE
        return await engine.steer(spec.run, text)

    async def _make_engine(self, name: str) -> Engine:
        async with self._make_lock:
            if name not in self._engines:
                engine = self._engine_infos[name].make()
                if isinstance(engine, ManagesProcesses):
                    assert self._group is not None
                    await self._group.start(engine.run_background)
                self._engines[name] = engine
        return self._engines[name]


def _unsteerable_failure(spec: RunSpec, others: list[str]) -> Failure:
    return Failure(
        ErrorCode.UNSUPPORTED,
        f"The {spec.engine} engine cannot steer a running agent: the message was not sent, and the run continues. "
        f"Engines that can: {', '.join(others) or '(none)'}. Or cancel the run and resume its session with the "
        "message.",
        "steer",
        {"engine": spec.engine},
    )


def _find_crash(error: BaseException) -> BaseException | None:
    """Return the error of a crash, without cancellations; None if there was nothing else."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    _, rest = error.split(anyio.get_cancelled_exc_class())
    return rest


def _find_shortage(crash: BaseException) -> str | None:
    """Return what this process or machine is short of, and what to do; None if that is not the reason."""
    first = _first_error(crash)
    if not isinstance(first, OSError) or first.errno is None or first.errno not in RESOURCE_ADVICE:
        return None
    return f"{os.strerror(first.errno)} ({errno.errorcode[first.errno]}). {RESOURCE_ADVICE[first.errno]}"


def _first_error(crash: BaseException) -> BaseException:
    while isinstance(crash, BaseExceptionGroup):
        crash = crash.exceptions[0]
    return crash


def _describe_crash(crash: BaseException) -> str:
    crash = _first_error(crash)
    return f"{type(crash).__name__}: {crash}" if str(crash) else type(crash).__name__
