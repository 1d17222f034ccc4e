"""Engines of an executor: created once, kept and ended with the executor."""

import anyio
import pytest

from retinue.client import Retinue
from retinue.engines.base import EngineInfo
from retinue.engines.scripted import CAPABILITIES, ScriptedEngine, reply
from retinue.sessions.memory import MemoryStore


class Keeping(ScriptedEngine):
    """An engine with a background task beside its runs."""

    def __init__(self) -> None:
        super().__init__(reply("done"))
        self.life: list[str] = []

    async def run_background(self, *, task_status) -> None:
        self.life.append("began")
        task_status.started()
        try:
            await anyio.sleep_forever()
        finally:
            self.life.append("ended")

    async def run(self, spec, emit) -> None:
        self.life.append("run")
        await super().run(spec, emit)


def keeping(home, engine):
    kind = EngineInfo(
        name="keeping", capabilities=CAPABILITIES, make=lambda: engine, not_installed_reason=lambda: None
    )
    environ = {"HOME": str(home)}
    return Retinue(cwd=home, engine="keeping", engines={"keeping": kind}, store=MemoryStore(), environ=environ)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], indirect=True)
async def test_engine_with_processes_lives_from_its_first_run_until_close(scratch_home):
    engine = Keeping()
    async with keeping(scratch_home, engine) as retinue:
        assert engine.life == []
        await retinue.delegate([("explorer", "a"), ("explorer", "b")])
    assert engine.life == ["began", "run", "run", "ended"]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], indirect=True)
async def test_exception_of_the_block_is_raised_unchanged(scratch_home):
    engine = Keeping()
    with pytest.raises(KeyError, match="mine"):
        async with keeping(scratch_home, engine) as retinue:
            await retinue.run("explorer", "a")
            raise KeyError("mine")
    assert engine.life[-1] == "ended"


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], indirect=True)
async def test_cancelling_the_block_ends_kept_processes(scratch_home):
    engine = Keeping()
    with anyio.move_on_after(60) as scope:
        async with keeping(scratch_home, engine) as retinue:
            await retinue.run("explorer", "a")
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert engine.life[-1] == "ended"
