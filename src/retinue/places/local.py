"""In this process: the engine of the spec is made on first use, called directly, and lives as long as the place."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from retinue.beside import Beside
from retinue.engines.base import (
    NOT_AT_WORK,
    Emit,
    Engine,
    EngineError,
    EngineKind,
    KeepsProcesses,
    Steers,
    engine_error,
)
from retinue.types import Code, Failure, RunSpec


class Local:
    def __init__(self, kinds: Mapping[str, EngineKind]) -> None:
        self._kinds = kinds
        self._engines: dict[str, Engine] = {}
        self._making = anyio.Lock()
        self._beside = Beside()
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = await self._beside.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._beside.__aexit__(kind, error, trace)

    async def carry(self, spec: RunSpec, emit: Emit) -> None:
        try:
            engine = self._engines.get(spec.engine) or await self._made(spec.engine)
            await engine.run(spec, emit)
        except EngineError:
            raise
        except (Exception, SystemExit, BaseExceptionGroup) as crash:
            # An engine runs foreign code (models, tools): its crash fails its run, never the runs beside it.
            rest = _crash(crash)
            if rest is None:
                raise
            message = f"The {spec.engine} engine crashed: {_described(rest)}. What the run had was kept."
            raise engine_error(message, reason="crashed") from crash

    async def steer(self, spec: RunSpec, text: str) -> Failure | None:
        if not self._kinds[spec.engine].capabilities.steers:
            return _unsteerable(spec, [kind.name for kind in self._kinds.values() if kind.capabilities.steers])
        engine = self._engines.get(spec.engine)
        if engine is None or not isinstance(engine, Steers):
            return NOT_AT_WORK
        return await engine.steer(spec.run, text)

    async def _made(self, name: str) -> Engine:
        async with self._making:
            if name not in self._engines:
                engine = self._kinds[name].make()
                if isinstance(engine, KeepsProcesses):
                    assert self._group is not None
                    await self._group.start(engine.keep)
                self._engines[name] = engine
        return self._engines[name]


def _unsteerable(spec: RunSpec, others: list[str]) -> Failure:
    return Failure(
        Code.UNSUPPORTED,
        f"The {spec.engine} engine takes nothing while its agents work: nothing was said to this one, it goes on. "
        f"Engines whose agents can be steered: {', '.join(others) or '(none)'}. Else stop the run, and resume its "
        "session with what it should know.",
        "steer",
        {"engine": spec.engine},
    )


def _crash(error: BaseException) -> BaseException | None:
    """What crashed, cancellation aside; None if nothing did."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    _, rest = error.split(anyio.get_cancelled_exc_class())
    return rest


def _described(crash: BaseException) -> str:
    while isinstance(crash, BaseExceptionGroup):
        crash = crash.exceptions[0]
    return f"{type(crash).__name__}: {crash}" if str(crash) else type(crash).__name__
