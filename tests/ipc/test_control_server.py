"""The control socket with server and client in one process, and with hostile clients."""

from __future__ import annotations

import os
import resource
import socket
import stat
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue import Retinue
from retinue.engines.base import EngineInfo
from retinue.engines.scripted import CAPABILITIES, RunCallback, ScriptedEngine, reply
from retinue.ipc import addresses
from retinue.ipc.client import ProcessUnreachableError, open_connection
from retinue.ipc.messages import (
    MAX_COMMAND_BYTES,
    MAX_HELLO_BYTES,
    CancelCommand,
    CancelReply,
    ExtendCommand,
    ExtendReply,
    SteerCommand,
    SteerReply,
)
from retinue.ipc.server import MAX_CLIENTS
from retinue.model.errors import ErrorCode
from retinue.model.event_codec import EventRecord
from retinue.model.events import DeadlineExtended, RunEnded, RunQueued, Text, TextDelta
from retinue.model.events import SteeringDelivered as SteeredEvent
from retinue.runtime.active_run import ABORTED
from retinue.sessions.jsonl import JsonlStore

TIMEOUT = 20.0


class WaitingRuns:
    """A Retinue whose runs wait until the test releases them."""

    def __init__(self, runtime: Path, **options) -> None:
        self.started, self.release = anyio.Event(), anyio.Event()
        self.left = 0
        """Runs that have not started yet."""
        kind = EngineInfo(
            name="scripted", capabilities=CAPABILITIES, make=self._engine, not_installed_reason=lambda: None
        )
        environ = {"HOME": str(runtime), "XDG_RUNTIME_DIR": str(runtime)}
        self.retinue = Retinue(engine="scripted", engines={"scripted": kind}, environ=environ, cwd=runtime, **options)
        self.folder = runtime / "retinue"

    def _engine(self):
        return ScriptedEngine(
            Text("what there was"),
            RunCallback(self._start),
            RunCallback(self.release.wait),
            reply("word " * 40, deltas=10),
        )

    async def _start(self):
        self.left -= 1
        if self.left == 0:
            self.started.set()

    @asynccontextmanager
    async def waiting(self, count=1):
        """Start `count` runs and yield their owners when all of them wait."""
        self.left = count
        async with self.retinue, anyio.create_task_group() as group:
            group.start_soon(self.retinue.delegate, [("explorer", "look")] * count)
            with anyio.fail_after(TIMEOUT):
                await self.started.wait()
            yield await self.retinue.owners()
            self.release.set()


@pytest.fixture
def runs(tmp_path_factory):
    # A short directory name: paths of sockets are limited.
    runtime = tmp_path_factory.mktemp("r")
    runtime.chmod(0o700)
    return WaitingRuns(runtime)


async def test_control_socket_is_private_and_removed_after_the_run(runs):
    async with runs.waiting() as owners:
        (owner,) = owners
        path = Path(owner.control)
        assert path.parent == runs.folder
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert owner.pid == os.getpid()
    assert list(runs.folder.iterdir()) == []


async def test_control_socket_is_not_created_before_the_first_run(runs):
    async with runs.retinue:
        assert not runs.folder.exists()


class EventCollector:
    """A watcher that collects what a process sends."""

    def __init__(self) -> None:
        self.live_runs: list[tuple[str, ...]] = []
        self.events: list[EventRecord] = []
        self.live_runs_received = anyio.Event()

    async def on_live_runs(self, runs):
        self.live_runs.append(runs)
        self.live_runs_received.set()

    async def on_event(self, record):
        self.events.append(record)

    async def watch(self, address):
        async with open_connection(address) as control:
            await control.watch(self.on_live_runs, self.on_event)

    def event_types(self):
        return [type(record.event) for record in self.events]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_watcher_receives_live_runs_then_events_until_the_end(runs):
    collector = EventCollector()
    async with anyio.create_task_group() as group, runs.waiting(2) as owners:
        group.start_soon(collector.watch, owners[0].control)
        await collector.live_runs_received.wait()
    assert [set(live) for live in collector.live_runs] == [{owner.run for owner in owners}]
    assert RunQueued not in collector.event_types()
    assert TextDelta in collector.event_types()
    assert collector.event_types().count(RunEnded) == 2


async def test_watcher_receives_the_end_of_runs_when_the_process_closes(runs):
    collector = EventCollector()
    async with anyio.create_task_group() as group, runs.waiting() as (owner,):
        group.start_soon(collector.watch, owner.control)
        await collector.live_runs_received.wait()
        runs.retinue.stop_all()
    assert collector.event_types() == [RunEnded]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_cancel_reply_arrives_after_the_run_has_ended(runs):
    async with runs.waiting(2) as owners:
        async with open_connection(owners[0].control) as control:
            done = await control.request(CancelCommand(owners[0].run), CancelReply)
            assert done.found
            assert done.failure == ABORTED
            assert await control.request(CancelCommand("f" * 32), CancelReply) == CancelReply("f" * 32, found=False)
        assert len(await runs.retinue.owners()) == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_run_is_steered_and_extended_over_the_socket(runs):
    async with runs.waiting() as (owner,), open_connection(owner.control) as control:
        assert await control.request(SteerCommand(owner.run, "mind the gap"), SteerReply) == SteerReply(owner.run)
        assert await control.request(ExtendCommand(owner.run, 60), ExtendReply) == ExtendReply(owner.run, 660.0)
        runs.release.set()
    events = [record.event async for record in runs.retinue.history(owner.run)]
    assert events.count(SteeredEvent("mind the gap")) == 1
    assert events.count(DeadlineExtended(60.0, 660.0)) == 1


async def test_invalid_steering_and_extension_reply_with_the_failure(runs):
    async with runs.waiting() as (owner,), open_connection(owner.control) as control:
        empty, unknown = (
            await control.request(SteerCommand(owner.run, " \n"), SteerReply),
            await control.request(SteerCommand("f" * 32, "x"), SteerReply),
        )
        nothing, nobody = (
            await control.request(ExtendCommand(owner.run, 0), ExtendReply),
            await control.request(ExtendCommand("f" * 32, 60), ExtendReply),
        )
    answers: list[SteerReply | ExtendReply] = [empty, unknown, nothing, nobody]
    codes = [answer.failure and answer.failure.code for answer in answers]
    assert codes == [ErrorCode.INVALID_INPUT, ErrorCode.SESSION_NOT_FOUND] * 2
    assert (nothing.timeout, nobody.run) == (None, "f" * 32)


async def test_command_with_wrong_fields_is_declined(runs):
    wrong = [
        b'{"type":"steer","run":"x"}\n',
        b'{"type":"steer","run":"x","text":7}\n',
        b'{"type":"steer","run":"x","text":"\xff"}\n',
        b'{"type":"extend","run":"x","seconds":"60"}\n',
        b'{"type":"extend","run":"x","seconds":NaN}\n',
        b'{"type":"extend","run":"x","seconds":true}\n',
    ]
    async with runs.waiting() as (owner,):
        _, *answers = await send_raw(owner.control, HELLO, *wrong)
        assert [answer["type"] for answer in answers] == ["declined"] * len(wrong)
        (_, huge) = await send_raw(owner.control, HELLO, b'{"type":"extend","run":"x","seconds":1e300}\n')
        assert huge["failure"]["code"] == "invalid_input"


async def test_steering_text_up_to_max_task_bytes_is_accepted(runs):
    text = "\u2603" * (2**20 // 3)
    async with runs.waiting() as (owner,), open_connection(owner.control) as control:
        assert (await control.request(SteerCommand(owner.run, text), SteerReply)).failure is None
        too_long = await control.request(SteerCommand(owner.run, f"{text}{text}"), SteerReply)
        assert too_long.failure
        assert "max_task_bytes" in too_long.failure.message


# -- hostile clients ------------------------------------------------------------------------------


async def send_raw(address, *lines):
    """Send lines and return the reply to each, None at the end of the connection."""
    async with await anyio.connect_unix(address) as stream:
        answers, found = BufferedByteReceiveStream(stream), []
        try:
            for line in lines:
                await stream.send(line)
                found.append(msgspec.json.decode(await answers.receive_until(b"\n", 2**20)))
        except (anyio.IncompleteRead, anyio.BrokenResourceError):
            found.append(None)
        return found


HELLO = b'{"type":"hello","v":1}\n'


async def test_unknown_command_is_declined_and_the_connection_continues(runs):
    async with runs.waiting() as (owner,):
        hello, promote, noise, known = await send_raw(
            owner.control, HELLO, b'{"type":"promote","run":"x"}\n', b"\xff\xfe\n", b'{"type":"cancel","run":"x"}\n'
        )
        assert (hello["type"], promote["type"], noise["type"]) == ("welcome", "declined", "declined")
        assert known == {"type": "cancelled", "run": "x", "found": False}


@pytest.mark.parametrize(
    "first", [b'{"type":"hello","v":99}\n', b'{"type":"cancel","run":"x"}\n', b"GET / HTTP/1.1\n"]
)
async def test_client_without_a_valid_hello_is_declined(runs, first):
    async with runs.waiting() as (owner,):
        assert [answer["type"] for answer in await send_raw(owner.control, first)] == ["declined"]


@pytest.mark.parametrize("after_hello", [True, False])
async def test_endless_line_closes_only_the_connection_of_its_sender(runs, after_hello):
    async with runs.waiting() as (owner,):
        most = MAX_COMMAND_BYTES if after_hello else MAX_HELLO_BYTES
        *_, last = await send_raw(owner.control, *([HELLO] * after_hello), b"x" * (most + 1))
        assert last is None or last["type"] == "declined"
        async with open_connection(owner.control) as control:
            assert (await control.request(CancelCommand(owner.run), CancelReply)).found


async def test_connection_is_accepted_after_descriptors_become_free(runs):
    async with runs.waiting() as (owner,):
        with socket.socket(socket.AF_UNIX) as early, no_more_descriptors():
            early.connect(owner.control)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
        with anyio.fail_after(TIMEOUT):
            async with open_connection(owner.control) as control:
                assert (await control.request(CancelCommand(owner.run), CancelReply)).found


@contextmanager
def no_more_descriptors():
    """Leave no free file descriptor in the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class FaultyStore(JsonlStore):
    """A store that raises when it looks up a run."""

    async def find(self, name):
        raise ZeroDivisionError(name)


async def test_server_fault_ends_its_connection_is_logged_and_reaches_no_run(tmp_path_factory, caplog):
    runtime = tmp_path_factory.mktemp("r")
    runtime.chmod(0o700)
    async with FaultyStore(runtime / "state") as store:
        runs = WaitingRuns(runtime, store=store)
        async with runs.waiting() as (owner,):
            with pytest.raises(ProcessUnreachableError, match="The process ended before it answered"):
                async with open_connection(owner.control) as control:
                    await control.request(SteerCommand("f" * 32, "x"), SteerReply)
            async with open_connection(owner.control) as control:
                assert (await control.request(CancelCommand(owner.run), CancelReply)).found
    (record,) = caplog.records
    assert "ZeroDivisionError" in record.exc_text


async def test_clients_beyond_max_clients_are_declined(runs):
    async with runs.waiting() as (owner,):
        clients = [socket.socket(socket.AF_UNIX) for _ in range(MAX_CLIENTS)]
        try:
            for client in clients:
                client.connect(owner.control)
                client.sendall(HELLO)
            with pytest.raises(ProcessUnreachableError, match="32 clients are connected, which is the limit"):
                async with open_connection(owner.control):
                    pass
        finally:
            for client in clients:
                client.close()


async def test_watcher_that_does_not_read_delays_no_run(runs):
    with socket.socket(socket.AF_UNIX) as stuck:
        async with runs.waiting() as (owner,):
            stuck.connect(owner.control)
            stuck.sendall(HELLO + b'{"type":"watch"}\n')
            runs.release.set()
            result = (await runs.retinue.delegate([("explorer", "x" * 200_000)] * 8))[0]
            assert result.failure is None


# -- socket paths ----------------------------------------------------------------------------------------


@pytest.fixture
def stale_socket(tmp_path):
    """Return the path of a socket as a killed process leaves it."""
    tmp_path.chmod(0o700)
    listener, path = addresses.open_listener({"XDG_RUNTIME_DIR": str(tmp_path)})
    listener.close()
    return path.rename(path.with_name("99999999-stale.sock"))


def test_socket_of_a_killed_process_is_stale_and_removed(tmp_path, stale_socket):
    listener, path = addresses.open_listener({"XDG_RUNTIME_DIR": str(tmp_path)})
    with listener:
        other = path.rename(path.with_name("99999998-live.sock"))
        addresses.open_listener({"XDG_RUNTIME_DIR": str(tmp_path)})[0].close()
        assert (stale_socket.exists(), other.exists(), addresses.is_stale(other)) == (False, True, False)


async def test_connecting_to_a_stale_socket_fails_and_removes_it(stale_socket):
    with pytest.raises(ProcessUnreachableError, match="The process has ended"):
        async with open_connection(str(stale_socket)):
            pass
    assert not stale_socket.exists()


def test_runtime_directory_too_long_public_or_missing_is_not_used(tmp_path):
    deep = tmp_path / ("x" * 120)
    deep.mkdir(mode=0o700)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with TemporaryDirectory() as temporary:  # pytest's own may be too long
        for runtime in (deep, open_to_all, tmp_path / "missing", Path("relative")):
            listener, path = addresses.open_listener({"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": temporary})
            listener.close()
            path.unlink()
            assert path.parent == Path(temporary, f"retinue-{os.getuid()}")


def test_public_socket_directory_is_refused(tmp_path):
    (tmp_path / f"retinue-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"retinue-{os.getuid()}").chmod(0o777)
    with pytest.raises(PermissionError):
        addresses.open_listener({"TMPDIR": str(tmp_path)})


async def test_run_continues_without_a_socket(runs, caplog):
    runs.folder.mkdir()
    runs.folder.chmod(0o755)
    async with runs.waiting() as (owner,):
        assert owner.control is None
    (record,) = caplog.records
    assert record.getMessage() == (
        "Other processes cannot watch or cancel the runs of this process, because it has no socket (not a private "
        "folder of this user). The runs continue."
    )
