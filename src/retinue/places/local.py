"""In this process: the engine of the spec is made on first use and called directly."""

from __future__ import annotations

from collections.abc import Mapping

from retinue.engines.base import Emit, Engine, EngineError, EngineKind, engine_error
from retinue.types import RunSpec


class Local:
    def __init__(self, kinds: Mapping[str, EngineKind]) -> None:
        self._kinds = kinds
        self._engines: dict[str, Engine] = {}

    async def carry(self, spec: RunSpec, emit: Emit) -> None:
        engine = self._engine(spec.engine)
        try:
            await engine.run(spec, emit)
        except EngineError:
            raise
        except (Exception, SystemExit) as crash:
            # An engine runs foreign code (models, tools): its crash fails its run, never the runs beside it.
            message = f"The {spec.engine} engine crashed: {_described(crash)}. What the run had was kept."
            raise engine_error(message, reason="crashed") from crash

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            self._engines[name] = self._kinds[name].make()
        return self._engines[name]


def _described(crash: BaseException) -> str:
    while isinstance(crash, BaseExceptionGroup):
        crash = crash.exceptions[0]
    return f"{type(crash).__name__}: {crash}" if str(crash) else type(crash).__name__
