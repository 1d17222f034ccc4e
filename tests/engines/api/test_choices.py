"""Effort and model aliases on every provider API: sent in the provider's own words, or reported as not applied."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engines.api.conftest import MODELS, environment, open_retinue
from tests.support.model_server import ModelServer, ScriptedError, ScriptedTurn

from retinue import Agent, Retinue
from retinue.sessions.memory import MemoryStore

ANSWER = ScriptedTurn(text="done")
EFFORTS: dict[str, dict[str, Any]] = {
    "openai-chat": {"reasoning_effort": "high"},
    "openai-responses": {"reasoning": {"effort": "high", "summary": "auto"}},
    "anthropic": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingLevel": "high", "includeThoughts": True}}},
}
REFUSALS = [
    "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
    "adaptive thinking is not supported on this model",
]


def effort_fields(api, body):
    """Return the fields of a request that say how much to think."""
    return {name: value for name, value in body.items() if name in EFFORTS[api]}


@pytest.mark.parametrize("api", EFFORTS)
async def test_effort_of_a_call_is_sent_in_the_words_of_the_provider(api, tmp_path):
    async with open_retinue(lambda _: ANSWER, tmp_path, MODELS[api]) as (retinue, server):
        result = await retinue.run("plain", "Look.", effort="high")
    assert effort_fields(api, server.requests[0].body) == EFFORTS[api]
    assert (result.failure, result.actual.not_applied) == (None, ())


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("api", EFFORTS)
async def test_model_that_refuses_an_effort_answers_without_it(api, tmp_path, refusal):
    def script(request):
        if effort_fields(api, request.body):
            return ScriptedTurn(fail=ScriptedError(status=400, times=-1, message=refusal))
        return ANSWER

    async with open_retinue(script, tmp_path, MODELS[api]) as (retinue, server):
        result = await retinue.run("plain", "Look.", effort="high")
    assert (result.failure, result.text, result.actual.not_applied) == (None, "done", ("thinking",))
    assert len(server.requests) == 2
    (notice,) = result.actual.notices
    assert notice.startswith(f"{MODELS[api]} does not support effort high; the provider's default is used: 400: ")


async def test_other_errors_are_not_taken_for_a_refused_effort(tmp_path):
    fail = ScriptedError(status=400, times=-1, message="The messages are too long.")
    turn = ScriptedTurn(fail=fail)
    async with open_retinue(lambda _: turn, tmp_path, MODELS["openai-chat"]) as (retinue, server):
        result = await retinue.run("plain", "Look.", effort="high")
    assert result.failure is not None
    assert (len(server.requests), result.actual.not_applied) == (1, ())


@pytest.mark.parametrize(
    ("keys", "model", "not_applied"),
    [
        (("ANTHROPIC_API_KEY", "OPENAI_API_KEY"), "claude-haiku-5-5", ()),
        (("OPENAI_API_KEY",), "gpt-6.1-terra", ("model",)),
    ],
)
async def test_alias_of_claude_files_is_a_model_of_anthropic_or_not_applied(tmp_path, keys, model, not_applied):
    agent = Agent(name="scout", model="haiku", tools=())
    async with ModelServer(lambda _: ANSWER) as server:
        found = environment(server.url)
        environ = {"HOME": str(tmp_path), **{name: found[name] for name in found if name.endswith("URL")}}
        environ |= {name: found[name] for name in keys}
        async with Retinue(
            cwd=tmp_path, environ=environ, store=MemoryStore(), engine="api", agents=[agent]
        ) as retinue:
            result = await retinue.run("scout", "Look.")
        (request,) = server.requests
    assert (result.failure, request.body["model"], result.actual.not_applied) == (None, model, not_applied)
