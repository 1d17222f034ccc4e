"""A run whose processes use more than they may ends while they do."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import pytest
from msgspec import structs
from tests.support.processes import Watched, read_all, read_lines, shell

from retinue.engines.base import EngineError
from retinue.engines.process import cgroups
from retinue.engines.process.cgroups import ControlGroup
from retinue.engines.process.child import open_child
from retinue.engines.process.command import StdinMode
from retinue.engines.process.pipes import ChildStreams
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor
from retinue.engines.process.watchdog import SpawnRequest, Watchdog, WatchdogChild
from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import ProcessEnd
from retinue.support.processes import list_processes, read_proc_file

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
LINUX = pytest.mark.parametrize("kind", [ContainmentKind.CGROUP, ContainmentKind.SUBREAPER])
BOMB = 'b() { [ "$1" -gt 0 ] && { b $(($1 - 1)) | b $(($1 - 1)) & }; sleep 60; }; b 6'
"""Doubles six times and then ends: without a limit some 250 processes would sleep, and no more."""
WAYS = {
    "plain": BOMB,
    "other session": f"env -i setsid sh -c '{BOMB}' & sleep 60",
    "orphan": f"(env -i setsid sh -c '{BOMB}' &); sleep 60",
    "orphans of their own": "i=0; while [ $i -lt 90 ]; do (env -i setsid sh -c 'sleep 60' &); i=$((i+1)); done; sleep 60",
}
"""Scripts that start too many processes, by how they hide where these come from."""
UNTAG = f"(env -i setsid bash -c 'ulimit -S -x $(ulimit -H -x); {BOMB}' &); sleep 60"


def mark(script: str) -> tuple[str, str]:
    """Return the script with a duration of sleep that no other has, and the duration."""
    duration = f"60.{int.from_bytes(os.urandom(8), 'little')}"
    return script.replace("sleep 60", f"sleep {duration}"), duration


def list_sleeping(duration: str) -> list[int]:
    """Return the live processes with the duration in their arguments."""
    live = [each.pid for each in list_processes() if not each.is_dead]
    return [pid for pid in live if duration.encode() in read_proc_file(f"/proc/{pid}/cmdline")]


def all_end(duration: str, watch: Callable[[int], Watched]) -> bool:
    """Return whether the processes with the duration end, and those they still start."""
    for _ in range(100):
        if not (pids := list_sleeping(duration)):
            return True
        for pid in pids:
            with suppress(ProcessLookupError):
                assert watch(pid).ends()
    return False


async def exceed(supervisor: ProcessSupervisor, script: str, cwd: str = "/", **limits: int) -> Failure:
    """Return the failure of a script that exceeds a limit."""
    command = structs.replace(shell(script, cwd=cwd), limits=limits)
    with pytest.raises(EngineError) as caught:
        async with open_child(command, supervisor) as process:
            await read_all(process)
            await process.wait()
    assert caught.value.failure.reason == "resource_limit"
    assert process.survivors == ()
    return caught.value.failure


def used(failure: Failure) -> int:
    """Return what was used, as the failure states it."""
    assert failure.detail
    count = failure.detail["used"]
    assert isinstance(count, int)
    return count


@LINUX
@pytest.mark.parametrize("way", WAYS)
async def test_fork_bomb_is_stopped_while_it_runs(kind, way, watch):
    script, duration = mark(WAYS[way])
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        failure = await exceed(supervisor, script, max_processes=40)
        assert all_end(duration, watch)
    assert used(failure) > 40
    assert failure == Failure(
        ErrorCode.ENGINE,
        f"The run used {used(failure)} processes, and max_processes is 40. Its processes were ended, and the output so "
        "far was kept. Make the task smaller, or raise max_processes.",
        "resource_limit",
        {"limit": "max_processes", "used": used(failure)},
    )


@LINUX
@pytest.mark.parametrize("way", WAYS)
async def test_fork_bomb_ends_only_its_own_run(kind, way, watch):
    script, duration = mark(WAYS[way])
    other = structs.replace(shell("echo up; read x; exit 3", stdin=StdinMode.PIPE), limits={"max_processes": 5})
    async with ProcessSupervisor(max_containment=kind) as supervisor, open_child(other, supervisor) as process:
        await read_lines(process, 1)
        await exceed(supervisor, script, max_processes=40)
        assert all_end(duration, watch)
        await process.send(b"go\n")
        assert await process.wait() == ProcessEnd(code=3)


@pytest.mark.skipif(not which("bash"), reason="no bash")
async def test_processes_that_hide_where_they_come_from_count_for_the_only_run(watch):
    script, duration = mark(UNTAG)
    async with ProcessSupervisor(max_containment=ContainmentKind.SUBREAPER) as supervisor:
        await exceed(supervisor, script, max_processes=40)
        assert all_end(duration, watch)


async def test_processes_left_by_another_run_do_not_count():
    leave = "i=0; while [ $i -lt 30 ]; do (env -i setsid sleep 60 >/dev/null 2>&1 &); i=$((i+1)); done"
    async with (
        ProcessSupervisor(max_containment=ContainmentKind.SUBREAPER) as supervisor,
        open_child(shell("sleep 60"), supervisor),
    ):
        async with open_child(shell(leave), supervisor) as process:
            assert await process.wait() == ProcessEnd(code=0)
        script = "for i in 1 2 3 4 5 6; do sleep 60 & done; wait"
        assert used(await exceed(supervisor, script, max_processes=3)) <= 7


@LINUX
async def test_memory_of_all_processes_together_is_limited(kind):
    # Two processes, neither of which exceeds the limit alone.
    script = "hold() { x=$(head -c 40000000 /dev/zero | tr '\\0' x); sleep 60; }; hold & hold & wait"
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        failure = await exceed(supervisor, script, max_memory_bytes=60_000_000)
    assert failure.detail == {"limit": "max_memory_bytes", "used": used(failure)}
    assert used(failure) > 60_000_000


@LINUX
async def test_bytes_on_disk_are_limited(kind):
    # At most 200 MB. In /var/tmp, because /tmp may be in memory.
    script = "i=0; while [ $i -lt 200 ]; do head -c 1000000 /dev/zero >>big; i=$((i+1)); done; sleep 60"
    with TemporaryDirectory(dir="/var/tmp") as folder:
        async with ProcessSupervisor(max_containment=kind) as supervisor:
            failure = await exceed(supervisor, script, folder, max_disk_bytes=5_000_000)
    assert failure.detail == {"limit": "max_disk_bytes", "used": used(failure)}
    assert failure.message.startswith(f"The run used {used(failure)} bytes on disk, and max_disk_bytes is 5000000.")


@LINUX
async def test_child_within_its_limits_is_not_disturbed(kind):
    limits = {"max_processes": 50, "max_memory_bytes": 10**9, "max_disk_bytes": 10**9}
    command = structs.replace(shell("echo up; read x; exit 3", stdin=StdinMode.PIPE), limits=limits)
    async with ProcessSupervisor(max_containment=kind) as supervisor, open_child(command, supervisor) as process:
        await read_lines(process, 1)
        await process.send(b"go\n")
        assert await process.wait() == ProcessEnd(code=3)


@LINUX
async def test_children_of_one_run_are_limited_together(kind):
    hold = structs.replace(shell("sleep 60 & echo up; wait"), run="r1", limits={"max_processes": 3})
    async with (
        ProcessSupervisor(max_containment=kind) as supervisor,
        open_child(structs.replace(hold, run="r2"), supervisor) as other,
        open_child(hold, supervisor) as first,
    ):
        await read_lines(other, 1)
        await read_lines(first, 1)
        with pytest.raises(EngineError) as caught:
            async with open_child(hold, supervisor) as second:
                await second.wait()
        assert caught.value.failure.detail == {"limit": "max_processes", "used": 4}
        with pytest.raises(EngineError) as caught:
            await first.wait()
        assert caught.value.failure.reason == "resource_limit"
        assert await other.count_descendants() == 1


# -- control groups with controllers. The kernel's part is played by the test: no test machine must have them --------


GROUP_FILES = {
    "cgroup.procs": "",
    "memory.max": "max",
    "memory.oom.group": "0",
    "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
    "memory.peak": "0",
    "pids.max": "max",
    "pids.events": "max 0\n",
}


@pytest.fixture
def group(tmp_path):
    """Return a folder with the files of a control group with controllers."""
    for name, text in GROUP_FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@asynccontextmanager
async def start_in_group(group: Path, **limits: int) -> AsyncIterator[WatchdogChild]:
    """Start a shell with limits in a group, which it cannot enter, and stop its watchdog at the end."""
    watchdog, streams = Watchdog(None, {}), ChildStreams(StdinMode.PIPE)
    request = SpawnRequest(
        argv=("sh", "-c", "read x"),
        cwd="/",
        environ={"PATH": os.defpath},
        cgroup=group,
        sandbox=None,
        limits=limits,
        run="",
        pass_fds=(),
    )
    child = await watchdog.spawn(request, streams)
    try:
        yield child
    finally:
        child.release()
        streams.close()
        await watchdog.stop()


@pytest.mark.parametrize(
    ("limit", "files"),
    [
        ("max_memory_bytes", {"memory.max": "50000000", "memory.oom.group": "1", "pids.max": "max"}),
        ("max_processes", {"memory.max": "max", "pids.max": "50000000"}),
    ],
)
async def test_limits_are_written_to_a_control_group_with_controllers(group, limit, files):
    async with start_in_group(group, **{limit: 50_000_000}):
        assert {name: (group / name).read_text() for name in files} == files


async def test_kill_by_the_kernel_for_memory_is_reported_before_the_exit(group):
    async with start_in_group(group, max_memory_bytes=50_000_000) as child:
        (group / "memory.peak").write_text("50003968\n")
        (group / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 1\n")
        os.kill(child.pid, signal.SIGKILL)
        assert (await child.wait_exit(), child.exceeded) == (ProcessEnd(signal=9), ("max_memory_bytes", 50_003_968))


async def test_refused_fork_ends_the_processes_of_the_run(group):
    async with start_in_group(group, max_processes=40) as child:
        (group / "pids.events").write_text("max 1\n")
        assert (await child.wait_exit(), child.exceeded) == (ProcessEnd(signal=9), ("max_processes", 40))


async def test_kill_without_an_event_of_the_group_is_no_limit(group):
    async with start_in_group(group, max_memory_bytes=50_000_000) as child:
        os.kill(child.pid, signal.SIGKILL)
        assert (await child.wait_exit(), child.exceeded) == (ProcessEnd(signal=9), None)


@pytest.mark.parametrize(
    ("own", "above", "expected"),
    [
        ("memory pids", "", "own"),
        ("", "cpu memory pids", "above"),
        ("cpu", "cpu", "own"),
        (None, None, "own"),
    ],
)
def test_base_of_control_groups_is_one_with_controllers(tmp_path, monkeypatch, own, above, expected):
    folders = {"above": tmp_path, "own": tmp_path / "own"}
    folders["own"].mkdir()
    for name, text in (("own", own), ("above", above)):
        if text is not None:
            (folders[name] / "cgroup.subtree_control").write_text(text)
    monkeypatch.setattr(cgroups, "is_delegated", lambda _folder: True)
    assert cgroups.find_base_cgroup(folders["own"]) == folders[expected]


def test_group_above_is_used_only_if_it_is_delegated(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "cgroup.subtree_control").write_text("memory pids")
    (tmp_path / "cgroup.procs").touch()
    assert cgroups.find_base_cgroup(tmp_path / "own") == tmp_path / "own"
    try:
        os.setxattr(tmp_path, "user.delegate", b"1")
    except OSError:
        return  # this file system has no attributes
    assert cgroups.find_base_cgroup(tmp_path / "own") == tmp_path


def test_controllers_are_enabled_for_the_groups_below(tmp_path):
    group = ControlGroup(tmp_path / "group")
    group.enable_controllers()
    for name, text in (("cgroup.controllers", "cpu memory pids"), ("cgroup.subtree_control", "")):
        (group.folder / name).write_text(text)
    group.enable_controllers()
    assert (group.folder / "cgroup.subtree_control").read_text() == "+memory +pids"


async def test_answer_given_before_a_limit_was_exceeded_is_kept():
    command = structs.replace(shell(BOMB), limits={"max_processes": 40})
    async with ProcessSupervisor() as supervisor, open_child(command, supervisor) as process:
        process.answered = True
        assert await process.wait() == ProcessEnd(signal=9)


async def test_limits_without_process_descriptors_fail_with_advice():
    command = structs.replace(shell("true"), limits={"max_processes": 40})
    async with ProcessSupervisor(max_containment=ContainmentKind.GROUP) as supervisor:
        with pytest.raises(EngineError) as caught:
            async with open_child(command, supervisor):
                pytest.fail("it started")
    assert caught.value.failure.code is ErrorCode.SPAWN_FAILED
    assert "set them to 0" in caught.value.failure.message
