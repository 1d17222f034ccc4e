"""Nothing outlives the block: whatever a child does to stay."""

import asyncio
import os
import re
import resource
import signal
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from msgspec import structs
from tests.process.processes import nothing_open_is_left, own_zombies, read_all, read_lines, shell

from retinue.engines.child import Process, Stdin, child
from retinue.engines.processes.containment import Containment, containment
from retinue.engines.processes.keeper import Keeper
from retinue.engines.processes.table import carries, is_in_cgroup, processes
from retinue.results import ProcessEnd

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
EVERY = pytest.mark.parametrize("kind", [Containment.CGROUP, Containment.MARKER, Containment.GROUP])
SHORT = 0.1
"""Seconds of grace where the grace is certain to pass."""
needs_cgroup = pytest.mark.skipif(containment()[0] is not Containment.CGROUP, reason="no control groups here")


def living(mark: str) -> list[int]:
    return [facts.pid for facts in processes() if not facts.is_dead and carries(facts.pid, mark.encode())]


@BOTH
@EVERY
async def test_a_child_is_asked_first(kind, watch):
    script = "trap 'echo asked >&2; exit 5' TERM; sleep 1000 & echo up; wait"
    async with Keeper(at_most=kind) as keeper:
        async with child(shell(script), keeper) as process:
            await read_lines(process, 1)
        assert await process.wait() == ProcessEnd(code=5)
        assert process.stderr_tail.endswith(b"asked\n")
        assert process.leftovers == 0
        assert living(keeper.mark) == []


@BOTH
@EVERY
async def test_a_child_that_does_not_listen_is_killed(kind):
    async with Keeper(at_most=kind) as keeper:
        async with child(shell("trap '' TERM; echo up; sleep 1000; sleep 1000"), keeper, grace=SHORT) as process:
            await read_lines(process, 1)
        assert await process.wait() == ProcessEnd(signal=signal.SIGKILL)
        assert living(keeper.mark) == []


@EVERY
async def test_a_child_is_ended_though_asyncio_itself_cancels_who_ends_it(kind):
    is_up = anyio.Event()
    async with Keeper(at_most=kind) as keeper:

        async def work() -> None:
            async with child(shell("trap '' TERM; echo up; sleep 1000; sleep 1000"), keeper, grace=SHORT) as process:
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
        assert living(keeper.mark) == []


async def test_a_child_that_answered_has_less_time():
    async with Keeper() as keeper:
        with anyio.fail_after(4):
            async with child(shell("trap '' TERM; echo up; sleep 1000; sleep 1000"), keeper) as process:
                await read_lines(process, 1)
                process.answered = True
        assert await process.wait() == ProcessEnd(signal=signal.SIGKILL)


@EVERY
async def test_a_stopped_child_ends_in_good_order(kind):
    async with Keeper(at_most=kind) as keeper:
        async with child(shell("trap 'exit 9' TERM; echo up; kill -STOP $$; sleep 1000"), keeper) as process:
            await read_lines(process, 1)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)  # noqa: ASYNC222 - it stops at once
        assert await process.wait() == ProcessEnd(code=9)


@BOTH
@EVERY
async def test_a_cancelled_block_is_left_with_everything_ended(kind):
    with nothing_open_is_left():
        async with Keeper(at_most=kind) as keeper:
            with anyio.CancelScope() as scope:
                async with child(shell("trap '' TERM; sleep 1000 & echo up; wait"), keeper, grace=SHORT) as process:
                    await read_lines(process, 1)
                    scope.cancel()
                    await process.receive()
            assert scope.cancelled_caught
            assert await process.wait() == ProcessEnd(signal=signal.SIGKILL)
            assert living(keeper.mark) == []


async def test_a_child_that_writes_while_it_ends_is_not_stuck():
    script = (
        "trap 'head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 4' TERM; echo up; while :; do :; done"
    )
    async with Keeper() as keeper:
        async with child(shell(script), keeper) as process:
            await read_lines(process, 1)
        assert await process.wait() == ProcessEnd(code=4)
        assert process.stderr_bytes == 3_000_000


DAEMON = "(setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!') & wait; exit 0"
NAMELESS = f"env -i PATH=\"$PATH\" sh -c '{re.sub(chr(39), chr(39) + chr(92) + chr(39) + chr(39), DAEMON)}'"
"""The same with a cleared environment: no mark leads to it."""


@pytest.mark.parametrize(
    ("kind", "owns_process"),
    [
        pytest.param(Containment.CGROUP, False, marks=needs_cgroup),
        (Containment.SUBREAPER, True),
        (Containment.MARKER, False),
    ],
)
async def test_a_daemon_is_found_by_its_mark(kind, owns_process, watch):
    async with Keeper(at_most=kind, owns_process=owns_process) as keeper:
        async with child(shell(DAEMON), keeper) as process:
            daemon = watch(await read_all(process))
            await process.wait()
        assert daemon.ends()
        assert process.leftovers == 1
    assert own_zombies() == set()


@pytest.mark.parametrize(
    ("kind", "owns_process"),
    [pytest.param(Containment.CGROUP, False, marks=needs_cgroup), (Containment.SUBREAPER, True)],
)
async def test_a_daemon_without_a_mark_is_found_all_the_same(kind, owns_process, watch):
    async with Keeper(at_most=kind, owns_process=owns_process) as keeper:
        for _ in range(5):
            async with child(shell(NAMELESS), keeper) as process:
                daemon = watch(await read_all(process))
                await process.wait()
            assert daemon.ends()
            assert process.leftovers == 1
    assert own_zombies() == set()


async def until_enclosed(process: Process, keeper: Keeper) -> None:
    at_work = anyio.to_thread.current_default_thread_limiter()
    while not is_in_cgroup(process.pid, keeper.mark) or at_work.borrowed_tokens:
        await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()


@needs_cgroup
async def test_a_program_that_forks_late_is_put_into_its_group_meanwhile(watch):
    command = structs.replace(shell(f"read go; {NAMELESS}", stdin=Stdin.PIPE), forks_late=True)
    async with Keeper() as keeper:
        async with child(command, keeper) as process:
            with anyio.fail_after(10):
                await until_enclosed(process, keeper)
            await process.send(b"go\n")
            daemon = watch(await read_all(process))
            await process.wait()
        assert daemon.ends()
        assert process.leftovers == 1


@needs_cgroup
async def test_one_that_forks_at_once_though_it_was_to_do_so_late_is_found_by_its_mark(watch):
    async with Keeper() as keeper:
        async with child(structs.replace(shell(DAEMON), forks_late=True), keeper) as process:
            daemon = watch(await read_all(process))
            await process.wait()
        assert daemon.ends()
        assert process.leftovers == 1


async def test_a_daemon_without_a_mark_escapes_the_mark_alone_as_is_said(watch):
    async with Keeper(at_most=Containment.MARKER) as keeper:
        async with child(shell(NAMELESS), keeper) as process:
            daemon = watch(await read_all(process))
            await process.wait()
        assert daemon.lives()
    os.kill(daemon.pid, signal.SIGKILL)


async def test_an_orphan_of_one_child_does_not_end_with_another(watch):
    async with Keeper(at_most=Containment.SUBREAPER, owns_process=True) as keeper:
        async with child(shell("cat", stdin=Stdin.PIPE), keeper):
            async with child(shell(NAMELESS), keeper) as process:
                daemon = watch(await read_all(process))
            assert daemon.lives()
        assert daemon.ends()


@EVERY
async def test_descendants_without_a_mark_are_found_by_their_parents(kind, watch):
    async with Keeper(at_most=kind) as keeper:
        script = "env -i setsid sh -c 'sleep 1000 & echo $!; wait' & wait"
        async with child(shell(script), keeper) as process:
            sleeper = watch((await read_lines(process, 1))[0])
        assert sleeper.ends()


@EVERY
async def test_two_hundred_processes_end_together(kind):
    script = "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo up; wait"
    with nothing_open_is_left():
        async with Keeper(at_most=kind) as keeper:
            async with child(shell(script), keeper) as process:
                await read_lines(process, 1)
                assert len([facts for facts in processes() if facts.session == process.pid]) == 201
            assert living(keeper.mark) == []
            assert process.survivors == ()


async def test_more_processes_than_are_held_at_once_end_too():
    script = "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done; echo up; wait"
    async with Keeper(at_most=Containment.MARKER) as keeper:
        async with child(shell(script), keeper) as process:
            await read_lines(process, 1)
        assert living(keeper.mark) == []


@pytest.mark.parametrize("kind", [pytest.param(Containment.CGROUP, marks=needs_cgroup), Containment.MARKER])
async def test_processes_that_beget_others_as_they_die_end_too(kind):
    # Each takes SIGTERM as the sign to leave a successor in a session of its own.
    breed = "trap 'setsid sh -c \"$BREED\" & exit' TERM; echo up; while :; do sleep 1000 & wait $!; done"
    async with Keeper(at_most=kind) as keeper:
        async with child(shell(breed, BREED=breed), keeper, grace=SHORT) as process:
            await read_lines(process, 1)
        assert living(keeper.mark) == []
        assert process.survivors == ()


@pytest.mark.parametrize("script", ["kill -TERM 0", "kill -KILL 0", "kill -KILL -$$"])
async def test_a_child_that_signals_its_group_reaches_only_itself(script):
    async with Keeper() as keeper, child(shell(f"{script}; sleep 1000"), keeper) as process:
        end = await process.wait()
        assert end.signal in {signal.SIGTERM, signal.SIGKILL}


@BOTH
async def test_many_children_at_once_leave_nothing(anyio_backend):
    with nothing_open_is_left():
        async with Keeper() as keeper:
            up: list[int] = []
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:

                    async def run() -> None:
                        async with child(shell("setsid sleep 1000 & echo up; wait"), keeper) as process:
                            await read_lines(process, 1)
                            up.append(process.pid)
                            if len(up) == 64:
                                scope.cancel()
                            await process.wait()

                    for _ in range(64):
                        tasks.start_soon(run)
            assert len(up) == 64
            assert living(keeper.mark) == []


async def test_containment_says_what_is_in_force_and_what_may_get_away():
    kind, sentence = containment()
    owned, _ = containment(owns_process=True)
    assert kind in {Containment.CGROUP, Containment.MARKER}
    assert owned in {Containment.CGROUP, Containment.SUBREAPER}
    assert sentence.endswith(".")
    assert ("may get away" in sentence) is (kind is Containment.MARKER)


@pytest.mark.parametrize("kind", [Containment.CGROUP, Containment.MARKER])
async def test_a_child_is_ended_when_no_descriptor_is_left(kind):
    async with Keeper(at_most=kind) as keeper:
        async with child(
            shell("for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 & done; echo up; wait"), keeper
        ) as process:
            await read_lines(process, 1)
            held = take_all_descriptors()
        for descriptor in held:
            os.close(descriptor)
        assert living(keeper.mark) == []
        assert process.survivors == ()


def take_all_descriptors() -> list[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return held
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, hard))


@pytest.fixture(autouse=True)
def same_limits() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@EVERY
async def test_those_who_came_of_a_child_are_counted_while_it_runs(kind):
    waiting = shell("sleep 1000 & echo up; read x; wait", stdin=Stdin.PIPE)
    async with Keeper(at_most=kind) as keeper, child(waiting, keeper) as process:
        await read_lines(process, 1)
        assert await process.others() == 1
