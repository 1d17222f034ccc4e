"""One child: its input, its output, its environment and its exit."""

import os
import select
import sys
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from msgspec import structs
from tests.support.processes import assert_nothing_left_open, descriptors, read_all, read_lines, shell

from retinue.engines.process.child import STDERR_TAIL_BYTES, ChildExitedError, open_child
from retinue.engines.process.command import ChildCommand, StdinMode
from retinue.engines.process.pipes import SOCKET_BYTES
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor
from retinue.model.results import ProcessEnd, ProcessUsage
from retinue.support.processes import CHILD_VARIABLE, INSTANCE_VARIABLE

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]
BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
LINUX = pytest.mark.parametrize("kind", [ContainmentKind.CGROUP, ContainmentKind.SUBREAPER])
EVERY = pytest.mark.parametrize("kind", [ContainmentKind.CGROUP, ContainmentKind.SUBREAPER, ContainmentKind.GROUP])


@BOTH
@EVERY
async def test_child_reads_stdin_writes_stdout_and_exits(kind):
    with assert_nothing_left_open():
        async with ProcessSupervisor(max_containment=kind) as supervisor:
            async with open_child(shell("cat; echo bye >&2; exit 7", stdin=StdinMode.PIPE), supervisor) as process:
                await process.send(b"hello\n")
                assert await process.receive() == b"hello\n"
                process.close_stdin()
                assert await process.receive() == b""
                assert await process.wait() == ProcessEnd(code=7)
                assert process.stderr_tail == b"bye\n"
            assert (process.killed_descendants, process.survivors) == (0, ())
            assert await process.wait() == ProcessEnd(code=7)


async def test_exit_by_signal_is_reported_as_signal():
    async with ProcessSupervisor() as supervisor, open_child(shell("kill -SEGV $$"), supervisor) as process:
        assert await process.wait() == ProcessEnd(signal=11)


BURN = "import time; x = bytearray(80_000_000)\nwhile time.process_time() < 0.3: pass"


@LINUX
@pytest.mark.parametrize("end", ["exit 3", "kill -KILL $$"])
async def test_usage_of_an_ended_child_covers_the_descendants_it_waited_for(kind, end):
    used = []

    async def note(usage: ProcessUsage) -> None:
        used.append(usage)

    command = shell(f"{sys.executable} -c '{BURN}'; {end}")
    async with (
        ProcessSupervisor(max_containment=kind) as supervisor,
        open_child(command, supervisor, on_usage=note) as process,
    ):
        await process.wait()
        assert used == []
    (usage,) = used
    assert 0.3 <= usage.cpu_seconds < 60
    assert 80_000_000 <= usage.peak_memory_bytes < 10**10


async def test_usage_of_a_running_child_is_what_it_used_so_far():
    command = ChildCommand(
        argv=(sys.executable, "-c", f"{BURN}\nprint('up', flush=True)\ninput()"),
        cwd="/",
        environ={},
        stdin=StdinMode.PIPE,
    )
    async with ProcessSupervisor() as supervisor, open_child(command, supervisor) as process:
        await read_lines(process, 1)
        usage = process.measure_usage()
    assert usage
    assert 0.2 <= usage.cpu_seconds < 60  # in ticks of 10 ms, and without what the clock does not see
    assert 80_000_000 <= usage.peak_memory_bytes < 10**10


@BOTH
async def test_send_transfers_more_than_a_pipe_buffer(anyio_backend):
    data = bytes(range(256)) * 20_000
    async with (
        ProcessSupervisor() as supervisor,
        open_child(shell("cat", stdin=StdinMode.PIPE), supervisor) as process,
    ):

        async def send() -> None:
            await process.send(data)
            process.close_stdin()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            assert await read_all(process) == data


@BOTH
async def test_send_to_an_exited_child_raises_child_exited_error(anyio_backend):
    async with ProcessSupervisor() as supervisor:
        async with open_child(
            shell("exec 0<&-; echo closed; cat >/dev/null <&1", stdin=StdinMode.PIPE), supervisor
        ) as process:
            await process.receive()
            with pytest.raises(ChildExitedError):
                await process.send(b"x" * 2**20)
        async with open_child(shell("sleep 1000 <&0 & exit 0", stdin=StdinMode.PIPE), supervisor) as process:
            with pytest.raises(ChildExitedError):  # the other end is held by what it left behind
                await process.send(b"x" * 2**20)
        async with open_child(shell("true"), supervisor) as process:
            with pytest.raises(ChildExitedError):
                await process.send(b"x")


async def test_output_larger_than_a_pipe_is_read_completely():
    async with (
        ProcessSupervisor() as supervisor,
        open_child(shell("head -c 5000000 /dev/zero; echo end"), supervisor) as process,
    ):
        chunks = [await process.receive() for _ in range(3)]
        text = b"".join(chunks) + await read_all(process)
        assert len(text) == 5_000_004
        assert text.endswith(b"end\n")


@BOTH
async def test_private_streams_transfer_every_byte_and_end(anyio_backend):
    data = bytes(range(256)) * 20_000
    command = structs.replace(shell("cat; exit 3", stdin=StdinMode.PIPE), private_streams=True)
    async with ProcessSupervisor() as supervisor, open_child(command, supervisor) as process:

        async def send() -> None:
            await process.send(data)
            process.close_stdin()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            assert await read_all(process) == data
        assert await process.wait() == ProcessEnd(code=3)


async def test_send_to_an_exited_child_with_private_streams_raises_child_exited_error():
    command = structs.replace(shell("read x; exec 0<&-; sleep 1000", stdin=StdinMode.PIPE), private_streams=True)
    data = b"x\n" * (2 * SOCKET_BYTES)
    async with ProcessSupervisor() as supervisor, open_child(command, supervisor) as process:
        with pytest.raises(ChildExitedError):
            await process.send(data)
        with pytest.raises(ChildExitedError):
            await process.send(data)


FORGE = "sh -c 'echo forged >/proc/$PPID/fd/1; echo more >>/proc/$PPID/fd/0'; echo true answer"


@pytest.mark.parametrize(("private", "output"), [(True, b"true answer\n"), (False, b"forged\ntrue answer\n")])
async def test_private_streams_cannot_be_opened_by_a_descendant(private, output):
    command = structs.replace(shell(FORGE, stdin=StdinMode.PIPE), private_streams=private)
    async with ProcessSupervisor() as supervisor, open_child(command, supervisor) as process:
        assert await read_all(process) == output


async def test_output_of_an_exited_child_is_read_after_wait():
    async with ProcessSupervisor() as supervisor, open_child(shell("echo all of it"), supervisor) as process:
        await process.wait()
        assert await read_all(process) == b"all of it\n"


@BOTH
@EVERY
async def test_grandchild_with_open_pipes_delays_nothing(kind, watch):
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        async with open_child(shell("sleep 1000 & echo $!; exit 3"), supervisor) as process:
            holder = watch(await read_all(process))
            assert await process.wait() == ProcessEnd(code=3)
            assert holder.lives()
        assert holder.ends()
        assert process.killed_descendants == 1


@BOTH
async def test_flood_on_stderr_neither_blocks_nor_fills_memory(anyio_backend):
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async with ProcessSupervisor() as supervisor:
        before = resident()
        async with open_child(
            shell("head -c 200000000 /dev/zero >&2; echo the end >&2; echo done"), supervisor
        ) as process:
            assert await read_all(process) == b"done\n"
            await process.wait()
        assert process.stderr_bytes == 200_000_008
        assert process.stderr_tail == b"\0" * (STDERR_TAIL_BYTES - 8) + b"the end\n"
        assert resident() - before < 16 * 2**20


@EVERY
async def test_child_gets_exactly_its_environment(kind):
    given = {"PATH": os.environ["PATH"], "SECRET": "a b\nc'\"$x", "EMPTY": "", "odd.name-": "1"}
    async with ProcessSupervisor(max_containment=kind) as supervisor:
        for environ in (given, {name: value for name, value in given.items() if name != "odd.name-"}):
            command = ChildCommand(argv=("cat", "/proc/self/environ"), cwd="/", environ=environ)
            async with open_child(command, supervisor) as process:
                text = (await read_all(process)).decode()
            seen = dict(entry.split("=", 1) for entry in text.split("\0") if entry)
            assert len(seen.pop(CHILD_VARIABLE)) == 32
            assert seen == {**environ, INSTANCE_VARIABLE: supervisor.marker}


async def test_child_gets_its_arguments_unchanged(tmp_path):
    arguments = ("", "a b", "$HOME", "'", '"', "*", "-n", "\n", "é")
    command = ChildCommand(
        argv=("printf", "%s\\0", *arguments), cwd=str(tmp_path), environ={"PATH": os.environ["PATH"]}
    )
    async with ProcessSupervisor() as supervisor, open_child(command, supervisor) as process:
        assert (await read_all(process)).decode().split("\0")[:-1] == list(arguments)


async def test_child_has_no_terminal_and_an_empty_stdin(tmp_path):
    script = (
        "cat; pwd; (: </dev/tty) 2>/dev/null || echo no terminal; ps -o sid= -p $$ | grep -qw $$ && echo own session"
    )
    async with ProcessSupervisor() as supervisor, open_child(shell(script, cwd=str(tmp_path)), supervisor) as process:
        assert (await read_all(process)).decode() == f"{tmp_path}\nno terminal\nown session\n"


@EVERY
async def test_child_inherits_no_other_descriptors(kind, tmp_path):
    held = [os.open(tmp_path, os.O_RDONLY) for _ in range(40)]
    for descriptor in held[::2]:
        os.set_inheritable(descriptor, True)
    try:
        async with (
            ProcessSupervisor(max_containment=kind) as supervisor,
            open_child(shell("echo up; exec cat", stdin=StdinMode.PIPE), supervisor) as one,
        ):
            await read_lines(one, 1)
            async with open_child(shell("echo up; cat", stdin=StdinMode.PIPE), supervisor) as other:
                await read_lines(other, 1)
                assert descriptors(one.pid) == {0, 1, 2}
                assert descriptors(other.pid) == {0, 1, 2}
    finally:
        for descriptor in held:
            os.close(descriptor)


async def test_child_inherits_passed_descriptors_under_the_same_number(tmp_path):
    (tmp_path / "file").write_text("content")
    held = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        command = structs.replace(shell(f"cat /dev/fd/{held}"), pass_fds=(held,))
        async with ProcessSupervisor() as supervisor, open_child(command, supervisor) as process:
            assert await read_all(process) == b"content"
            assert await process.wait() == ProcessEnd(code=0)
    finally:
        os.close(held)


async def test_exits_while_the_loop_is_blocked_are_all_reported():
    ends: dict[int, ProcessEnd] = {}
    with assert_nothing_left_open():
        async with (
            ProcessSupervisor(max_containment=ContainmentKind.SUBREAPER) as supervisor,
            anyio.create_task_group() as tasks,
        ):
            started: list[int] = []
            all_started = anyio.Event()

            async def run(code: int) -> None:
                async with open_child(shell(f"exit {code}"), supervisor) as process:
                    started.append(process.pid)
                    if len(started) == 100:
                        all_started.set()
                    ends[code] = await process.wait()

            for code in range(100):
                tasks.start_soon(run, code)
            await all_started.wait()
            for pid in started:
                _block_until_dead(pid)
    assert ends == {code: ProcessEnd(code=code) for code in range(100)}


def _block_until_dead(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(10_000)
    os.close(descriptor)


async def test_child_survives_the_end_of_threads():
    async with (
        ProcessSupervisor() as supervisor,
        open_child(shell("cat", stdin=StdinMode.PIPE), supervisor) as process,
    ):
        for _ in range(5):
            thread = threading.Thread(target=len, args=("",))
            thread.start()
            await anyio.to_thread.run_sync(thread.join)
        await process.send(b"here\n")
        assert await process.receive() == b"here\n"


@BOTH
async def test_error_in_the_child_block_is_raised_unwrapped(anyio_backend, watch):
    async with ProcessSupervisor() as supervisor:
        with pytest.raises(KeyError, match="mine"):
            async with open_child(shell("exec sleep 1000"), supervisor) as process:
                sleeper = watch(process.pid)
                raise KeyError("mine")
        assert sleeper.ends()
        assert await process.wait() == ProcessEnd(signal=15)
