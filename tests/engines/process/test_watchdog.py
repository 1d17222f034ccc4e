"""The guardian: when Retinue is killed, everything it started ends, and nothing else does."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import nothing_open_is_left, python, read_all, read_lines, shell

from retinue.engines.process.cgroups import find_own_cgroup
from retinue.engines.process.child import StdinMode, open_child
from retinue.engines.process.linux_tree import has_marker, list_processes, read_environ
from retinue.engines.process.supervisor import (
    CHILD_VARIABLE,
    INSTANCE_VARIABLE,
    WATCHDOG_PROGRAM,
    ContainmentKind,
    ProcessSupervisor,
    detect_containment,
)
from retinue.model.results import ProcessEnd

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
PARENT = Path(__file__).with_name("parent_program.py")
ROOT = Path(__file__).parents[3]
KINDS = pytest.mark.parametrize("kind", [ContainmentKind.CGROUP, ContainmentKind.MARKER])


def start_parent(*arguments: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(PARENT), *arguments]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
    assert parent.stdout
    return parent, [int(word) for word in parent.stdout.readline().split()]


def finish(parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdout
    parent.stdout.close()
    parent.kill()
    parent.wait()


@KINDS
def test_a_killed_parent_leaves_nothing_running(kind, watch):
    bystander = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    parent, pids = start_parent(kind)
    try:
        started = [watch(pid) for pid in pids[:3]]
        group = re.search("retinue-[0-9a-f]+", Path(f"/proc/{started[0].pid}/cgroup").read_text())
        assert bool(group) is (kind is detect_containment()[0] is ContainmentKind.CGROUP)
        assert all(one.lives() for one in started)
        parent.send_signal(signal.SIGKILL)
        assert all(one.ends() for one in started)
        assert bystander.poll() is None
        assert not group or not Path(find_own_cgroup(), group[0]).exists()
    finally:
        finish(parent)
        bystander.kill()
        bystander.wait()


def test_a_fork_that_holds_the_pipe_does_not_keep_the_guardian_waiting(watch):
    parent, pids = start_parent(ContainmentKind.MARKER, "fork")
    fork = pids[3]
    try:
        started = [watch(pid) for pid in pids[:3]]
        parent.send_signal(signal.SIGKILL)
        assert all(one.ends() for one in started)
    finally:
        os.kill(fork, signal.SIGKILL)
        finish(parent)


def test_the_guardian_is_not_ended_by_signals_meant_for_its_parent(watch):
    parent, pids = start_parent(ContainmentKind.MARKER)
    try:
        *started, guardian = [watch(pid) for pid in pids[:3]]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guardian.pid, number)
        parent.send_signal(signal.SIGKILL)
        assert all(one.ends() for one in started)
        assert guardian.ends()
    finally:
        finish(parent)


async def test_there_is_no_guardian_before_there_is_a_child(watch):
    with nothing_open_is_left():
        async with ProcessSupervisor() as keeper:
            assert keeper._watchdog is None
            async with open_child(shell("true"), keeper) as process:
                await process.wait()
            assert keeper._watchdog is not None
            guardian = keeper._watchdog.pid
            assert keeper.no_watchdog_reason is None
        assert not Path(f"/proc/{guardian}").exists()


async def test_a_guardian_that_was_ended_is_replaced(watch):
    with nothing_open_is_left():
        async with ProcessSupervisor() as keeper, open_child(shell("cat", stdin=StdinMode.PIPE), keeper):
            assert keeper._watchdog
            first = keeper._watchdog.pid
            os.kill(first, signal.SIGKILL)
            os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it was killed
            async with open_child(shell("true"), keeper) as process:
                assert await process.wait() == ProcessEnd(code=0)
            assert keeper._watchdog.pid != first


async def test_the_guardian_sees_nothing_of_our_environment(monkeypatch):
    monkeypatch.setenv("SECRET", "hidden")
    async with ProcessSupervisor() as keeper, open_child(shell("true"), keeper):
        assert keeper._watchdog
        assert not has_marker(keeper._watchdog.pid, b"hidden")
        assert not has_marker(keeper._watchdog.pid, keeper.marker.encode())


def test_the_guardian_imports_next_to_nothing():
    probe = f"import runpy, sys; sys.argv = ['g', 'x' * 32, '0']; runpy.run_path({str(WATCHDOG_PROGRAM)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True, check=True)
    assert not {"pathlib", "contextlib", "subprocess", "asyncio", "anyio"} & (
        set(done.stdout.split()) - _runpy_needs()
    )


def _runpy_needs() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import runpy, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def _shows(pid: int, mark: str) -> bool:
    while not read_environ(pid):
        pass  # while it becomes another program, a process shows none
    return has_marker(pid, mark.encode())


@KINDS
async def test_a_retinue_inside_a_retinue_ends_with_it(kind, monkeypatch, watch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    async with ProcessSupervisor(max_containment=kind) as keeper:
        async with open_child(python(PARENT, kind), keeper) as process:
            numbers = await read_lines(process, 1)
            started = [watch(number) for number in numbers[:3]]
            assert all(one.lives() for one in started)
            assert all(_shows(one.pid, keeper.marker) for one in started)
        assert all(one.ends() for one in started)
        assert [facts for facts in list_processes() if has_marker(facts.pid, keeper.marker.encode())] == []


async def test_marks_of_the_retinues_above_are_kept(monkeypatch):
    monkeypatch.setenv(INSTANCE_VARIABLE, "above")
    monkeypatch.setenv(CHILD_VARIABLE, "outer")
    async with (
        ProcessSupervisor() as keeper,
        open_child(shell(f'echo "${INSTANCE_VARIABLE} ${CHILD_VARIABLE}"'), keeper) as process,
    ):
        instances, children = (await read_all(process)).decode().split()
        assert instances == f"above:{keeper.marker}"
        assert children.startswith("outer:")
