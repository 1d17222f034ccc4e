"""Processes of a run cannot command any run over the control socket, however they hide; the user's own can."""

from __future__ import annotations

import json
import socket
import sys

import anyio
import anyio.to_thread
import pytest
from tests.ipc.test_control_server import TIMEOUT, WaitingRuns
from tests.support.run_children import CLIENT, WAYS, open_adopted_client, open_run_client

from retinue.ipc.connection import COMMANDED_BY_RUN
from retinue.support.processes import RUN_PROCESSES_KNOWN

pytestmark = [pytest.mark.process, pytest.mark.skipif(not RUN_PROCESSES_KNOWN, reason="Linux")]


@pytest.fixture
def runs(tmp_path_factory):
    runtime = tmp_path_factory.mktemp("r")
    runtime.chmod(0o700)
    return WaitingRuns(runtime)


def commands(run):
    return (
        json.dumps({"type": "cancel", "run": run}),
        json.dumps({"type": "steer", "run": run, "text": "stop"}),
        json.dumps({"type": "extend", "run": run, "seconds": 7200}),
    )


DECLINED = [{"type": "declined", "message": COMMANDED_BY_RUN}] * 3


@pytest.mark.parametrize("way", WAYS)
async def test_process_of_a_run_cannot_cancel_steer_or_extend(runs, way):
    with anyio.fail_after(TIMEOUT):
        async with runs.waiting() as (owner,):
            async with open_run_client(way, "send_commands", owner.control, *commands(owner.run)) as replies:
                assert replies == DECLINED
            assert await runs.retinue.owners() == (owner,)


@pytest.mark.parametrize("way", WAYS)
async def test_process_that_a_watchdog_adopted_cannot_command(runs, way):
    async with runs.waiting() as (owner,):
        adopted = open_adopted_client(way, "send_commands", owner.control, *commands(owner.run))
        assert await anyio.to_thread.run_sync(adopted.__enter__) == DECLINED
        adopted.__exit__(None, None, None)
        assert await runs.retinue.owners() == (owner,)


async def test_process_of_a_run_may_watch(runs):
    async with (
        runs.waiting() as (owner,),
        open_run_client("open", "send_commands", owner.control, '{"type":"watch"}') as replies,
    ):
        assert replies == [{"type": "live", "runs": [owner.run]}]


async def test_process_of_the_user_may_command(runs):
    async with runs.waiting() as (owner,):
        client = [sys.executable, CLIENT, "open", "send_commands", owner.control, commands(owner.run)[0]]
        done = await anyio.run_process(client)
        (reply,) = json.loads(done.stdout)
        assert (reply["type"], reply["found"]) == ("cancelled", True)


async def test_connection_of_a_process_that_is_gone_cannot_command(runs):
    connect = "import socket, sys; s = socket.socket(fileno=0); s.connect(sys.argv[1])"
    async with runs.waiting() as (owner,):
        with socket.socket(socket.AF_UNIX) as shared:
            await anyio.run_process([sys.executable, "-c", connect, owner.control], stdin=shared.fileno())
            shared.sendall(b'{"type":"hello","v":1}\n' + commands(owner.run)[0].encode() + b"\n")

            def read_replies():
                with shared.makefile() as lines:
                    return [json.loads(lines.readline()) for _ in range(2)]

            assert (await anyio.to_thread.run_sync(read_replies))[1:] == DECLINED[:1]
        assert await runs.retinue.owners() == (owner,)
