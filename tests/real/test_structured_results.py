"""Results of an output schema: the same on the scripted engine, on api, on both versions of pi and on Claude Code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engines.api.conftest import environment
from tests.real.claude_install import need_claude
from tests.real.programs import Program, claude_program, pi_program, worker
from tests.support.model_server import ModelServer, script64
from tests.support.output_schema import BAD, GOOD, SCHEMA
from tests.support.retinue_factory import scripted

from retinue import Retinue
from retinue.engines.scripted import ScriptedEngine, finalize
from retinue.model.errors import ErrorCode
from retinue.model.results import RunResult

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

FINALIZE = "subagent_finalize"

Finalizations = list[dict[str, Any]]
"""Arguments of the finalize calls that the model makes, in order."""
RunAgent = Callable[[Finalizations], Awaitable[RunResult]]


async def run_scripted(home: Path, finalizations: Finalizations) -> RunResult:
    scripts = [[finalize(each.get("result"), error=each.get("error"))] for each in finalizations]
    engine = ScriptedEngine(ScriptedEngine.from_scripts(*scripts).script_for)
    environ = {"HOME": str(home)}
    async with Retinue(
        cwd=home,
        environ=environ,
        state=home / "state",
        engine="scripted",
        engines=scripted(engine),
        agents=[worker()],
    ) as retinue:
        return await retinue.run("worker", "List the files.", output=SCHEMA)


async def run_program(program: Program, home: Path, finalizations: Finalizations) -> RunResult:
    steps = [
        program.tool_step(FINALIZE, **{"status": "ERROR" if "error" in each else "SUCCESS", **each})
        for each in finalizations
    ]
    settings = {"model": program.model}
    async with Retinue(
        cwd=home,
        environ=program.environ,
        state=home / "state",
        engine=program.engine,
        agents=[worker()],
        settings=settings,
    ) as retinue:
        return await retinue.run("worker", script64(steps), output=SCHEMA)


@pytest.fixture(params=["scripted", "api", "pi_0_87", "pi_1_5", "claude"])
def run_agent(request: pytest.FixtureRequest, server: ModelServer, project: Path, tmp_path: Path) -> RunAgent:
    """Run an agent whose model makes these finalize calls, with an output schema."""
    home = tmp_path / "home"
    if request.param == "scripted":
        return lambda finalizations: run_scripted(project, finalizations)
    if request.param == "api":
        environ = {"HOME": str(home), **environment(server.url)}
        program = Program(
            engine="api", model="openai/scripted-1", environ=environ, agents=home, has_prompt=str.startswith
        )
    elif request.param == "claude":
        need_claude()
        program = claude_program(home, server.url)
    else:
        program = pi_program(request.getfixturevalue(request.param), home, server.url)
    return lambda finalizations: run_program(program, project, finalizations)


async def test_violation_is_corrected_in_the_session_and_the_value_is_structured(run_agent):
    result = await run_agent([{"result": BAD}, {"result": GOOD}])
    assert (result.failure, result.structured) == (None, GOOD)
    assert msgspec.json.decode(result.text) == GOOD


async def test_rejected_arguments_count_as_corrections_and_the_last_payload_is_kept(run_agent):
    result = await run_agent([{"result": BAD}, {"result": {"total": 1}}, {"result": BAD}, {"result": GOOD}])
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.NOT_FINALIZED, "schema")
    assert msgspec.json.decode(str(result.failure.detail["payload"])) == BAD
    assert "path" in str(result.failure.detail["violations"])
    assert result.structured is None


@pytest.mark.parametrize("findings", [{}, {"result": GOOD}, {"result": {"files": "unknown"}}])
async def test_result_beside_an_error_is_optional_and_not_validated(run_agent, findings):
    result = await run_agent([{"error": "No access.", **findings}])
    assert (result.failure, result.structured) == (None, None)
    assert result.finalized is not None
    assert (result.finalized.status, result.finalized.error) == ("ERROR", "No access.")
