"""No process outlives its block, for any way to escape."""

import asyncio
import os
import re
import signal
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from tests.support.processes import (
    assert_nothing_left_open,
    own_zombies,
    read_all,
    read_lines,
    shell,
    use_up_descriptors,
)

from retinue.engines.process.child import open_child
from retinue.engines.process.command import StdinMode
from retinue.engines.process.linux_tree import has_marker
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor, detect_containment
from retinue.model.results import ProcessEnd
from retinue.support.processes import list_processes

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
EVERY = pytest.mark.parametrize("kind", [ContainmentKind.CGROUP, ContainmentKind.SUBREAPER, ContainmentKind.GROUP])
SHORT = 0.1
"""Seconds of grace where the grace always passes."""
needs_cgroup = pytest.mark.skipif(
    detect_containment()[0] is not ContainmentKind.CGROUP, reason="no control groups here"
)
LINUX = pytest.mark.parametrize(
    "kind", [pytest.param(ContainmentKind.CGROUP, marks=needs_cgroup), ContainmentKind.SUBREAPER]
)


def list_marked(marker: str) -> list[int]:
    return [each.pid for each in list_processes() if not each.is_dead and has_marker(each.pid, marker.encode())]


@BOTH
@EVERY
async def test_child_gets_sigterm_first(kind, watch):
    script = "trap 'echo asked >&2; exit 5' TERM; sleep 1000 & echo up; wait"
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(shell(script), supervisor) as process:
            await read_lines(process, 1)
        assert await process.wait() == ProcessEnd(code=5)
        assert process.stderr_tail.endswith(b"asked\n")
        assert process.killed_descendants == 0
        assert list_marked(supervisor.marker) == []


@BOTH
@EVERY
async def test_child_that_ignores_sigterm_is_killed(kind):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(
            shell("trap '' TERM; echo up; sleep 1000; sleep 1000"), supervisor, grace=SHORT
        ) as process:
            await read_lines(process, 1)
        assert await process.wait() == ProcessEnd(signal=signal.SIGKILL)
        assert list_marked(supervisor.marker) == []


@EVERY
async def test_child_is_terminated_when_asyncio_cancels_the_termination(kind):
    is_up = anyio.Event()
    async with ProcessSupervisor(max_containment=kind) as supervisor:

        async def work() -> None:
            async with open_child(
                shell("trap '' TERM; echo up; sleep 1000; sleep 1000"), supervisor, grace=SHORT
            ) as process:
                await read_lines(process, 1)
                is_up.set()
                await anyio.sleep_forever()

        at_work = asyncio.create_task(work())
        await is_up.wait()
        at_work.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        at_work.cancel()  # while the first is obeyed
        with pytest.raises(asyncio.CancelledError):
            await at_work
        assert list_marked(supervisor.marker) == []


async def test_child_that_answered_has_a_shorter_grace():
    async with ProcessSupervisor() as supervisor:
        with anyio.fail_after(4):
            async with open_child(shell("trap '' TERM; echo up; sleep 1000; sleep 1000"), supervisor) as process:
                await read_lines(process, 1)
                process.answered = True
        assert await process.wait() == ProcessEnd(signal=signal.SIGKILL)


@EVERY
async def test_stopped_child_handles_sigterm(kind):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(shell("trap 'exit 9' TERM; echo up; kill -STOP $$; sleep 1000"), supervisor) as process:
            await read_lines(process, 1)
            with anyio.fail_after(10):
                while " T " not in Path(f"/proc/{process.pid}/stat").read_text():
                    await anyio.lowlevel.checkpoint()
        assert await process.wait() == ProcessEnd(code=9)


@BOTH
@EVERY
async def test_cancelled_block_terminates_all_processes(kind):
    with assert_nothing_left_open():
        async with ProcessSupervisor(max_containment=kind) as supervisor:
            with anyio.CancelScope() as scope:
                async with open_child(
                    shell("trap '' TERM; sleep 1000 & echo up; wait"), supervisor, grace=SHORT
                ) as process:
                    await read_lines(process, 1)
                    scope.cancel()
                    await process.receive()
            assert scope.cancelled_caught
            assert await process.wait() == ProcessEnd(signal=signal.SIGKILL)
            assert list_marked(supervisor.marker) == []


async def test_child_that_writes_while_terminating_does_not_block():
    script = (
        "trap 'head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 4' TERM; echo up; while :; do :; done"
    )
    async with ProcessSupervisor() as supervisor:
        async with open_child(shell(script), supervisor) as process:
            await read_lines(process, 1)
        assert await process.wait() == ProcessEnd(code=4)
        assert process.stderr_bytes == 3_000_000


DAEMON = "(setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!') & wait; exit 0"
NAMELESS = f"env -i PATH=\"$PATH\" sh -c '{re.sub(chr(39), chr(39) + chr(92) + chr(39) + chr(39), DAEMON)}'"
"""The same with a cleared environment, without a marker."""


@LINUX
async def test_daemon_is_found_by_its_marker(kind, watch):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(shell(DAEMON), supervisor) as process:
            daemon = watch(await read_all(process))
            await process.wait()
        assert daemon.ends()
        assert process.killed_descendants == 1
    assert own_zombies() == set()


@LINUX
async def test_daemon_without_a_marker_is_terminated(kind, watch):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        for _ in range(5):
            async with open_child(shell(NAMELESS), supervisor) as process:
                daemon = watch(await read_all(process))
                await process.wait()
            assert daemon.ends()
            assert process.killed_descendants == 1
    assert own_zombies() == set()


@needs_cgroup
async def test_child_is_in_its_cgroup_from_its_first_moment():
    async with ProcessSupervisor() as supervisor, open_child(shell("cat /proc/self/cgroup"), supervisor) as process:
        assert supervisor.marker in (await read_all(process)).decode()


async def test_orphan_of_one_child_does_not_end_with_another_child(watch):
    async with ProcessSupervisor(max_containment=ContainmentKind.SUBREAPER) as supervisor:
        async with open_child(shell("cat", stdin=StdinMode.PIPE), supervisor):
            async with open_child(shell(NAMELESS), supervisor) as process:
                daemon = watch(await read_all(process))
            assert daemon.lives()
        assert daemon.ends()


@EVERY
async def test_descendants_without_a_marker_are_found_by_their_parents(kind, watch):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        script = "env -i setsid sh -c 'sleep 1000 & echo $!; wait' & wait"
        async with open_child(shell(script), supervisor) as process:
            sleeper = watch((await read_lines(process, 1))[0])
        assert sleeper.ends()


@EVERY
async def test_two_hundred_processes_are_terminated_together(kind):
    script = "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo up; wait"
    with assert_nothing_left_open():
        async with ProcessSupervisor(max_containment=kind) as supervisor:
            async with open_child(shell(script), supervisor) as process:
                await read_lines(process, 1)
                assert (
                    len([process_info for process_info in list_processes() if process_info.session == process.pid])
                    == 201
                )
            assert list_marked(supervisor.marker) == []
            assert process.survivors == ()


async def test_more_processes_than_handles_are_terminated():
    script = "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; echo up; wait"
    async with ProcessSupervisor(max_containment=ContainmentKind.SUBREAPER) as supervisor:
        async with open_child(shell(script), supervisor) as process:
            await read_lines(process, 1)
        assert list_marked(supervisor.marker) == []


@LINUX
async def test_processes_that_fork_on_sigterm_are_terminated(kind):
    # Each takes SIGTERM as the sign to leave a successor in a session of its own.
    breed = "trap 'setsid sh -c \"$BREED\" & exit' TERM; echo up; while :; do sleep 1000 & wait $!; done"
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(shell(breed, BREED=breed), supervisor, grace=SHORT) as process:
            await read_lines(process, 1)
        assert list_marked(supervisor.marker) == []
        assert process.survivors == ()


@pytest.mark.parametrize("script", ["kill -TERM 0", "kill -KILL 0", "kill -KILL -$$"])
async def test_child_that_signals_its_group_reaches_only_itself(script):
    async with ProcessSupervisor() as supervisor, open_child(shell(f"{script}; sleep 1000"), supervisor) as process:
        end = await process.wait()
        assert end.signal in {signal.SIGTERM, signal.SIGKILL}


@BOTH
async def test_many_concurrent_children_leave_nothing_behind(anyio_backend):
    with assert_nothing_left_open():
        async with ProcessSupervisor() as supervisor:
            up: list[int] = []
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def run() -> None:
                        async with open_child(shell("setsid sleep 1000 & echo up; wait"), supervisor) as process:
                            await read_lines(process, 1)
                            up.append(process.pid)
                            if len(up) == 64:
                                scope.cancel()
                            await process.wait()

                    for _ in range(64):
                        tasks.start_soon(run)
            assert len(up) == 64
            assert list_marked(supervisor.marker) == []


async def test_detect_containment_describes_its_limits():
    kind, sentence = detect_containment()
    assert kind in {ContainmentKind.CGROUP, ContainmentKind.SUBREAPER}
    assert sentence.endswith(".")
    assert ("There is no control group" in sentence) is (kind is ContainmentKind.SUBREAPER)


@LINUX
async def test_child_is_terminated_without_free_descriptors(kind):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(
            shell("for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 & done; echo up; wait"), supervisor
        ) as process:
            await read_lines(process, 1)
            held = use_up_descriptors()
        for descriptor in held:
            os.close(descriptor)
        assert list_marked(supervisor.marker) == []
        assert process.survivors == ()


@EVERY
async def test_count_descendants_counts_live_descendants(kind):
    waiting = shell("sleep 1000 & echo up; read x; wait", stdin=StdinMode.PIPE)
    async with ProcessSupervisor(max_containment=kind) as supervisor, open_child(waiting, supervisor) as process:
        await read_lines(process, 1)
        assert await process.count_descendants() == 1
