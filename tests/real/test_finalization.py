"""`subagent_finalize` beside other tool calls of one message, on the real programs."""

from __future__ import annotations

import pytest
from tests.real.programs import Step
from tests.support.model_server import script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

BUILD = "sleep 3; echo done > built.txt"


@pytest.fixture
def call(program, make_caller):
    return make_caller(program)


@pytest.mark.parametrize("order", ["command_first", "finalize_first"])
async def test_commands_beside_finalize_are_complete_when_success_is_reported(call, program, project, server, order):
    command = program.tool_step("bash", command=BUILD)
    finalize = program.tool_step("subagent_finalize", status="SUCCESS", result="built")
    calls = [command, finalize] if order == "command_first" else [finalize, command]
    steps: list[Step] = [{"tools": calls}, {"text": "The model was asked once more."}]
    status, (answer,) = await call({"agent": "scout", "task": script64(steps)}, "sticky")
    assert (status, answer["details"]["finalized"]) == (0, {"status": "SUCCESS", "result": "built"})
    assert (project / "built.txt").read_text() == "done\n"
    assert len(server.requests) == 1
