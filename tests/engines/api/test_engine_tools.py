"""Tools of the api engine that need more than files: processes and the network."""

from __future__ import annotations

import os
import re
from functools import partial

import anyio
import pytest
from tests.engines.api.conftest import MODELS, environment, open_provider
from tests.support.model_server import ScriptedCall, ScriptedTurn
from tests.support.processes import Watched

from retinue.engines.base import EngineError
from retinue.model.errors import ErrorCode
from retinue.model.events import ToolReturned
from retinue.model.runs import Limits, Secret, ToolGrant


async def test_commands_of_bash_see_no_key_and_end_with_the_run(tmp_path):
    os.mkfifo(tmp_path / "started")
    script = [
        ScriptedTurn(tool="bash", args={"command": "env"}),
        ScriptedTurn(tool="bash", args={"command": "sleep 1000 & echo $$ $! > started; wait"}),
    ]
    async with open_provider(script, tmp_path) as provider:
        variables = environment(provider.server.url) | {
            "PATH": os.environ["PATH"],
            "COPY": "Bearer sk-ant-test",
            "RETINUE_AGENT_API_KEY": "sk-agent-test",
        }
        async with anyio.create_task_group() as group:
            group.start_soon(
                partial(
                    provider.run,
                    MODELS["anthropic"],
                    grant=ToolGrant(tools=("bash",)),
                    environment=variables,
                    secrets={"RETINUE_AGENT_API_KEY": Secret("sk-agent-test")},
                )
            )
            pids = await anyio.to_thread.run_sync((tmp_path / "started").read_text)
            watched = [Watched(int(pid)) for pid in pids.split()]
            group.cancel_scope.cancel()
        output = provider.server.requests[1].messages[-1].text
        assert all(process.ends() for process in watched)
    for process in watched:
        process.close()
    assert "PATH=" in output
    assert not {"sk-ant-test", "sk-openai-test", "gemini-test", "sk-agent-test"} & set(re.split(r"[=\s]", output))


@pytest.mark.process
@pytest.mark.parametrize(
    "commands", [("for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait",), ("sleep 60 & wait",) * 3]
)
async def test_commands_of_bash_that_exceed_a_limit_together_end_the_run(commands, tmp_path):
    calls = tuple(ScriptedCall(tool="bash", args={"command": command}) for command in commands)
    async with open_provider([ScriptedTurn(tools=calls), ScriptedTurn(text="Done.")], tmp_path) as provider:
        with pytest.raises(EngineError) as caught:
            await provider.run(
                MODELS["anthropic"],
                grant=ToolGrant(tools=("bash",)),
                environment=environment(provider.server.url) | {"PATH": os.environ["PATH"]},
                limits=Limits(max_processes=3),
            )
        assert len(provider.server.requests) == 1
    failure = caught.value.failure
    assert (failure.code, failure.reason) == (ErrorCode.ENGINE, "resource_limit")
    assert failure.detail and failure.detail["limit"] == "max_processes"


async def test_bash_is_offered_only_where_it_is_granted(tmp_path):
    call = ScriptedTurn(tools=(ScriptedCall(tool="bash", args={"command": "touch made"}, force=True),))
    async with open_provider([call, ScriptedTurn(text="Done.")], tmp_path) as provider:
        events = await provider.run(MODELS["anthropic"], grant=ToolGrant(tools=("read",)))
    assert next(event for event in events if isinstance(event, ToolReturned)).is_error
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("allowed", "expected"), [(False, "is not public"), (True, "HTTP 404 Not Found")])
async def test_private_addresses_are_fetched_only_with_the_setting(tmp_path, allowed, expected):
    async with open_provider(None, tmp_path) as provider:
        turn = ScriptedTurn(tool="fetch_content", args={"url": f"{provider.server.url}/nowhere"})
        provider.server.script = [turn, ScriptedTurn(text="Done.")]
        grant = ToolGrant(tools=("fetch_content",))
        events = await provider.run(MODELS["anthropic"], grant=grant, fetch_private_addresses=allowed)
    (returned,) = (event for event in events if isinstance(event, ToolReturned))
    assert returned.is_error
    assert expected in returned.text
