"""Finalization on the `sticky` toolset: valid answers, corrections and failures."""

from __future__ import annotations

import anyio
import pytest

from retinue.agents.agent import Agent
from retinue.engines.scripted import HangStep, RunCallback, ScriptedEngine, WaitStep, call, fail, finalize, reply
from retinue.engines.toolbox import AgentToolbox, finalize_tool
from retinue.model.events import Finalized, MessageEnded
from retinue.model.results import Finalization
from retinue.model.runs import ToolUse
from retinue.runtime.attempts import FINALIZE_REMINDER
from retinue.sessions.memory import MemoryStore

ID = "550e8400e29b41d4a716446655440000"
UUID = "550e8400-e29b-41d4-a716-446655440000"
SCOUT = Agent(name="scout", body="You scout.", tools=("read", "bash"), append_system_prompt="Be brief.")
NOT_FINALIZED = (
    "The agent ended without a valid subagent_finalize call. Its work was kept: resume the session to continue."
)


async def run_attempts(open_host, *scripts, **options):
    """Return the result of a task whose attempts play these scripts, with their specs."""
    engine = ScriptedEngine.from_scripts(*scripts)
    options = {"agents": [SCOUT], "store": MemoryStore(lambda: ID), **options}
    async with open_host(engine.script_for, toolset="sticky", **options) as host:
        return await host.use({"agent": "scout", "task": "Look around"}), host.specs


def failed_result(code, message, *more):
    """Return the expected result of a failed run."""
    text = "\n\n".join([f"**Status:** ERROR  \n**Session ID:** `{UUID}`", "---", message, *more])
    return {
        "content": [{"type": "text", "text": text}],
        "details": {"sessionId": UUID, "error": {"code": code, "message": message}},
        "isError": True,
    }


# -- the finalize tool ------------------------------------------------------------------------------


async def call_finalize(**args):
    """Return the answer of the finalize tool to these arguments, and whether it accepted them."""
    toolbox = AgentToolbox([finalize_tool()])
    outcome = await toolbox.call(ToolUse("c", "subagent_finalize", args))
    return outcome.text, not outcome.is_error


def test_finalize_tool_takes_status_result_and_error():
    (declared,) = AgentToolbox([finalize_tool()]).schemas
    schema = declared.schema
    assert declared.name == "subagent_finalize"
    assert "Must be your last action" in declared.description
    assert schema["properties"]["status"]["enum"] == ["ERROR", "SUCCESS"]
    assert {name: schema["properties"][name]["type"] for name in ("result", "error")} == {
        "result": "string",
        "error": "string",
    }
    assert schema["required"] == ["status"]


@pytest.mark.parametrize(
    ("args", "message", "accepted"),
    [
        ({"status": "SUCCESS", "result": "x"}, "finalized", True),
        ({"status": "SUCCESS", "result": " \n"}, "SUCCESS requires a non-empty result", False),
        ({"status": "SUCCESS", "error": "x"}, "SUCCESS requires a non-empty result", False),
        ({"status": "ERROR", "error": "x"}, "finalized", True),
        ({"status": "ERROR", "error": "x", "result": "half"}, "finalized", True),
        ({"status": "ERROR", "result": "half"}, "ERROR requires a non-empty error", False),
    ],
)
async def test_finalize_tool_reports_missing_fields_to_the_child(args, message, accepted):
    assert await call_finalize(**args) == (message, accepted)


# -- corrections -----------------------------------------------------------------------------------


async def test_run_that_ends_in_free_text_is_corrected_in_the_same_session(open_host):
    result, (first, second) = await run_attempts(open_host, [reply("It is in x.")], [finalize("It is in x.")])
    assert result.details == {"sessionId": UUID, "finalized": {"status": "SUCCESS", "result": "It is in x."}}
    assert (second.prompt, second.session, second.run) == (FINALIZE_REMINDER, first.session, first.run)
    assert second.instructions == first.instructions == "You scout.\n\nBe brief."
    assert [message.text for message in second.history] == ["Look around", "It is in x."]


async def test_run_fails_after_two_corrections_and_keeps_its_text(open_host):
    result, specs = await run_attempts(
        open_host, [reply("one")], [reply("two")], [reply("three")], [finalize("never")]
    )
    assert result.as_json() == failed_result("not_finalized", NOT_FINALIZED, "Partial output:", "three")
    assert (len(specs), result.exit_code) == (3, 1)


async def test_number_of_corrections_is_configurable(open_host):
    _, specs = await run_attempts(open_host, *[[reply("text")]] * 4, settings={"finalize_retries": 0})
    assert len(specs) == 1


INVALID = [Finalization("SUCCESS"), Finalization("SUCCESS", " ", "x"), Finalization("ERROR", "half", "")]


@pytest.mark.parametrize("invalid", INVALID, ids=["no result", "blank result", "no error"])
async def test_invalid_finalization_does_not_count(open_host, invalid):
    end = MessageEnded(stop_reason="stop")
    result, specs = await run_attempts(
        open_host, [Finalized(invalid), reply("done")], [Finalized(invalid), end], [finalize("ok")]
    )
    assert result.details["finalized"] == {"status": "SUCCESS", "result": "ok"}
    assert len(specs) == 3


async def test_invalid_finalize_call_as_last_action_is_corrected(open_host):
    bad = call("subagent_finalize", status="SUCCESS", returns="SUCCESS requires a non-empty result", is_error=True)
    result, specs = await run_attempts(open_host, [bad], [finalize("ok")])
    assert (result.details["finalized"]["result"], len(specs)) == ("ok", 2)


async def test_silent_agent_is_corrected(open_host):
    result, specs = await run_attempts(open_host, [MessageEnded(stop_reason="stop")], [finalize("ok")])
    assert (result.details["finalized"]["result"], len(specs)) == ("ok", 2)


async def test_last_valid_finalization_is_the_answer(open_host):
    script = [finalize("first"), finalize("second"), Finalized(Finalization("SUCCESS", ""))]
    result, _ = await run_attempts(open_host, script)
    assert result.details["finalized"] == {"status": "SUCCESS", "result": "second"}


# -- other failures --------------------------------------------------------------------------------


async def test_run_that_failed_is_not_corrected(open_host):
    result, specs = await run_attempts(open_host, [reply("half", stop_reason="length")], [finalize("never")])
    assert len(specs) == 1
    assert result.details["error"]["code"] == "output_limit"
    assert result.text.endswith("\n\nPartial output:\n\nhalf")


async def test_failed_sticky_run_answers_with_code_and_message(open_host):
    result, _ = await run_attempts(open_host, [fail("401 invalid api key")])
    message = result.details["error"]["message"]
    assert result.as_json() == failed_result("provider", message)
    assert message.startswith("The model provider failed: 401 invalid api key")


async def test_timeout_of_sticky_is_not_extended_by_tool_calls(open_host):
    script = [WaitStep(25), call("read", path="x"), WaitStep(4), call("read", path="y"), HangStep()]
    before = anyio.current_time()
    result, _ = await run_attempts(open_host, script, settings={"timeout": 30})
    assert anyio.current_time() - before == 30
    message = "Timed out after 30s. Consider resuming with a longer timeout."
    assert result.details["error"] == {"code": "timeout", "message": message}


async def test_corrections_share_one_timeout(open_host):
    result, specs = await run_attempts(
        open_host, [WaitStep(20), reply("text")], [HangStep()], settings={"timeout": 30}
    )
    assert (len(specs), result.details["error"]["code"], result.exit_code) == (2, "timeout", 124)
    assert result.text.endswith("\n\nPartial output:\n\ntext")


async def test_stopped_sticky_run_is_an_error_that_keeps_its_session(open_host):
    async def stop():
        host.retinue.stop_all()

    async with open_host(
        RunCallback(stop), HangStep(), toolset="sticky", agents=[SCOUT], store=MemoryStore(lambda: ID)
    ) as host:
        result = await host.use({"agent": "scout", "task": "Look around"})
    assert (result.details["error"]["code"], result.is_error, result.exit_code) == ("aborted", True, 130)
    assert result.details["sessionId"] == UUID
