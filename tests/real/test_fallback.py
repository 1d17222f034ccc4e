"""Model fallback on the real programs: the reason is reported, and a prompt that is too long does not fall back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.real.programs import Program, Step, run_recorded, worker
from tests.support.model_server import ModelServer

from retinue import Retinue
from retinue.model.events import AttemptStarted, ModelChanged

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

MODELS = {
    "pi": ("local/scripted-1", "local/scripted-responses", "local/scripted-messages"),
    "claude": ("scripted-1", "scripted-2", "scripted-3"),
}
NO_KEY: Step = {"fail": {"status": 401, "times": -1, "message": "invalid x-api-key"}}
NO_MODEL: Step = {"fail": {"status": 404, "times": -1, "message": "model: not found"}}
TOO_LONG: Step = {
    "fail": {"status": 400, "times": -1, "message": "prompt is too long: 300000 tokens > 200000 maximum"}
}


@pytest.fixture
def models(program: Program) -> tuple[str, ...]:
    return MODELS[program.engine]


@pytest.fixture
def configured_retinue(program: Program, models, project, tmp_path) -> Retinue:
    """Retinue with a worker on the first model, with the others as fallbacks."""
    wants = worker(model=models[0], fallback_models=models[1:])
    settings = {"allow_write": True, "retry_attempts": 1}
    return Retinue(
        cwd=project,
        engine=program.engine,
        agents=[wants],
        environ=program.environ,
        state=tmp_path / "state",
        settings=settings,
    )


@pytest.fixture
def script_models(server: ModelServer) -> Callable[[Mapping[str, Any]], None]:
    """Set the step that each model plays for every request: `script_models({model: step})`."""

    def set_steps(steps: Mapping[str, Any]) -> None:
        server.script = lambda request: steps[next(name for name in steps if name.endswith(request.model))]

    return set_steps


async def test_failed_models_fall_back_in_order_with_their_reasons(configured_retinue, models, script_models):
    script_models(dict(zip(models, (NO_KEY, NO_MODEL, {"text": "An answer."}), strict=True)))
    async with configured_retinue as retinue:
        result, events = await run_recorded(retinue, lambda: retinue.run("worker", "Answer."))
    first, second, third = models
    assert (result.failure, result.text) == (None, "An answer.")
    assert (result.actual.declared_model, result.actual.model) == (first, third)
    tried = [(one.reason, one.model, one.failure and one.failure.reason) for one in result.actual.attempts]
    assert tried == [("first", first, "auth"), ("fallback", second, "model_unavailable"), ("fallback", third, None)]
    assert [event for event in events if isinstance(event, AttemptStarted | ModelChanged)] == [
        AttemptStarted(1, "first", first),
        ModelChanged(first, second, "auth"),
        AttemptStarted(2, "fallback", second),
        ModelChanged(second, third, "model_unavailable"),
        AttemptStarted(3, "fallback", third),
    ]


async def test_prompt_that_is_too_long_does_not_fall_back(configured_retinue, models, script_models, server):
    script_models(dict.fromkeys(models, TOO_LONG))
    async with configured_retinue as retinue:
        result, events = await run_recorded(retinue, lambda: retinue.run("worker", "Answer."))
    assert result.failure
    assert result.failure.reason == "context_overflow"
    assert [(one.reason, one.model) for one in result.actual.attempts] == [("first", models[0])]
    assert not [event for event in events if isinstance(event, ModelChanged)]
    assert {request.model for request in server.requests} == {models[0].rpartition("/")[2]}


async def test_fallback_model_continues_without_repeating_tool_calls(
    configured_retinue, program, models, server, project
):
    works = program.tool_step("bash", command="echo done >> work.txt", description="Works.")

    def decide(request: Any) -> Step:
        if not models[0].endswith(request.model):
            return {"text": "The rest is done."}
        return NO_KEY if (project / "work.txt").exists() else works

    server.script = decide
    async with configured_retinue as retinue:
        result = await retinue.run("worker", "Work.")
    assert (result.failure, result.text) == (None, "The rest is done.")
    assert [one.reason for one in result.actual.attempts] == ["first", "fallback"]
    assert (project / "work.txt").read_text() == "done\n"
    assert "done >> work.txt" in str(server.requests[-1].body), "it goes on in the same session"
