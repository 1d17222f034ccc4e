"""Child runs that agents start themselves: the same events from every engine, at every depth, and in the vault's log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engines.api.conftest import MODELS as API_MODELS
from tests.engines.api.conftest import environment as api_environment
from tests.support import claude_setup as claude_stage
from tests.support import fake_pi
from tests.support import pi_setup as pi_stage
from tests.support.model_server import ModelServer, script64
from tests.support.nested_contract import ROOT, SPAWN, check_delegation
from tests.support.retinue_factory import scripted

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import Script, ScriptedEngine, reply, spawn
from retinue.model.runs import RunSpec

LEAD = Agent(name="lead", body="You lead.", tools=("read", "grep", "find", "ls", "subagent"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the store is in files


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


@pytest.fixture
def check(workplace, scratch_home, tmp_path, vault):
    """Return a check of a run whose child run has a child run of its own."""

    async def check_engine(engine: str, task: str, **options: Any) -> None:
        options.setdefault("environ", {"HOME": str(scratch_home)})
        retinue = Retinue(
            cwd=workplace,
            engine=engine,
            agents=[LEAD],
            state=tmp_path / "state",
            root=ROOT,
            settings={"vault": str(vault), **options.pop("settings", {})},
            **options,
        )
        async with retinue:
            await check_delegation(retinue, vault, "lead", task, engines=[engine] * 3)

    return check_engine


async def test_child_runs_of_the_scripted_engine_are_reported_below_their_call(check):
    def steps(spec: RunSpec) -> Script:
        agent, _, task = spec.task.partition(": ")
        return (spawn(agent, task), reply("They did.")) if task else (reply("I did."),)

    await check("scripted", "lead: explorer: do", engines=scripted(ScriptedEngine(steps)))


async def test_child_runs_of_the_offline_engine_are_reported_below_their_call(check, workplace):
    (workplace / "kettle.py").write_text('"""Boils water."""\n\n\ndef boil(water):\n    return water\n')
    await check("offline", "ask lead:\n    ask explorer: Where is water boiled?")


@pytest.mark.parametrize("api", API_MODELS)
async def test_child_runs_of_the_api_engine_are_reported_below_their_call(check, scratch_home, api):
    task = script64([{"text": "I did."}])
    for agent in ("explorer", "lead"):
        asks = {"text": "I ask.", "tool": SPAWN, "args": {"agent": agent, "task": task}}
        task = script64([asks, {"text": f"The {agent} did."}])
    async with ModelServer() as server:
        environ = {"HOME": str(scratch_home), **api_environment(server.url)}
        await check("api", task, environ=environ, settings={"model": API_MODELS[api]})


@pytest.mark.process
async def test_child_runs_of_the_pi_engine_are_reported_below_their_call(check, scratch_home):
    task = fake_pi.encode_script(fake_pi.action("say", "I did."))
    for agent in ("explorer", "lead"):
        asks = fake_pi.action("delegate", SPAWN, {"agent": agent, "task": task})
        task = fake_pi.encode_script(asks, fake_pi.action("say", f"The {agent} did."))
    fake_pi.install_fake_pi(scratch_home / "bin")
    await check("pi", task, environ=pi_stage.environment(scratch_home))


@pytest.mark.process
@pytest.mark.parametrize("tool", [f"mcp__retinue__{SPAWN}", "Agent"])
async def test_child_runs_of_the_claude_engine_are_reported_below_their_call(check, scratch_home, tool):
    task = claude_stage.deeds({"say": "I did."})
    for agent in ("explorer", "lead"):
        given = {"subagent_type": agent, "prompt": task, "description": "d"}
        ours = {"agent": agent, "task": task}
        asks = {"delegate": given if tool == "Agent" else ours, "by": tool}
        task = claude_stage.deeds(asks, {"say": f"The {agent} did."})
    await check("claude", task, environ=claude_stage.environment(scratch_home))
