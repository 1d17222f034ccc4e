"""Faults of Claude Code that the real one cannot be made to show; each ends as the contract promises."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.support.claude_setup import Deed, claude_stage, deeds
from tests.support.pi_setup import alive

from retinue import Agent
from retinue.model.errors import ErrorCode
from retinue.model.results import AnswerStatus, RunResult, Usage

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]

SAY: Deed = {"say": "An answer."}
HALF = (
    {"type": "message_start", "message": {"id": "m", "model": "fake-1", "usage": {"input_tokens": 10}}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Half an ans"}},
)
WRITES: Deed = {"raw": "".join(json.dumps({"type": "stream_event", "event": event}) + "\n" for event in HALF)}
"""Starts an answer."""


@pytest.fixture
def home(scratch_home: Path) -> Path:
    return scratch_home


async def run_actions(
    home: Path, *given: Deed, at_start: tuple[Deed, ...] = (), timeout: float | None = None, **settings: Any
) -> RunResult:
    async with claude_stage(home, *at_start) as retinue:
        result: RunResult = await retinue.run("explorer", deeds(*given), timeout=timeout, **settings)
        assert alive(home) == [], "the run left processes"
    return result


def failure_of(result: RunResult) -> tuple[ErrorCode | None, str | None]:
    return (result.failure.code, result.failure.reason) if result.failure else (None, None)


async def test_answer_and_result_complete_the_run(home):
    result = await run_actions(home, SAY)
    assert (result.failure, result.text, result.actual.notices) == (None, "An answer.", ())


async def test_process_that_answers_and_does_not_exit_completes(home):
    result = await run_actions(home, {"stay": True}, SAY)
    assert (result.failure, result.text, result.exit_code) == (None, "An answer.", 0)
    assert result.elapsed < 10


async def test_answer_without_a_result_message_is_kept_when_the_run_times_out(home):
    result = await run_actions(home, {"silent": True}, SAY, timeout=4)
    notice = "Timed out after 4s. Consider resuming with a longer timeout."
    assert (result.failure, result.text, result.actual.notices) == (None, "An answer.", (notice,))


async def test_message_after_a_complete_message_is_the_answer(home):
    result = await run_actions(home, {"say": "First."}, {"pause": 2.5}, {"say": "Second."})
    assert (result.failure, result.text, result.actual.notices) == (None, "Second.", ())


async def test_bad_exit_after_an_answer_completes_with_a_notice(home):
    result = await run_actions(home, {"silent": True}, SAY, {"exit": 3})
    assert (result.failure, result.text) == (None, "An answer.")
    assert "Claude Code ended with exit code 3 after its answer." in result.actual.notices


@pytest.mark.parametrize(
    ("death", "how"),
    [({"exit": 3}, "ended with exit code 3"), ({"signal": int(signal.SIGABRT)}, "was ended by signal 6")],
)
@pytest.mark.parametrize("work", [{"call": "Read"}, WRITES], ids=["between messages", "within a message"])
async def test_death_within_a_run_is_named_with_the_end_of_its_stderr(home, work, death, how):
    result = await run_actions(home, work, {"complain": "heap out of memory"}, death)
    assert result.failure
    assert how in result.failure.message
    assert result.failure.message.endswith("\nThe end of its stderr:\nheap out of memory")
    assert result.actual.process
    assert result.actual.process.stderr == "heap out of memory"


async def test_killed_process_fails_with_its_signal(home):
    result = await run_actions(home, {"call": "Read"}, {"signal": int(signal.SIGSEGV)})
    assert (*failure_of(result), result.exit_code) == (ErrorCode.SIGNALLED, "child_signal", 128 + signal.SIGSEGV)


@pytest.mark.parametrize(
    ("last", "code", "reason", "exit_code", "how"),
    [
        ({"signal": int(signal.SIGKILL)}, ErrorCode.SIGNALLED, "child_signal", 137, "was ended by signal 9"),
        ({"exit": 143}, ErrorCode.ENGINE, "no_final_message", 143, "ended with exit code 143"),
        ({"exit": 0}, ErrorCode.ENGINE, "no_final_message", 1, "ended with exit code 0"),
    ],
    ids=["killed", "asked to end", "gone"],
)
async def test_exit_within_an_answer_fails_and_keeps_the_text(home, last, code, reason, exit_code, how):
    result = await run_actions(home, WRITES, last)
    assert (*failure_of(result), result.exit_code) == (code, reason, exit_code)
    assert result.failure
    assert result.failure.message == (
        f"Claude Code {how} in the middle of its answer. The partial answer was kept. "
        "Run the task again, or resume the session."
    )
    assert (result.text, result.answer, result.usage) == (
        "Half an ans",
        AnswerStatus.PARTIAL,
        Usage(input=10),
    )


async def test_exit_without_an_answer_fails(home):
    result = await run_actions(home, {"call": "Read"}, {"exit": 0})
    assert failure_of(result) == (ErrorCode.ENGINE, "no_final_message")


async def test_output_that_ends_within_a_record_fails(home):
    result = await run_actions(home, {"raw": '{"type":"assistant","mess'}, {"exit": 0})
    assert failure_of(result) == (ErrorCode.ENGINE, "truncated_stream")


async def test_exit_before_the_handshake_fails_with_stderr(home):
    result = await run_actions(home, at_start=({"complain": "Error: no room on this ship."}, {"exit": 1}))
    assert result.failure
    assert result.failure.code is ErrorCode.SPAWN_FAILED
    assert "no room on this ship" in result.failure.message


async def test_executable_that_cannot_be_started_fails_with_spawn_failed(home):
    async with claude_stage(home) as retinue:
        (home / "bin" / "fake-claude").write_text("#!/nowhere/at/all\n")
        result = await retinue.run("explorer", deeds(SAY))
    assert result.failure
    assert result.failure.code is ErrorCode.SPAWN_FAILED


async def test_program_without_the_protocol_fails_by_name(home):
    async with claude_stage(home) as retinue:
        (home / "bin" / "fake-claude").write_text("#!/bin/sh\nexec cat\n")  # it repeats its input
        result = await retinue.run("explorer", deeds(SAY))
    assert result.failure
    assert result.failure.code is ErrorCode.SPAWN_FAILED
    assert result.failure.message.startswith("Claude Code did not start: Unsupported control request")
    assert "No model was called." in result.failure.message


async def test_long_lines_and_noise_do_not_fail_the_run(home):
    noise = {"raw": "Debugger attached.\n\n\u2028\n[]\n17\n"}
    result = await run_actions(home, noise, {"flood": 17 << 20}, {"flood": 9 << 20}, {"say": "x", "times": 2 << 20})
    assert (result.failure, len(result.text)) == (None, 2 << 20)
    assert result.actual.dropped_bytes > 17 << 20
    assert any("too long and was left out" in notice for notice in result.actual.notices)
    assert any("4 lines that are not messages" in notice for notice in result.actual.notices)


async def test_silent_process_times_out(home):
    result = await run_actions(home, {"call": "Read"}, {"hang": True}, timeout=1)
    assert (*failure_of(result), result.exit_code) == (ErrorCode.TIMEOUT, "ceiling", 124)


@pytest.mark.parametrize(("loads", "read"), [("none", "unasked"), ("user", "allow")])
async def test_permission_hook_allows_only_granted_tools(home, loads, read):
    """Without loaded settings the hook is not called for granted tools of Claude Code's own."""
    tools = ["Read", "Write", "ReadX", "mcp__retinue__ls", "mcp__retinue__subagent_finalize", "Bash"]
    result = await run_actions(home, {"gate": tools}, claude_settings=loads)
    assert result.text == f"{read} deny deny allow deny deny"


async def test_unknown_result_subtype_fails_with_engine(home):
    result = await run_actions(
        home, {"raw": '{"type":"result","subtype":"error_x","is_error":true,"errors":["It broke."]}\n'}
    )
    assert failure_of(result) == (ErrorCode.ENGINE, "error_x")
    assert result.failure
    assert "It broke." in result.failure.message


async def test_run_continues_when_its_session_id_cannot_be_stored(home):
    async with claude_stage(home, state=home / "state") as retinue:
        (home / "state").mkdir()
        (home / "state" / "native").write_text("in the way")
        result = await retinue.run("explorer", deeds(SAY))
    assert (result.failure, result.text) == (None, "An answer.")
    (notice,) = result.actual.notices
    assert notice.startswith("Claude Code's own session is not kept:")


async def test_unknown_thinking_level_is_reported(home):
    agent = Agent(name="deep", body="You think.", tools=("read",), thinking="galactic")
    async with claude_stage(home, agents=[agent]) as retinue:
        result = await retinue.run("deep", deeds(SAY))
    assert result.failure is None
    (notice,) = result.actual.notices
    assert notice.startswith("Claude Code has no thinking level 'galactic'")


async def test_missing_granted_tool_fails_the_run(home):
    async with claude_stage(home) as retinue:
        program = home / "bin" / "fake-claude"
        program.write_text(program.read_text().replace("tools=tools", 'tools=["Read"]'))
        result = await retinue.run("explorer", deeds(SAY))
    assert failure_of(result) == (ErrorCode.UNSUPPORTED, "missing_tool")
    assert result.failure
    assert "grep, find" in result.failure.message


class SlowImport:
    """A slow import in a thread, after which there is no SDK."""

    def __init__(self) -> None:
        self.has_begun, self.may_end, self.has_ended = (threading.Event() for _ in range(3))

    def find_spec(self, name: str, *_: object) -> None:
        if name == "claude_agent_sdk" and threading.current_thread() is not threading.main_thread():
            self.has_begun.set()
            self.may_end.wait(30)
            self.has_ended.set()
            raise ImportError(name)


async def test_stopped_run_does_not_wait_for_the_sdk_import(home, monkeypatch):
    loading, results = SlowImport(), []
    monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)
    monkeypatch.setattr(sys, "meta_path", [loading, *sys.meta_path])
    async with claude_stage(home) as retinue, anyio.create_task_group() as group:

        async def work() -> None:
            results.append(await retinue.run("explorer", deeds(SAY)))

        group.start_soon(work)
        await anyio.to_thread.run_sync(loading.has_begun.wait, 30)
        retinue.stop_all()
    (result,) = results
    assert (*failure_of(result), loading.has_ended.is_set(), alive(home)) == (ErrorCode.ABORTED, None, False, [])
    loading.may_end.set()
    assert loading.has_ended.wait(30)
