"""The `nested` toolset on both versions of the real pi: modes and model fallback."""

from __future__ import annotations

import pytest
from tests.support.model_server import script64

from retinue import Agent, Retinue
from retinue.model.events import ModelChanged

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

WORKER = Agent(
    name="worker",
    body="You work.",
    persona="You are witty.",
    memory="Tea at five.",
    tools=("read", "bash"),
    model="nowhere/x",
    fallback_models=("local/scripted-1",),
)


@pytest.fixture
def configured_retinue(pi, server, project, tmp_path):
    environ = pi.environ_in(tmp_path / "home", server.url)
    return Retinue(cwd=project, engine="pi", agents=[WORKER], environ=environ, state=tmp_path / "state")


async def test_chain_on_pi_passes_the_answer_on_and_falls_back_with_its_reason(configured_retinue, server):
    chain = {
        "mode": "chain",
        "tasks": [
            {"agent": "worker", "task": f"First. {script64([{'text': 'The word is XYZZY.'}])}"},
            {"agent": "worker", "task": f"Then {{previous}} {script64([{'text': 'Second.'}])}"},
        ],
    }
    async with configured_retinue as retinue, retinue.events(deltas=False) as events:
        result = await retinue.toolset("nested").handlers["spawn_subagent"](chain, retinue.call("nested"), None)
        told = [stamped.event for stamped in events.drain()]
    assert (result.text, result.is_error) == ("Second.", False)
    prompts = [request.messages[-1].text for request in server.requests]
    assert "\nThe word is XYZZY.\n[output of step 1 (worker) ends" in prompts[-1]
    assert {request.system.splitlines()[0] for request in server.requests} == {"You work."}
    assert not any("witty" in request.system or "Tea" in request.system for request in server.requests)
    changes = [event for event in told if isinstance(event, ModelChanged)]
    assert changes == [ModelChanged("nowhere/x", "local/scripted-1", "model_unavailable")] * 2
    ends = [event for event in told if event.__struct_config__.tag == "run_ended"]
    assert [(end.actual.declared_model, end.actual.model) for end in ends] == [("nowhere/x", "local/scripted-1")] * 2
