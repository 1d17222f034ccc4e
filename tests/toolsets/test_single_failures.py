"""Failed runs of the `single` tool: code, message and the output so far."""

from __future__ import annotations

import anyio
import pytest

from retinue.engines.base import engine_error
from retinue.engines.scripted import FailEngine, HangStep, RunCallback, ScriptedEngine, WaitStep, call, fail, reply
from retinue.model.errors import ErrorCode
from retinue.model.events import MessageEnded, ProcessEnded, Text, ToolCalled, ToolReturned
from retinue.model.results import ProcessEnd, Usage
from retinue.sessions.memory import MemoryStore
from retinue.sessions.store import SessionState

ZERO = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0, "turns": 0}
TRANSIENT = fail("503 overloaded")


def result_of(answer):
    (result,) = answer["details"]["results"]
    return result


def sections(answer):
    """Return the sections of the failure text."""
    return answer["content"][0]["text"].split("\n\n")


async def test_failed_result_has_exactly_the_documented_fields(ask):
    store = MemoryStore(lambda: "abc12345" * 4)
    answer = await ask(Text("Half of it."), HangStep(), store=store, settings={"idle_timeout": 0})
    message = "Subagent exceeded maximum runtime after 900000ms."
    assert answer == {
        "content": [
            {
                "type": "text",
                "text": f"Subagent failed with exit code 124.\n\nError:\n{message}\n\nPartial output:\nHalf of it.",
            }
        ],
        "details": {
            "mode": "single",
            "runId": "abc12345",
            "results": [
                {
                    "agent": "explorer",
                    "task": "Find auth code",
                    "exitCode": 124,
                    "usage": ZERO,
                    "error": message,
                    "output": "Half of it.",
                }
            ],
            "error": {"code": "SUBAGENT_TIMEOUT", "message": message},
        },
    }


async def test_failure_text_has_its_sections_in_order(ask):
    engine = ScriptedEngine.from_scripts(
        [TRANSIENT], [Text("Half of it."), MessageEnded(stop_reason="stop"), TRANSIENT]
    )
    exit_line, attempts, error, partial = sections(await ask(engine.script_for))
    assert exit_line == "Subagent failed with exit code 1."
    assert attempts == "Attempts: 2."
    assert error.startswith("Error:\n")
    assert "503 overloaded" in error
    assert partial == "Partial output:\nHalf of it."


# -- timeouts ------------------------------------------------------------------------------------------


async def test_run_ends_at_its_timeout(ask):
    busy = [step for number in range(20) for step in (WaitStep(100), call("read", path=str(number)))]
    before = anyio.current_time()
    answer = await ask(Text("Half of it."), *busy, reply("too late"))
    assert anyio.current_time() - before == 900
    message = "Subagent exceeded maximum runtime after 900000ms."
    assert answer["details"]["error"] == {"code": "SUBAGENT_TIMEOUT", "message": message}
    assert (result_of(answer)["exitCode"], result_of(answer)["output"]) == (124, "Half of it.")


async def test_extended_timeout_names_the_limit_and_the_elapsed_time(ask):
    before = anyio.current_time()
    answer = await ask(HangStep(), settings={"idle_timeout": 0, "extend_timeout_debounce": 30})
    assert anyio.current_time() - before == 930
    message = "Subagent exceeded maximum runtime after 900000ms. The run took 930000ms."
    assert answer["details"]["error"] == {"code": "SUBAGENT_TIMEOUT", "message": message}


async def test_silent_run_ends_at_the_idle_timeout(ask):
    before = anyio.current_time()
    answer = await ask(WaitStep(100), call("read", path="x"), HangStep())
    assert anyio.current_time() - before == 280
    message = "Subagent timed out after 180000ms without activity."
    assert answer["details"]["error"] == {"code": "SUBAGENT_TIMEOUT", "message": message}
    assert result_of(answer)["exitCode"] == 124


async def test_running_tool_does_not_count_as_idle(ask):
    called = ToolCalled("one", "bash", {"command": "make"})
    returned = ToolReturned("one", "bash", "ok")
    answer = await ask(called, MessageEnded(stop_reason="tool_use"), WaitStep(600), returned, reply("built"))
    assert answer["content"][0]["text"] == "built"


async def test_tool_calls_do_not_extend_the_timeout_of_single(ask):
    working = [step for number in range(100) for step in (WaitStep(10), call("read", path=str(number)))]
    before = anyio.current_time()
    answer = await ask(*working)
    assert anyio.current_time() - before == 900
    assert answer["details"]["error"]["code"] == "SUBAGENT_TIMEOUT"


async def test_attempts_share_one_timeout(ask):
    busy = [step for number in range(5) for step in (WaitStep(150), call("read", path=str(number)))]
    engine = ScriptedEngine.from_scripts([*busy, TRANSIENT], [*busy, reply("too late")])
    before = anyio.current_time()
    answer = await ask(engine.script_for)
    assert anyio.current_time() - before == 900
    assert answer["details"]["error"]["code"] == "SUBAGENT_TIMEOUT"


# -- the provider ----------------------------------------------------------------------------------


async def test_provider_failure_has_the_providers_message(ask):
    answer = await ask(reply("Half of it."), fail("400 invalid_request_error: unknown field"))
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    assert "400 invalid_request_error: unknown field" in answer["details"]["error"]["message"]
    assert result_of(answer)["error"] == answer["details"]["error"]["message"]
    assert (result_of(answer)["exitCode"], result_of(answer)["output"]) == (1, "Half of it.")
    assert not any(section.startswith("Attempts") for section in sections(answer))


async def test_transient_provider_error_is_retried_once(open_host):
    engine = ScriptedEngine.from_scripts([call("read", path="x"), TRANSIENT], [reply("made it")])
    before = anyio.current_time()
    async with open_host(engine.script_for) as host:
        answer = await host.ask()
    assert 0.75 <= anyio.current_time() - before <= 1.25
    assert answer["content"][0]["text"] == "made it"
    assert "error" not in answer["details"]
    assert len(host.specs) == 2


async def test_two_transient_errors_fail_after_two_attempts(open_host):
    async with open_host(TRANSIENT) as host:
        answer = await host.ask()
    assert len(host.specs) == 2
    assert sections(answer)[:2] == ["Subagent failed with exit code 1.", "Attempts: 2."]
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"


async def test_run_is_not_retried_after_a_writing_tool(open_host):
    async with open_host(call("bash", command="make deploy"), TRANSIENT) as host:
        answer = await host.ask()
    assert len(host.specs) == 1
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"


# -- the child -------------------------------------------------------------------------------------


async def test_engine_failure_keeps_the_text_written_so_far(ask):
    answer = await ask(Text("Half of it."), FailEngine(engine_error("The pipe broke.")))
    assert answer["details"]["error"] == {"code": "SUBAGENT_FAILED", "message": "The pipe broke."}
    assert sections(answer) == [
        "Subagent failed with exit code 1.",
        "Error:\nThe pipe broke.",
        "Partial output:\nHalf of it.",
    ]


async def test_engine_that_cannot_start_refuses_the_call(ask):
    unusable = await ask(missing="scripted is not installed")
    message = "The scripted engine cannot be used: scripted is not installed"
    assert unusable == {
        "content": [{"type": "text", "text": message}],
        "details": {"mode": "single", "results": [], "error": {"code": "SUBAGENT_FAILED", "message": message}},
    }
    unstarted = await ask(FailEngine(engine_error("Failed to spawn pi: not found", code=ErrorCode.SPAWN_FAILED)))
    assert unstarted["details"] == {
        "mode": "single",
        "results": [],
        "error": {"code": "SUBAGENT_FAILED", "message": "Failed to spawn pi: not found"},
    }


async def test_text_survives_a_later_attempt_that_cannot_start(ask):
    unstarted = FailEngine(engine_error("Failed to spawn pi: not found", code=ErrorCode.SPAWN_FAILED))
    engine = ScriptedEngine.from_scripts([reply("Half of it."), TRANSIENT], [unstarted])
    answer = await ask(engine.script_for)
    assert answer["details"]["error"] == {"code": "SUBAGENT_FAILED", "message": "Failed to spawn pi: not found"}
    assert result_of(answer)["output"] == "Half of it."


async def test_process_failure_has_the_exit_code_of_the_process(ask):
    answer = await ask(Text("Half of it."), ProcessEnded(ProcessEnd(code=3)))
    assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
    assert result_of(answer)["exitCode"] == 3


async def test_exit_code_zero_without_an_answer_fails(ask):
    for script in (
        [],
        [call("read", path="x")],
        [Text("Half")],
        [fail("401 bad key"), ProcessEnded(ProcessEnd(code=0))],
    ):
        answer = await ask(*script)
        assert answer["details"]["error"]["code"] == "SUBAGENT_FAILED"
        assert result_of(answer)["exitCode"] == 1


async def test_run_without_text_answers_with_a_diagnosis(ask):
    answer = await ask(call("read", path="x", returns="secret of the file"), call("ls", path="y"))
    text = answer["content"][0]["text"]
    assert "Last captured output:\n" in text
    assert "tool_returned" in text
    assert "secret of the file" not in text
    assert "{" not in text


async def test_run_without_events_has_no_output(ask):
    answer = await ask(HangStep())
    assert "output" not in result_of(answer)
    assert len(sections(answer)) == 2


async def test_tool_call_loop_fails_the_run(ask):
    answer = await ask(*[call("read", path="x")] * 6, reply("never said"))
    message = "Loop detected: sub-agent is repeating the same tool calls"
    assert answer["details"]["error"] == {"code": "SUBAGENT_FAILED", "message": message}


# -- cancellation ------------------------------------------------------------------------------------


async def test_stopped_run_is_reported_as_cancelled(open_host):
    async def stop():
        host.retinue.stop_all()

    async with open_host(Text("Half of it."), RunCallback(stop), HangStep()) as host:
        answer = await host.ask()
    message = "Subagent execution was cancelled by user."
    assert answer["details"]["error"] == {"code": "SUBAGENT_FAILED", "message": message}
    assert (result_of(answer)["exitCode"], result_of(answer)["output"]) == (130, "Half of it.")


async def test_cancelled_call_leaves_a_stored_session(open_host):
    async def cancel_call():
        caller.cancel()

    async with open_host(Text("Half of it."), RunCallback(cancel_call), HangStep()) as host:
        with anyio.CancelScope() as caller:
            await host.ask()
        assert caller.cancelled_caught
        (session,) = await host.retinue.sessions()
    assert session.latest.state is SessionState.ERROR
    assert session.latest.failure.code is ErrorCode.ABORTED


# -- exit codes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([reply("done")], 0),
        ([HangStep()], 124),
        ([call("read", path="x"), HangStep()], 124),
        ([ProcessEnded(ProcessEnd(code=0))], 1),
        ([ProcessEnded(ProcessEnd(code=7))], 7),
        ([ProcessEnded(ProcessEnd(signal=9)), FailEngine(engine_error("Killed.", code=ErrorCode.SIGNALLED))], 137),
        ([fail("400 bad request")], 1),
        ([FailEngine(engine_error("It broke."))], 1),
        ([MessageEnded(stop_reason="aborted")], 130),
        ([Text("cut"), MessageEnded(stop_reason="length", usage=Usage(output=9))], 1),
    ],
)
async def test_exit_codes_follow_the_failure_codes(ask, script, code):
    answer = await ask(*script)
    assert result_of(answer)["exitCode"] == code
    assert ("error" in result_of(answer)) == ("error" in answer["details"]) == bool(code)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ([reply("done")], 0),
        ([reply("x\n" * 6000)], 0),
        ([HangStep()], 124),
        ([MessageEnded(stop_reason="aborted")], 130),
        ([fail("400 bad request")], 1),
        ([ProcessEnded(ProcessEnd(code=7))], 1),
        ([FailEngine(engine_error("Failed to spawn pi", code=ErrorCode.SPAWN_FAILED))], 2),
    ],
    ids=["completed", "truncated", "timeout", "cancelled", "failed", "process", "refused"],
)
async def test_tool_result_has_the_exit_code_for_command_lines(open_host, script, status):
    async with open_host(*script) as host:
        assert (await host.use({"agent": "explorer", "task": "Find auth code"})).exit_code == status


@pytest.mark.parametrize(
    "script",
    [
        [],
        [HangStep()],
        [FailEngine(engine_error("It broke."))],
        [fail("")],
        [fail("\x00\ud800")],
        [Text("\ud800"), MessageEnded(stop_reason="stop")],
        [call("read", path=["\ud800", {"deep": [None]}])],
    ],
    ids=["nothing", "silence", "engine", "empty error", "broken error", "broken text", "broken call"],
)
async def test_single_tool_never_raises(ask, script):
    answer = await ask(*script)
    assert answer["content"][0]["type"] == "text"
    assert answer["details"]["mode"] == "single"
