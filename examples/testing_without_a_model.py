"""Tests without a model: the scripted engine plays steps, here a provider that fails once."""

import anyio

from retinue import Retinue
from retinue.engines.base import EngineInfo
from retinue.engines.scripted import CAPABILITIES, ScriptedEngine, call, fail, reply

PLAYS = ScriptedEngine.from_scripts(
    [fail("529 overloaded_error")],
    [call("read", path="README.md", returns="# Hello"), reply("The README says hello.")],
)
ENGINE = EngineInfo(name="scripted", capabilities=CAPABILITIES, make=lambda: PLAYS, not_installed_reason=lambda: None)


async def main() -> None:
    async with Retinue(engine="scripted", engines={"scripted": ENGINE}) as retinue:
        result = await retinue.run("explorer", "What does the README say?")
        print(result.text)
        for attempt in result.actual.attempts:
            why = f" failed: {attempt.failure.reason}" if attempt.failure else " answered"
            print(f"attempt {attempt.number} ({attempt.reason}){why}")


anyio.run(main)
