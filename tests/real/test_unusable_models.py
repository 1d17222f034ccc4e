"""Agent files whose model cannot be had: the failure names the line and the way out, on every engine with models."""

from __future__ import annotations

import os

import pytest
from tests.real.claude_install import need_claude
from tests.real.programs import Program, claude_program, pi_program
from tests.support.model_server import script64

from retinue import Retinue
from retinue.model.errors import ErrorCode

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(120)]

AGENT = "---\nname: looker\ndescription: Looks.\nmodel: {}\n---\nYou look.\n"
ANSWER = script64([{"text": "Done."}])


@pytest.fixture
def run(project, tmp_path):
    async def run_agent(program, model: str, task: str = ANSWER):
        program.agents.mkdir(parents=True, exist_ok=True)
        file = program.agents / "looker.md"
        file.write_text(AGENT.format(model))
        async with Retinue(
            cwd=project, engine=program.engine, environ=program.environ, state=tmp_path / "state"
        ) as retinue:
            failure = (await retinue.run("looker", task)).failure
        advice = (
            f"The model {model} comes from the `model` line of {file}. Change or remove that line, choose another "
            "model for this run (`--model`), or set up a provider that has it."
        )
        return failure, advice

    return run_agent


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("sonnet", "auth"),
        ("anthropic/claude-sonnet-5-5", "auth"),
        ("no-such-model", "model_unavailable"),
        ("claude-haiku-4-5", "model_unavailable"),
    ],
)
async def test_model_that_pi_cannot_use_is_named_with_its_line(run, pi, server, tmp_path, model, reason):
    failure, advice = await run(pi_program(pi, tmp_path / "home", server.url), model)
    assert (failure.code, failure.reason) == (ErrorCode.PROVIDER, reason)
    assert failure.message.splitlines()[-1] == advice


async def test_model_that_claude_code_cannot_use_is_named_with_its_line(run, server, tmp_path):
    need_claude()
    task = script64([{"fail": {"status": 404, "times": -1, "message": "model: no-such-model"}}])
    failure, advice = await run(claude_program(tmp_path / "home", server.url), "no-such-model", task)
    assert (failure.code, failure.reason) == (ErrorCode.PROVIDER, "model_unavailable")
    assert failure.message.splitlines()[-1] == advice


@pytest.mark.parametrize(
    ("model", "reason"), [("anthropic/claude-sonnet-5-5", "no_key"), ("opneai/gpt-5", "unknown_provider")]
)
async def test_model_without_a_provider_key_is_named_with_its_line(run, tmp_path, model, reason):
    home = tmp_path / "home"
    environ = {"HOME": str(home), "PATH": os.defpath, "OPENAI_API_KEY": "sk-unused"}
    agents = home / ".config" / "retinue" / "agents"
    has_prompt = str.startswith
    program = Program(engine="api", model=model, environ=environ, agents=agents, has_prompt=has_prompt)
    failure, advice = await run(program, model)
    assert (failure.code, failure.reason) == (ErrorCode.SPAWN_FAILED, reason)
    assert failure.message.splitlines()[-1] == advice
