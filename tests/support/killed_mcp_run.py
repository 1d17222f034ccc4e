"""A Retinue whose run has an MCP server: `python -m tests.support.killed_mcp_run FOLDER`. Prints pids, then waits."""
# ruff: noqa: T201

import os
import sys
from pathlib import Path

import anyio
from tests.support.mcp_servers import bad_definition
from tests.support.retinue_factory import stage

from retinue import Agent
from retinue.engines.scripted import HangStep, RunCallback
from retinue.model.runs import RunSpec


async def main(folder: str) -> None:
    agent = Agent(name="worker", mcp_servers={"docs": bad_definition("sleeper")})

    def script(spec: RunSpec):
        async def report() -> None:
            assert spec.tool_servers
            answer = await spec.tool_servers.call("mcp__docs__echo", {})
            print(answer.text.split("\n")[1], flush=True)

        return [RunCallback(report), HangStep()]

    environ = {"PATH": os.environ["PATH"], "HOME": folder}
    settings = {"allow_write": True}
    async with stage(Path(folder), script, agents=[agent], settings=settings, environ=environ) as retinue:
        await retinue.run("worker", "Work.")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
