"""Acting requests of processes that a run started are refused by every server, with the right token, too."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import pytest
from tests.cli.conftest import wait_for
from tests.servers.http.test_processes import ServerProcess
from tests.support.run_children import CLIENT, WAYS, open_run_client

from retinue.servers.asgi.client_process import REFUSED, is_sent_by_run
from retinue.support.processes import RUN_PROCESSES_KNOWN

pytestmark = [pytest.mark.process, pytest.mark.skipif(not RUN_PROCESSES_KNOWN, reason="Linux")]
RUN = {"agent": "explorer", "task": "look"}


def raw_request(port, token, method, path, body):
    text = "" if body is None else json.dumps(body)
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "Connection: close",
        f"Content-Length: {len(text)}",
    ]
    return "\r\n".join([*head, "", text])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/runs", RUN),
        ("POST", "/api/v1/runs/1a2b3c4d/cancel", {}),
        ("POST", "/api/v1/agents/explorer/trust", {}),
        ("DELETE", "/api/v1/runs/1a2b3c4d", {}),
    ],
    ids=["start", "cancel", "trust", "delete"],
)
async def test_acting_request_of_a_process_of_a_run_is_refused(process, way, method, path, body):
    server = ServerProcess(process)
    request = raw_request(server.port, server.token, method, path, body)
    async with open_run_client(way, "send_request", str(server.port), request) as response:
        assert response.startswith("HTTP/1.1 403 ")
        assert REFUSED in response
    assert server.request("GET", "health")["live"] == 0


async def test_reading_request_of_a_process_of_a_run_is_answered(process):
    server = ServerProcess(process)
    request = raw_request(server.port, server.token, "GET", "/api/v1/health", None)
    async with open_run_client("open", "send_request", str(server.port), request) as response:
        assert response.startswith("HTTP/1.1 200 ")


async def test_user_may_act_while_processes_of_runs_exist(process):
    server = ServerProcess(process)
    async with open_run_client("daemon", "report_pid"):
        started = await anyio.to_thread.run_sync(server.request, "POST", "runs", RUN)
        assert started["run"]


async def test_mcp_call_of_a_process_of_a_run_is_refused(process):
    server = process.start("mcp", "--http", "0", "--engine", "scripted", script=[{"text": "done"}])
    printed = wait_for(server, "token in")
    found = re.search(r"127\.0\.0\.1:(\d+).*token in (\S+)", printed, re.DOTALL)
    assert found
    port, token = found[1], Path(found[2]).read_text().strip()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "subagent", "arguments": RUN}}
    async with open_run_client(
        "daemon", "send_request", port, raw_request(port, token, "POST", "/mcp", call)
    ) as answer:
        assert answer.startswith("HTTP/1.1 403 ")
        assert REFUSED in answer


# -- finding the process ---------------------------------------------------------------------------


@contextmanager
def listening(family=socket.AF_INET, host="127.0.0.1"):
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        yield listener


@pytest.mark.parametrize(
    ("family", "host", "target"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1"),
    ],
    ids=["IPv4", "IPv6", "both", "mapped"],
)
async def test_connection_of_a_run_is_recognized_in_every_address_family(family, host, target):
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    with listening(family, host) as listener:
        port = str(listener.getsockname()[1])
        accept = anyio.to_thread.run_sync
        async with open_run_client("open", "hold_connection", target, port) as pid:
            connection, client = await accept(listener.accept)
            with connection:
                assert pid
                assert is_sent_by_run(client[:2], connection.getsockname()[:2])
        with socket.create_connection((target, int(port))), listener.accept()[0] as connection:
            assert not is_sent_by_run(connection.getpeername()[:2], connection.getsockname()[:2])


def test_connection_whose_process_is_gone_counts_as_one_of_a_run():
    with listening() as listener:
        address = listener.getsockname()
        subprocess.run([sys.executable, CLIENT, "open", "leave_connection", *map(str, address)], check=True)
        connection, client = listener.accept()
        with connection:
            assert is_sent_by_run(client, address)


def test_connection_that_is_in_no_table_counts_as_one_of_a_run_unless_it_is_of_another_machine():
    server = ("127.0.0.1", 9)
    assert is_sent_by_run(("127.0.0.1", 1), server)
    assert not is_sent_by_run(("192.0.2.1", 1), server)
