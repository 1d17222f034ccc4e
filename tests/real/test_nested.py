"""The `nested` toolset on the real programs: events of their runs and of their delegation."""

from __future__ import annotations

from typing import Any

import pytest
from tests.real.programs import Program
from tests.support.delegation_reports import SPAWN
from tests.support.model_server import script64
from tests.support.nested_contract import ROOT, check_contract, check_delegation

from retinue import Agent, Retinue

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

LEAD = Agent(name="lead", body="You lead.", tools=("read", "Task"))


@pytest.fixture
def vault(tmp_path):
    folder = tmp_path / "vault"
    folder.mkdir()
    return folder


@pytest.fixture
def configured_retinue(program: Program, project, tmp_path, vault) -> Retinue:
    """Retinue with a vault, for one conversation of a host."""
    return Retinue(
        cwd=project,
        engine=program.engine,
        agents=[LEAD],
        environ=program.environ,
        state=tmp_path / "state",
        root=ROOT,
        settings={"vault": str(vault), "model": program.model},
    )


def reading_steps(program: Program, project) -> list[Any]:
    return [{"text": "I look.", **program.read_step(project / "a.txt")}, {"text": "It is XYZZY."}]


async def test_nested_events_of_a_program_match_the_contract(configured_retinue, program, project, vault):
    async with configured_retinue as retinue:
        await check_contract(retinue, vault, "explorer", script64(reading_steps(program, project)))


async def test_nested_events_of_a_failed_program_match_the_contract(configured_retinue, vault):
    steps = [{"fail": {"status": 401, "times": -1}}]
    async with configured_retinue as retinue:
        await check_contract(retinue, vault, "explorer", script64(steps), fails=True)


async def test_delegation_of_a_program_is_reported_below_its_call(configured_retinue, program, project, vault):
    task = script64(reading_steps(program, project))
    for agent in ("explorer", "lead"):
        spawn_step = {"text": "I ask.", **program.tool_step(SPAWN, agent=agent, task=task)}
        task = script64([spawn_step, {"text": f"The {agent} says: XYZZY."}])
    async with configured_retinue as retinue:
        await check_delegation(retinue, vault, "lead", task, engines=[program.engine] * 3)
