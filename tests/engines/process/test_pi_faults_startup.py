"""Part A of the fault catalogue, on the pi engine: faults of the child process. Each docstring names its row."""

import os
import signal
import time
from functools import partial

import anyio
import pytest
from tests.support.fake_pi import action as do
from tests.support.fake_pi import install_fake_pi
from tests.support.pi_setup import MODES, alive, ended, pi_stage, play, reported, task, until_told, words
from tests.support.processes import own_zombies

from retinue import Agent
from retinue.engines.process.supervisor import ContainmentKind, detect_containment
from retinue.model.errors import ErrorCode
from retinue.model.events import RunEnded, Text, ToolCalled, ToolReturned
from retinue.model.results import AnswerStatus, ProcessEnd

pytestmark = pytest.mark.process

HARD = {"extend_timeout_debounce": 0, "ceiling_factor": 1}
"""Timeouts that are never extended."""
FOREVER = do("hang", deaf=True)


@pytest.fixture(autouse=True)
def assert_nothing_left(scratch_home):
    yield
    assert alive(scratch_home) == []


@pytest.mark.parametrize(
    ("program", "mode", "reason"),
    [(None, 0, "engine_missing"), ("#!/bin/sh\n", 0o000, "spawn_failed"), ("#!/no/such\n", 0o755, "spawn_failed")],
)
async def test_pi_that_cannot_start_fails_its_own_task_only(scratch_home, program, mode, reason):
    """A1"""
    path = scratch_home / "their-pi"
    if program:
        path.write_text(program)
        path.chmod(mode)
    agents = [Agent(name="broken", engine="pi"), Agent(name="sound", engine="offline")]
    async with pi_stage(scratch_home, engine=None, agents=agents, environ={"RETINUE_PI": str(path)}) as retinue:
        broken, sound = await retinue.delegate([("broken", "Hello"), ("sound", "What is here?")])
        assert ended(broken) == (ErrorCode.SPAWN_FAILED, reason)
        assert sound.failure is None
        assert {session.latest.state for session in await retinue.sessions()} == {"error", "completed"}


@MODES
async def test_exit_without_output_is_no_success(scratch_home, version):
    """A2"""
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, do("exit", 0))
        assert ended(result) == (ErrorCode.ENGINE, "no_final_message")
        assert result.actual.process == ProcessEnd(code=0)
        assert result.exit_code == 1


async def test_failure_quotes_stderr_of_a_process_that_exits_at_start(scratch_home):
    """A2"""
    complains = do("shell", "echo 'Error: Model \"nope/x\" not found.' >&2")
    async with pi_stage(scratch_home, complains, do("exit", 1)) as retinue:
        result = await play(retinue, do("say", "never"))
        assert ended(result) == (ErrorCode.PROVIDER, "model_unavailable")
        assert 'Model "nope/x" not found' in words(result)


async def test_silent_exit_at_start_reports_the_exit_code(scratch_home):
    """A2"""
    async with pi_stage(scratch_home, do("exit", 3)) as retinue:
        result = await play(retinue, do("say", "never"))
        assert ended(result) == (ErrorCode.SPAWN_FAILED, None)
        assert "printed nothing and ended with exit code 3" in words(result)


async def test_pi_that_closes_its_output_and_stays_is_no_success(scratch_home):
    """A2"""
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("close"), FOREVER)
        assert ended(result) == (ErrorCode.ENGINE, "no_final_message")
        assert result.actual.process is None


@MODES
async def test_half_a_stream_is_no_success_and_stays_readable(scratch_home, version):
    """A3"""
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, do("call", "read", {"path": "a"}, returns="found it"), do("exit", 0))
        assert ended(result) == (ErrorCode.ENGINE, "no_final_message")
        stored = [record.event async for record in retinue.history(result.session)]
        assert [event.text for event in stored if isinstance(event, ToolReturned)] == ["found it"]


@MODES
async def test_bad_exit_after_a_complete_answer_is_a_success_with_a_notice(scratch_home, version):
    """A4"""
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, do("say", "Done."), do("exit", 3))
        assert (result.failure, result.text, result.exit_code) == (None, "Done.", 0)
        assert result.actual.process == ProcessEnd(code=3)
        assert "pi ended with exit code 3 after its answer." in result.actual.notices


@MODES
async def test_child_that_answered_and_does_not_exit_is_a_success(scratch_home, version):
    """A5"""
    ways = [(FOREVER,), (do("hang"),), (do("settle"), FOREVER)]
    async with pi_stage(scratch_home, version=version) as retinue:
        with anyio.fail_after(20):
            results = await retinue.delegate([task(do("say", "Done."), *way) for way in ways], timeout=4, **HARD)
        assert [(result.failure, result.text) for result in results] == [(None, "Done.")] * 3
        timed_out = "Timed out after 4s. Consider resuming with a longer timeout."
        assert [timed_out in result.actual.notices for result in results] == [True, True, False]


@MODES
async def test_child_that_continues_after_a_complete_message_returns_its_last_answer(scratch_home, version):
    """A5"""
    later = [(do("pause", seconds), do("say", "Second.", deltas=3)) for seconds in (1.5, 2.0, 2.5)]
    async with pi_stage(scratch_home, version=version) as retinue:
        results = await retinue.delegate([task(do("say", "First."), *steps) for steps in later])
        answers = [(result.failure, result.text, result.actual.notices) for result in results]
        assert answers == [(None, "Second.", ())] * 3


async def test_version_without_completion_report_is_ended_after_its_last_complete_message(scratch_home):
    """A5"""
    async with pi_stage(scratch_home, version="0.80.3") as retinue:
        result = await play(retinue, do("say", "Done."), FOREVER)
        assert (result.failure, result.text) == (None, "Done.")
        assert "The agent answered, but its engine did not return within 2s and was ended." in result.actual.notices


HALF_A_LINE = do("raw", '{"type":"message_end","mess')


async def test_death_by_a_signal_is_reported_at_any_point(scratch_home):
    """A6"""
    points = [
        [],
        [do("call", "read")],
        [do("say", "half", stop="toolUse")],
        [do("say", "half", stop="toolUse"), HALF_A_LINE],
    ]
    deaths = [(name, point) for name in ("SEGV", "ABRT", "KILL", "PIPE") for point in points]
    async with pi_stage(scratch_home, settings={"max_concurrency": 4}) as retinue:
        results = await retinue.delegate([task(*point, do("die", name)) for name, point in deaths])
    for result, (name, point) in zip(results, deaths, strict=True):
        number = signal.Signals[f"SIG{name}"].value
        assert ended(result) == (ErrorCode.SIGNALLED, "child_signal"), (name, point)
        assert f"signal {number}" in words(result)
        assert result.exit_code == 128 + number
        assert (
            (result.text, result.answer) == ("half", AnswerStatus.PARTIAL) or len(point) == 0 or point[0][0] == "call"
        )


@MODES
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (do("say", "", stop="error", error="401: no"), (ErrorCode.PROVIDER, "auth")),
        (do("say", "", stop="aborted", error="Request was aborted"), (ErrorCode.ABORTED, "aborted")),
        (do("say", "cut", stop="length"), (ErrorCode.OUTPUT_LIMIT, "length")),
        (do("say", ""), (ErrorCode.ENGINE, "empty_answer")),
        (do("say", "well", stop="newfangled"), (ErrorCode.PROVIDER, "other")),
    ],
    ids=["error", "aborted", "length", "empty", "unknown"],
)
async def test_bad_stop_reason_is_never_a_success(scratch_home, version, step, expected):
    """A7"""
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, step)
        assert ended(result) == expected
        assert "401: no" in words(result) or "401" not in str(step)


async def test_hanging_run_of_eight_times_out_alone(scratch_home):
    """A8"""
    order: list[str] = []
    tasks = [task(do("say", f"{n}"), name=f"{n}") for n in range(7)]
    hanging = task(do("say", "half", stop="toolUse"), FOREVER, timeout=3)
    async with (
        pi_stage(scratch_home, settings={"max_concurrency": 8, **HARD}) as retinue,
        retinue.events(deltas=False) as events,
    ):
        *others, last = await retinue.delegate([*tasks, hanging])
        while len(order) < 8:
            record = await until_told(events, lambda event: isinstance(event, RunEnded))
            order.append(record.origin.run)
    assert [(result.failure, result.text) for result in others] == [(None, f"{n}") for n in range(7)]
    assert (ended(last)[0], last.text, last.exit_code) == (ErrorCode.TIMEOUT, "half", 124)
    assert order[7] == last.run


@MODES
async def test_grandchild_of_pi_with_open_output_delays_nothing(scratch_home, version):
    """A9"""
    async with pi_stage(scratch_home, version=version) as retinue:
        with anyio.fail_after(20):
            result = await play(retinue, do("say", "Done."), do("shell", "sleep 1000 &"), do("exit", 0))
        assert (result.failure, result.text) == (None, "Done.")
        assert "The agent left 1 process running in the background, which Retinue ended." in result.actual.notices


async def test_pi_that_ignores_sigterm_is_killed_for_any_stop(scratch_home):
    """A10: all four ways at once, because each takes the five seconds of grace."""
    results = {}

    async def run(retinue, name, *actions, **options) -> None:
        begun = (do("ignore", "TERM"), do("say", name, stop="toolUse"))
        results[name] = await play(retinue, *begun, *actions, FOREVER, **options)

    async def shut_down() -> None:
        async with (
            anyio.create_task_group() as outside,
            pi_stage(scratch_home, state=scratch_home / "other") as retinue,
            retinue.events() as events,
        ):
            outside.start_soon(run, retinue, "shutdown")
            await until_told(events, lambda event: event == Text("shutdown"))

    async with pi_stage(scratch_home) as retinue, anyio.create_task_group() as group:
        group.start_soon(shut_down)
        group.start_soon(partial(run, retinue, "timeout", timeout=2))
        group.start_soon(run, retinue, "loop", *[do("call", "read")] * 5)
        async with retinue.events() as events:
            group.start_soon(run, retinue, "cancel")
            record = await until_told(events, lambda event: event == Text("cancel"))
        assert retinue.stop(record.origin.run)
    assert {name: (ended(result)[0], result.text) for name, result in results.items()} == {
        "timeout": (ErrorCode.TIMEOUT, "timeout"),
        "loop": (ErrorCode.LOOP, "loop"),
        "cancel": (ErrorCode.ABORTED, "cancel"),
        "shutdown": (ErrorCode.ABORTED, "shutdown"),
    }


async def test_stopped_pi_is_terminated_at_its_timeout(scratch_home):
    """A11"""
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("say", "half", stop="toolUse"), do("stop"), timeout=2)
        assert (ended(result)[0], result.text) == (ErrorCode.TIMEOUT, "half")


@MODES
async def test_daemon_of_a_tool_is_terminated_and_reported(scratch_home, version):
    """A13"""
    daemon = do("bash", "(setsid sleep 1000 >/dev/null 2>&1 &)")
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, daemon, do("say", "Done."))
        assert (result.failure, result.text) == (None, "Done.")
        assert "The agent left 1 process running in the background, which Retinue ended." in result.actual.notices


@pytest.mark.skipif(
    detect_containment()[0] is not ContainmentKind.CGROUP,
    reason="without a control group a process that cleared its environment and changed its session is not found",
)
async def test_daemon_of_a_tool_without_marker_is_terminated(scratch_home):
    """A13"""
    daemon = do("bash", f"(env -i setsid sh -c 'sleep 1000; : {scratch_home}' >/dev/null 2>&1 &)")
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, daemon, do("say", "Done."))
        assert result.failure is None
        assert alive(scratch_home) == []


@MODES
async def test_fork_bomb_of_a_tool_ends_the_run_with_its_limit(scratch_home, version):
    """A14. The bomb ends by itself at some 250 processes."""
    bomb = 'b() { [ "$1" -gt 0 ] && { b $(($1 - 1)) | b $(($1 - 1)) & }; sleep 60; }; b 6'
    started = do("bash", f"(env -i setsid sh -c '{bomb}' >/dev/null 2>&1 &); sleep 60")
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, do("say", "half", stop="toolUse"), started, max_processes=50)
        assert ended(result) == (ErrorCode.ENGINE, "resource_limit")
        assert result.failure and result.failure.detail
        assert result.failure.detail["limit"] == "max_processes"
        assert result.text == "half"
        assert (await play(retinue, do("say", "Next."))).text == "Next."


async def test_two_hundred_forks_end_with_their_run(scratch_home):
    """A14, without a limit on processes."""
    forks = do("bash", "for i in $(seq 200); do setsid sleep 1000 >/dev/null 2>&1 & done")
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, forks, do("say", "Done."))
        assert result.failure is None
        assert "The agent left 200 processes running in the background, which Retinue ended." in result.actual.notices
        assert (await play(retinue, do("say", "Next."))).text == "Next."


async def test_pi_that_signals_its_group_does_not_reach_retinue(scratch_home):
    """A15: its own group it may end. A signal to its parent's number would reach us: only a sandbox prevents that."""
    async with pi_stage(scratch_home, settings={"max_concurrency": 2}) as retinue:
        killed, sibling = await retinue.delegate(
            [task(do("shell", "kill -KILL 0")), task(do("pause", 0.5), do("say", "Unharmed."))]
        )
        assert ended(killed) == (ErrorCode.SIGNALLED, "child_signal")
        assert sibling.text == "Unharmed."


@MODES
async def test_pi_and_its_tools_have_no_terminal(scratch_home, version):
    """A17"""
    asks = do("bash", "read answer </dev/tty; echo $?; cat; echo $?")
    asks_itself = do("shell", "read answer </dev/tty || touch refused")
    async with pi_stage(scratch_home, version=version) as retinue:
        with anyio.fail_after(20):
            result = await play(retinue, asks, asks_itself, do("say", "Done."))
        assert result.failure is None
        assert (scratch_home / "work" / "refused").exists()


async def test_missing_cwd_before_the_run_is_invalid_input(scratch_home):
    """A18"""
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("say", "never"), cwd=scratch_home / "gone")
        assert ended(result)[0] is ErrorCode.INVALID_INPUT


@MODES
async def test_cwd_deleted_during_a_run_does_not_affect_other_runs(scratch_home, version):
    """A18"""
    folder = scratch_home / "brief"
    folder.mkdir()
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(
            retinue, do("bash", f"rm -rf {folder}"), do("bash", "pwd"), do("say", "Done."), cwd=folder
        )
        assert (result.failure, folder.exists()) == (None, False)
        assert (await play(retinue, do("say", "Next."))).text == "Next."


async def test_replaced_pi_program_serves_new_runs_only(scratch_home):
    """A19"""
    waits = do("bash", "until [ -e go ]; do sleep 0.02; done")
    work = scratch_home / "work"
    async with pi_stage(scratch_home, settings={"max_concurrency": 2}) as retinue:
        first = reported(await play(retinue, do("report")))
        results = []

        async def run() -> None:
            results.append(await play(retinue, waits, do("report")))

        async with retinue.events() as events, anyio.create_task_group() as group:
            group.start_soon(run)
            await until_told(events, lambda event: isinstance(event, ToolCalled))
            install_fake_pi(scratch_home / "bin", do("have", "read", "grep", "find", "ls"), version="1.5.0")
            after = reported(await play(retinue, do("report")))
            (work / "go").touch()
        assert reported(results[0])["pid"] == first["pid"]
        assert after["pid"] != first["pid"]
        assert reported(await play(retinue, do("report")))["pid"] == after["pid"]


async def test_pi_exits_while_the_loop_is_blocked_are_all_reported(scratch_home):
    """A20"""
    blocked = []

    async with pi_stage(scratch_home, settings={"max_concurrency": 8}) as retinue:
        async with retinue.events(deltas=False) as events, anyio.create_task_group() as group:

            async def block() -> None:
                async for record in events:
                    if isinstance(record.event, ToolReturned):
                        time.sleep(0.2)  # noqa: ASYNC251 - that is the fault
                        blocked.append(record)

            group.start_soon(block)
            actions = (do("call", "read"), do("say", "Done."))
            results = await retinue.delegate([task(*actions, do("exit", n)) for n in range(1, 9)])
            group.cancel_scope.cancel()
        assert blocked
        assert [(result.text, result.actual.process) for result in results] == [
            ("Done.", ProcessEnd(code=n)) for n in range(1, 9)
        ]
        assert own_zombies() == set()


@MODES
async def test_pi_has_three_open_descriptors(scratch_home, version):
    """A24"""
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    for descriptor in held[::2]:
        os.set_inheritable(descriptor, True)
    try:
        async with pi_stage(scratch_home, version=version) as retinue:
            assert reported(await play(retinue, do("report")))["descriptors"] == ["0", "1", "2"]
    finally:
        for descriptor in held:
            os.close(descriptor)
