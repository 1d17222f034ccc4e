"""The `nested` surface on the real programs: what a front end is told of them, and of what they delegate."""

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
def opened(program: Program, project, tmp_path, vault) -> Retinue:
    """Retinue with a vault, for a conversation of its host."""
    return Retinue(
        cwd=project,
        engine=program.engine,
        agents=[LEAD],
        environ=program.environ,
        state=tmp_path / "state",
        root=ROOT,
        settings={"vault": str(vault), "model": program.model},
    )


def reading(program: Program, project) -> list[Any]:
    return [{"text": "I look.", **program.reads(project / "a.txt")}, {"text": "It is XYZZY."}]


async def test_a_real_program_tells_a_front_end_what_the_seed_promises(opened, program, project, vault):
    async with opened as retinue:
        await check_contract(retinue, vault, "explorer", script64(reading(program, project)))


async def test_a_real_program_that_fails_tells_a_front_end_what_the_seed_promises(opened, vault):
    steps = [{"fail": {"status": 401, "times": -1}}]
    async with opened as retinue:
        await check_contract(retinue, vault, "explorer", script64(steps), fails=True)


async def test_what_a_real_program_delegates_is_told_below_its_call(opened, program, project, vault):
    task = script64(reading(program, project))
    for agent in ("explorer", "lead"):
        asks = {"text": "I ask.", **program.uses(SPAWN, agent=agent, task=task)}
        task = script64([asks, {"text": f"The {agent} says: XYZZY."}])
    async with opened as retinue:
        await check_delegation(retinue, vault, "lead", task, engines=[program.engine] * 3)
