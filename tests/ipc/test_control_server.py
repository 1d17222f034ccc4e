"""The control socket: both ends of it in one process, and clients that are no friends."""

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
from retinue.ipc import socket_path as places
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
from retinue.runtime.orchestrator import ABORTED
from retinue.sessions.jsonl import JsonlStore

PATIENCE = 20.0


class Stage:
    """A Retinue whose runs wait for the test."""

    def __init__(self, runtime: Path, **options) -> None:
        self.begun, self.go_on = anyio.Event(), anyio.Event()
        self.left = 0
        """Runs that have not begun yet."""
        kind = EngineInfo(
            name="scripted", capabilities=CAPABILITIES, make=self._engine, not_installed_reason=lambda: None
        )
        environ = {"HOME": str(runtime), "XDG_RUNTIME_DIR": str(runtime)}
        self.retinue = Retinue(engine="scripted", engines={"scripted": kind}, environ=environ, cwd=runtime, **options)
        self.folder = runtime / "retinue"

    def _engine(self):
        return ScriptedEngine(
            Text("what there was"),
            RunCallback(self._begin),
            RunCallback(self.go_on.wait),
            reply("word " * 40, deltas=10),
        )

    async def _begin(self):
        self.left -= 1
        if self.left == 0:
            self.begun.set()

    @asynccontextmanager
    async def at_work(self, count=1):
        """The owners of so many runs, all of them waiting."""
        self.left = count
        async with self.retinue, anyio.create_task_group() as group:
            group.start_soon(self.retinue.delegate, [("explorer", "look")] * count)
            with anyio.fail_after(PATIENCE):
                await self.begun.wait()
            yield await self.retinue.owners()
            self.go_on.set()


@pytest.fixture
def stage(tmp_path_factory):
    # A folder of its own, as short as there is: paths of sockets are short.
    runtime = tmp_path_factory.mktemp("r")
    runtime.chmod(0o700)
    return Stage(runtime)


async def test_a_run_has_a_socket_that_only_its_user_can_use_and_that_ends_with_it(stage):
    async with stage.at_work() as owners:
        (owner,) = owners
        path = Path(owner.control)
        assert path.parent == stage.folder
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert owner.pid == os.getpid()
    assert list(stage.folder.iterdir()) == []


async def test_nothing_listens_before_the_first_run(stage):
    async with stage.retinue:
        assert not stage.folder.exists()


class Watching:
    """Someone who notes what a process tells."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []
        self.seen: list[EventRecord] = []
        self.is_told = anyio.Event()

    async def live(self, runs):
        self.told.append(runs)
        self.is_told.set()

    async def take(self, stamped):
        self.seen.append(stamped)

    async def look(self, address):
        async with open_connection(address) as control:
            await control.watch(self.live, self.take)

    def kinds(self):
        return [type(stamped.event) for stamped in self.seen]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_watcher_is_told_what_is_live_and_then_what_happens_to_the_end(stage):
    watching = Watching()
    async with anyio.create_task_group() as group, stage.at_work(2) as owners:
        group.start_soon(watching.look, owners[0].control)
        await watching.is_told.wait()
    assert [set(runs) for runs in watching.told] == [{owner.run for owner in owners}]
    assert RunQueued not in watching.kinds()
    assert TextDelta in watching.kinds()
    assert watching.kinds().count(RunEnded) == 2


async def test_the_end_of_everything_reaches_a_watcher(stage):
    watching = Watching()
    async with anyio.create_task_group() as group, stage.at_work() as (owner,):
        group.start_soon(watching.look, owner.control)
        await watching.is_told.wait()
        stage.retinue.stop_all()
    assert watching.kinds() == [RunEnded]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_cancelled_run_has_ended_when_the_answer_comes(stage):
    async with stage.at_work(2) as owners:
        async with open_connection(owners[0].control) as control:
            done = await control.request(CancelCommand(owners[0].run), CancelReply)
            assert done.found
            assert done.failure == ABORTED
            assert await control.request(CancelCommand("f" * 32), CancelReply) == CancelReply("f" * 32, found=False)
        assert len(await stage.retinue.owners()) == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_run_is_steered_and_extended_by_another(stage):
    async with stage.at_work() as (owner,), open_connection(owner.control) as control:
        assert await control.request(SteerCommand(owner.run, "mind the gap"), SteerReply) == SteerReply(owner.run)
        assert await control.request(ExtendCommand(owner.run, 60), ExtendReply) == ExtendReply(owner.run, 660.0)
        stage.go_on.set()
    events = [stamped.event async for stamped in stage.retinue.history(owner.run)]
    assert events.count(SteeredEvent("mind the gap")) == 1
    assert events.count(DeadlineExtended(60.0, 660.0)) == 1


async def test_what_cannot_be_said_or_given_is_answered_with_why(stage):
    async with stage.at_work() as (owner,), open_connection(owner.control) as control:
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


async def test_an_order_with_the_wrong_fields_is_declined(stage):
    wrong = [
        b'{"type":"steer","run":"x"}\n',
        b'{"type":"steer","run":"x","text":7}\n',
        b'{"type":"steer","run":"x","text":"\xff"}\n',
        b'{"type":"extend","run":"x","seconds":"60"}\n',
        b'{"type":"extend","run":"x","seconds":NaN}\n',
        b'{"type":"extend","run":"x","seconds":true}\n',
    ]
    async with stage.at_work() as (owner,):
        _, *answers = await raw(owner.control, HELLO, *wrong)
        assert [answer["type"] for answer in answers] == ["declined"] * len(wrong)
        (_, huge) = await raw(owner.control, HELLO, b'{"type":"extend","run":"x","seconds":1e300}\n')
        assert huge["failure"]["code"] == "invalid_input"


async def test_a_text_as_long_as_a_task_may_be_is_said(stage):
    text = "\u2603" * (2**20 // 3)
    async with stage.at_work() as (owner,), open_connection(owner.control) as control:
        assert (await control.request(SteerCommand(owner.run, text), SteerReply)).failure is None
        too_long = await control.request(SteerCommand(owner.run, f"{text}{text}"), SteerReply)
        assert too_long.failure
        assert "max_task_bytes" in too_long.failure.message


# -- who is no friend ------------------------------------------------------------------------------


async def raw(address, *lines):
    """What comes back for these bytes, up to the end of the connection or the last answer."""
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


async def test_what_is_no_order_is_declined_and_the_connection_goes_on(stage):
    async with stage.at_work() as (owner,):
        welcome, promote, noise, known = await raw(
            owner.control, HELLO, b'{"type":"promote","run":"x"}\n', b"\xff\xfe\n", b'{"type":"cancel","run":"x"}\n'
        )
        assert (welcome["type"], promote["type"], noise["type"]) == ("welcome", "declined", "declined")
        assert known == {"type": "cancelled", "run": "x", "found": False}


@pytest.mark.parametrize(
    "first", [b'{"type":"hello","v":99}\n', b'{"type":"cancel","run":"x"}\n', b"GET / HTTP/1.1\n"]
)
async def test_whoever_does_not_greet_in_this_version_is_declined(stage, first):
    async with stage.at_work() as (owner,):
        assert [answer["type"] for answer in await raw(owner.control, first)] == ["declined"]


@pytest.mark.parametrize("greeted", [True, False])
async def test_a_line_without_an_end_costs_its_sender_the_connection_and_nobody_else(stage, greeted):
    async with stage.at_work() as (owner,):
        most = MAX_COMMAND_BYTES if greeted else MAX_HELLO_BYTES
        *_, last = await raw(owner.control, *([HELLO] * greeted), b"x" * (most + 1))
        assert last is None or last["type"] == "declined"
        async with open_connection(owner.control) as control:
            assert (await control.request(CancelCommand(owner.run), CancelReply)).found


async def test_whoever_knocks_while_there_is_no_descriptor_is_let_in_once_there_is(stage):
    async with stage.at_work() as (owner,):
        with socket.socket(socket.AF_UNIX) as early, no_more_descriptors():
            early.connect(owner.control)
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
        with anyio.fail_after(PATIENCE):
            async with open_connection(owner.control) as control:
                assert (await control.request(CancelCommand(owner.run), CancelReply)).found


@contextmanager
def no_more_descriptors():
    """A block in which nothing can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Faulty(JsonlStore):
    """A store with a fault where a run is looked for that is not there."""

    async def find(self, name):
        raise ZeroDivisionError(name)


async def test_a_fault_of_ours_ends_its_connection_is_logged_and_reaches_no_run(tmp_path_factory, caplog):
    runtime = tmp_path_factory.mktemp("r")
    runtime.chmod(0o700)
    async with Faulty(runtime / "state") as store:
        stage = Stage(runtime, store=store)
        async with stage.at_work() as (owner,):
            with pytest.raises(ProcessUnreachableError, match="It ended before it had answered"):
                async with open_connection(owner.control) as control:
                    await control.request(SteerCommand("f" * 32, "x"), SteerReply)
            async with open_connection(owner.control) as control:
                assert (await control.request(CancelCommand(owner.run), CancelReply)).found
    (record,) = caplog.records
    assert "ZeroDivisionError" in record.exc_text


async def test_only_so_many_are_served_at_once(stage):
    async with stage.at_work() as (owner,):
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(MAX_CLIENTS)]
        try:
            for one in crowd:
                one.connect(owner.control)
                one.sendall(HELLO)
            with pytest.raises(ProcessUnreachableError, match="32 others are connected already"):
                async with open_connection(owner.control):
                    pass
        finally:
            for one in crowd:
                one.close()


async def test_a_watcher_who_does_not_read_holds_up_no_run(stage):
    with socket.socket(socket.AF_UNIX) as stuck:
        async with stage.at_work() as (owner,):
            stuck.connect(owner.control)
            stuck.sendall(HELLO + b'{"type":"watch"}\n')
            stage.go_on.set()
            result = (await stage.retinue.delegate([("explorer", "x" * 200_000)] * 8))[0]
            assert result.failure is None


# -- places ----------------------------------------------------------------------------------------


@pytest.fixture
def dead(tmp_path):
    """A socket as a killed process leaves it."""
    tmp_path.chmod(0o700)
    listener, path = places.open_listener({"XDG_RUNTIME_DIR": str(tmp_path)})
    listener.close()
    return path.rename(path.with_name("99999999-dead.sock"))


def test_the_socket_of_a_killed_process_is_found_dead_and_removed(tmp_path, dead):
    listener, path = places.open_listener({"XDG_RUNTIME_DIR": str(tmp_path)})
    with listener:
        other = path.rename(path.with_name("99999998-live.sock"))
        places.open_listener({"XDG_RUNTIME_DIR": str(tmp_path)})[0].close()
        assert (dead.exists(), other.exists(), places.is_stale(other)) == (False, True, False)


async def test_connecting_to_a_dead_socket_says_so_and_removes_it(dead):
    with pytest.raises(ProcessUnreachableError, match="Its process is gone"):
        async with open_connection(str(dead)):
            pass
    assert not dead.exists()


def test_a_runtime_folder_that_is_too_long_open_to_others_or_missing_is_not_used(tmp_path):
    deep = tmp_path / ("x" * 120)
    deep.mkdir(mode=0o700)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with TemporaryDirectory() as temporary:  # pytest's own may be too long
        for runtime in (deep, open_to_all, tmp_path / "missing", Path("relative")):
            listener, path = places.open_listener({"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": temporary})
            listener.close()
            path.unlink()
            assert path.parent == Path(temporary, f"retinue-{os.getuid()}")


def test_a_folder_of_someone_elses_making_is_refused(tmp_path):
    (tmp_path / f"retinue-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"retinue-{os.getuid()}").chmod(0o777)
    with pytest.raises(PermissionError):
        places.open_listener({"TMPDIR": str(tmp_path)})


async def test_a_run_goes_on_where_there_can_be_no_socket(stage, caplog):
    stage.folder.mkdir()
    stage.folder.chmod(0o755)
    async with stage.at_work() as (owner,):
        assert owner.control is None
    (record,) = caplog.records
    assert record.getMessage() == (
        "Other processes cannot watch or cancel the runs of this one: no socket (not a private folder of this user). "
        "The runs go on."
    )
