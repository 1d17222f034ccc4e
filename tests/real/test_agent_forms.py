"""A sample of the stand-ins for public agent files, run on the real programs."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from tests.support.agent_forms import AgentForm, list_public_forms, write_forms
from tests.support.model_server import script64
from tests.support.repositories import make_repository

from retinue import Retinue
from retinue.agents.registry import DefinitionStatus
from retinue.model.tasks import Task

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(180)]

SEED = 20261120
FILES = {"Claude Code": 4, "Gemini CLI": 2, "GitHub Copilot": 2, "opencode": 2}
"""How many agents of each tool are run; those of Codex may need a sandbox, which has tests of its own."""


def sample_forms() -> list[AgentForm]:
    random, forms = Random(SEED), list_public_forms()
    by_tool = ([form for form in forms if form.tool == tool] for tool in FILES)
    return [form for tool, mine in zip(FILES, by_tool, strict=True) for form in random.sample(mine, FILES[tool])]


async def test_sampled_public_agents_run_with_what_the_program_has(program, tmp_path: Path):
    write_forms(sample_forms(), Path(program.environ["HOME"]))
    repository = make_repository(tmp_path / "work", {"a.txt": "one\n"})
    settings = {"model": program.model, "allow_write": True, "max_concurrency": 2}
    retinue = Retinue(
        cwd=repository, engine=program.engine, environ=program.environ, state=tmp_path / "state", settings=settings
    )
    async with retinue:
        used = [each.agent for each in retinue.roster().list_definitions() if each.status is DefinitionStatus.USED]
        agents = [agent for agent in used if agent.layer == "user"]
        results = await retinue.delegate(
            [Task(agent=agent.name, prompt=script64([{"text": "Done."}])) for agent in agents]
        )
    assert len(agents) == sum(FILES.values())
    assert [(result.failure, result.text) for result in results] == [(None, "Done.")] * len(agents)
