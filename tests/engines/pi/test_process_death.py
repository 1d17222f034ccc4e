"""A pi that dies before its agent is done: its exit code or signal and the end of its stderr are in the result."""

import signal

import pytest
from tests.support.fake_pi import action as do
from tests.support.pi_setup import MODES, pi_stage, play

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import ProcessEnded
from retinue.model.results import ProcessEnd

pytestmark = pytest.mark.process

WORKS = do("call", "read", {"path": "a"}, returns="found it")
LEFT_NO_TEXT = "The answer is empty; the session has the tool calls. Run the task again, or resume the session."


def complain(words: str):
    return do("shell", f"printf '%s\\n' '{words}' >&2")


@MODES
async def test_exit_code_and_stderr_are_in_the_failure_and_in_the_record(scratch_home, version):
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, WORKS, complain("Error: the extension failed"), do("exit", 3))
        history = [stamped.event async for stamped in retinue.history(result.session)]
    end = ProcessEnd(code=3, stderr="Error: the extension failed")
    assert result.failure == Failure(
        ErrorCode.ENGINE,
        "The agent ended without a final message. Its process ended with exit code 3. "
        f"{LEFT_NO_TEXT}\nThe end of its stderr:\nError: the extension failed",
        "no_final_message",
        {"exitCode": 3},
    )
    assert (result.exit_code, result.actual.process) == (3, end)
    assert [event for event in history if isinstance(event, ProcessEnded)] == [ProcessEnded(end)]


@MODES
async def test_signal_and_stderr_are_in_the_failure(scratch_home, version):
    words = "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, WORKS, complain(words), do("die", "ABRT"))
    assert result.failure == Failure(
        ErrorCode.SIGNALLED,
        f"The agent's process was ended by signal 6. {LEFT_NO_TEXT}\nThe end of its stderr:\n{words}",
        "child_signal",
        {"signal": signal.SIGABRT.value},
    )


@pytest.mark.parametrize(
    ("after", "reason", "words"),
    [
        (4, "out_of_memory", "was ended by signal 9 when the kernel killed a process for lack of memory"),
        (3, "child_signal", "was ended by signal 9."),
    ],
)
async def test_kill_for_lack_of_memory_is_distinguished_from_other_kills(
    scratch_home, monkeypatch, after, reason, words
):
    counters = scratch_home / "vmstat"
    counters.write_text("pgfault 1\noom_kill 3\nnr_free 7\n")
    monkeypatch.setattr("retinue.engines.process_reporter.KERNEL_COUNTERS", counters)
    kill = (do("shell", f"echo 'oom_kill {after}' > {counters}"), do("die", "KILL"))
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, WORKS, *kill)
    assert result.failure is not None
    assert (result.failure.code, result.failure.reason) == (ErrorCode.SIGNALLED, reason)
    assert words in result.failure.message
    assert result.exit_code == 128 + signal.SIGKILL


async def test_half_a_record_and_stderr_are_in_the_failure(scratch_home):
    half = do("raw", '{"type":"message_end","mess')
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, WORKS, half, complain("disk full"), do("exit", 4))
    assert result.failure == Failure(
        ErrorCode.ENGINE,
        "pi stopped in the middle of a record: it ended with exit code 4. The output before that was kept. "
        "Run the task again.\nThe end of its stderr:\ndisk full",
        "truncated_stream",
    )


async def test_stderr_of_earlier_runs_of_a_process_is_left_out(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        assert (await play(retinue, complain("of the first run"), do("say", "ok"))).failure is None
        result = await play(retinue, WORKS, do("exit", 3))
    assert result.actual.process == ProcessEnd(code=3)


async def test_stderr_is_bounded_sanitized_and_masked(scratch_home):
    noise = do("shell", "yes 'a line of noise' | head -n 5000 >&2")
    words = "\x1b[31mError:\x1b[0m OPENAI_API_KEY=sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, WORKS, noise, complain(words), do("exit", 3))
        history = [stamped.event async for stamped in retinue.history(result.session)]
    (stored,) = [event.end for event in history if isinstance(event, ProcessEnded)]
    assert result.actual.process
    for stderr in (result.actual.process.stderr, stored.stderr):
        *lines, last = stderr.split("\n")
        assert set(lines) == {"a line of noise"}
        assert len(stderr) <= 4000
        assert last.startswith("Error: OPENAI_API_KEY=")
        assert "sk-proj-abc" not in last
    assert result.failure
    assert "sk-proj-abc" not in result.failure.message


async def test_stderr_after_a_good_answer_is_in_the_record_alone(scratch_home):
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("say", "Done."), complain("oops"), do("exit", 3))
    assert (result.failure, result.text) == (None, "Done.")
    assert result.actual.process == ProcessEnd(code=3, stderr="oops")
