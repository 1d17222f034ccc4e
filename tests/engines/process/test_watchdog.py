"""The watchdog: when Retinue is killed, everything it started ends, and nothing else does; when it is lost, runs end."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.kills import kill_busy_parent
from tests.support.ordinary_user import as_ordinary_user
from tests.support.processes import assert_nothing_left_open, python, read_all, read_lines, shell

from retinue.engines.base import EngineError
from retinue.engines.process import watchdog
from retinue.engines.process.cgroups import find_own_cgroup
from retinue.engines.process.child import open_child
from retinue.engines.process.command import StdinMode
from retinue.engines.process.linux_tree import has_marker
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor, detect_containment
from retinue.model.errors import ErrorCode
from retinue.model.results import ProcessEnd
from retinue.support.processes import CHILD_VARIABLE, INSTANCE_VARIABLE, list_processes, read_environ, read_process

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
PARENT = Path(__file__).with_name("parent_program.py")
ROOT = Path(__file__).parents[3]
LINUX = pytest.mark.parametrize("kind", [ContainmentKind.CGROUP, ContainmentKind.SUBREAPER])
EVERY = pytest.mark.parametrize("kind", [ContainmentKind.CGROUP, ContainmentKind.SUBREAPER, ContainmentKind.GROUP])


def start_parent(*arguments: str) -> tuple[subprocess.Popen[bytes], list[int]]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(PARENT), *arguments]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, env=environ)
    assert parent.stdout
    return parent, [int(word) for word in parent.stdout.readline().split()]


def stop_parent(parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdout
    parent.stdout.close()
    parent.kill()
    parent.wait()


@LINUX
def test_killed_parent_leaves_nothing_running(kind, watch):
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
        stop_parent(parent)
        bystander.kill()
        bystander.wait()


def test_fork_with_the_pipe_open_does_not_delay_the_watchdog(watch):
    parent, pids = start_parent(ContainmentKind.SUBREAPER, "fork")
    fork = pids[3]
    try:
        started = [watch(pid) for pid in pids[:3]]
        parent.send_signal(signal.SIGKILL)
        assert all(one.ends() for one in started)
    finally:
        os.kill(fork, signal.SIGKILL)
        stop_parent(parent)


def test_watchdog_ignores_signals_meant_for_its_parent(watch):
    parent, pids = start_parent(ContainmentKind.SUBREAPER)
    try:
        *started, guard = [watch(pid) for pid in pids[:3]]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(guard.pid, number)
        parent.send_signal(signal.SIGKILL)
        assert all(one.ends() for one in started)
        assert guard.ends()
    finally:
        stop_parent(parent)


async def test_watchdog_ends_with_its_supervisor():
    with assert_nothing_left_open():
        async with ProcessSupervisor() as supervisor:
            watchdog = supervisor.watchdog_pid
            async with open_child(shell("true"), supervisor) as process:
                await process.wait()
            assert supervisor.watchdog_pid == watchdog
            assert supervisor.no_watchdog_reason is None
        assert not Path(f"/proc/{watchdog}").exists()


@LINUX
async def test_killed_watchdog_ends_its_children_and_is_replaced(kind, watch):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        first = supervisor.watchdog_pid
        with pytest.raises(EngineError) as caught:
            async with open_child(shell("sleep 1000 & echo $!; wait"), supervisor) as process:
                sleeper, root = watch((await read_lines(process, 1))[0]), watch(process.pid)
                os.kill(first or 0, signal.SIGKILL)
                assert await process.receive() == b""
                await process.wait()
        assert (caught.value.failure.code, caught.value.failure.reason) == (ErrorCode.ENGINE, "watchdog_lost")
        assert sleeper.ends()
        assert root.ends()
        async with open_child(shell("true"), supervisor) as process:
            assert await process.wait() == ProcessEnd(code=0)
        assert supervisor.watchdog_pid != first


async def test_frozen_watchdog_is_replaced(monkeypatch):
    async with ProcessSupervisor() as supervisor:
        async with open_child(shell("read x; exit 3", stdin=StdinMode.PIPE), supervisor) as process:
            os.kill(supervisor.watchdog_pid or 0, signal.SIGSTOP)
            await process.send(b"go\n")
            with monkeypatch.context() as impatient, pytest.raises(EngineError) as caught:
                impatient.setattr(watchdog, "REPORT_TIMEOUT", 0.1)
                await process.wait()
        assert caught.value.failure.reason == "watchdog_lost"
        async with open_child(shell("true"), supervisor) as process:
            assert await process.wait() == ProcessEnd(code=0)
        os.kill(supervisor.watchdog_pid or 0, signal.SIGSTOP)
        monkeypatch.setattr(watchdog, "START_TIMEOUT", 0.1)
        with pytest.raises(EngineError) as caught:
            async with open_child(shell("true"), supervisor):
                pytest.fail("it started")
        assert caught.value.failure.reason == "watchdog_lost"


@LINUX
async def test_orphans_are_reaped_while_a_dead_child_is_not_released(kind, watch):
    script = "exec 3<&0; for i in 1 2 3; do setsid sh -c 'echo $$; read x' <&3 & done; sleep 1000 & echo $!; wait $!"
    async with (
        ProcessSupervisor(max_containment=kind) as supervisor,
        open_child(shell(script, stdin=StdinMode.PIPE), supervisor) as process,
    ):
        orphans = [watch(number) for number in await read_lines(process, 4)]
        os.kill(process.pid, signal.SIGKILL)
        assert await process.wait() == ProcessEnd(signal=9)
        for orphan in orphans:
            os.kill(orphan.pid, signal.SIGKILL)
            assert orphan.ends()
        for _ in range(1000):  # each turn takes the watchdog some milliseconds
            if not any(read_process(orphan.pid) for orphan in orphans):
                break
            async with open_child(shell("true"), supervisor) as other:
                assert await other.wait() == ProcessEnd(code=0)
        assert [read_process(orphan.pid) for orphan in orphans] == [None] * 4
        child = read_process(process.pid)
        assert child and child.is_dead


UNREADABLE = """
import json, os, sys
import anyio
from tests.support.ordinary_user import drop_rights
from tests.support.processes import read_all, shell
from retinue.engines.process import child, supervisor
from retinue.support.processes import is_run_process

async def main():
    drop_rights()
    sys.executable = "/usr/bin/python3"
    async with supervisor.ProcessSupervisor() as started:
        script = f"cat /proc/{started.watchdog_pid}/environ /proc/{started.watchdog_pid}/mem 2>&1; cat /proc/self/comm"
        async with child.open_child(shell(script), started) as process:
            output = (await read_all(process)).decode().splitlines()
            is_readable = os.access(f"/proc/{started.watchdog_pid}/environ", os.R_OK)
            print(json.dumps([is_readable, is_run_process(process.pid), len(output), output[-1]]))

anyio.run(main)
"""


@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="no interpreter that every user may run")
def test_watchdog_of_an_ordinary_user_cannot_be_read_by_its_children():
    assert as_ordinary_user(UNREADABLE) == [False, True, 3, "cat"]


async def test_watchdog_gets_no_environment_of_its_parent(monkeypatch):
    monkeypatch.setenv("SECRET", "hidden")
    async with ProcessSupervisor() as supervisor, open_child(shell("true"), supervisor):
        assert supervisor.watchdog_pid
        assert not has_marker(supervisor.watchdog_pid, b"hidden")
        assert not has_marker(supervisor.watchdog_pid, supervisor.marker.encode())


def test_watchdog_imports_no_large_modules():
    folder = str(Path(watchdog.__file__).parent)
    probe = f"import sys; sys.path.append({folder!r}); import watchdog_main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True, check=True)
    assert not {"pathlib", "contextlib", "subprocess", "socket", "typing", "asyncio", "anyio"} & set(
        done.stdout.split()
    )


def _has_marker(pid: int, marker: str) -> bool:
    while not read_environ(pid):
        pass  # in the middle of an exec, a process shows none
    return has_marker(pid, marker.encode())


@LINUX
async def test_nested_retinue_ends_with_the_outer_one(kind, monkeypatch, watch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(python(PARENT, kind), supervisor) as process:
            numbers = await read_lines(process, 1)
            started = [watch(number) for number in numbers[:3]]
            assert all(one.lives() for one in started)
            assert all(_has_marker(one.pid, supervisor.marker) for one in started)
        assert all(one.ends() for one in started)
        assert [
            process_info
            for process_info in list_processes()
            if has_marker(process_info.pid, supervisor.marker.encode())
        ] == []


async def test_markers_of_outer_instances_are_kept(monkeypatch):
    monkeypatch.setenv(INSTANCE_VARIABLE, "above")
    monkeypatch.setenv(CHILD_VARIABLE, "outer")
    async with (
        ProcessSupervisor() as supervisor,
        open_child(shell(f'echo "${INSTANCE_VARIABLE} ${CHILD_VARIABLE}"'), supervisor) as process,
    ):
        instances, children = (await read_all(process)).decode().split()
        assert instances == f"above:{supervisor.marker}"
        assert children.startswith("outer:")


@LINUX
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parent_killed_at_a_random_moment_leaves_nothing(kind, seed):
    outcome = kill_busy_parent(kind, seed)
    assert outcome.left == ()
