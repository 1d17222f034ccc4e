"""`retinue mcp --http`: several clients with a token and sessions each."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from tests.servers.mcp.tasks_client import TasksExtension, send_task_request, start_task, wait_ended

from retinue.servers.asgi.serving import serve_http
from retinue.servers.mcp.jobs import INTERRUPTED_MESSAGE

pytestmark = pytest.mark.process

PATIENCE = 30.0
TASK = {"agent": "explorer", "task": "look"}
SCRIPT = {
    "agents": {"tester": [{"call": "read", "args": {"path": "a.py"}}, {"hang": True}]},
    "steps": [{"say": "done"}],
}
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


class Served:
    """A server of two clients, alice and bob, in a process of its own."""

    def __init__(self, place: Path, *arguments: str) -> None:
        self.place = place
        self.environ = {**os.environ, "HOME": str(place), "RETINUE_SCRIPT": json.dumps(SCRIPT)}
        both = ("--client", "alice", "--client", "bob")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "retinue", "mcp", "--engine", "scripted", "--http", "0", *both, *arguments],
            cwd=place,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = re.findall(r"http\S+", self._line())[0]
        self.port = int(self.url.split(":")[2].split("/")[0])
        files = [Path(self._line().split(" in ")[1].strip()) for _ in range(2)]
        self.tokens = {file.name: file.read_text().strip() for file in files}

    def _line(self) -> str:
        assert self.process.stderr
        return self.process.stderr.readline()

    @asynccontextmanager
    async def client(self, name: str = "alice", mode: str = "auto", **more: Any) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"}
        async with (
            create_mcp_http_client(headers=headers) as transport,
            Client(streamable_http_client(self.url, http_client=transport), mode=mode, **more) as client,
        ):
            yield client

    def status(self, headers: dict[str, str], method: str = "POST", body: bytes = b"{}") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, "/mcp", body, headers)
        status = connection.getresponse().status
        connection.close()
        return status

    def sessions(self) -> list[Any]:
        """What the user sees of the sessions."""
        found = subprocess.run(
            [sys.executable, "-m", "retinue", "sessions", "list", "--json"],
            capture_output=True,
            timeout=PATIENCE,
            cwd=self.place,
            env=self.environ,
            check=True,
        )
        listed: list[Any] = json.loads(found.stdout)["sessions"]
        return listed

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"), "--background")
    yield server
    server.end()


@MODES
async def test_sdk_client_is_answered_over_http_in_both_revisions(served, mode):
    told: list[str] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with served.client(mode=mode) as client:
        result = await client.call_tool("subagent", TASK, progress_callback=progressed)
    assert result.content[0].text == "done"
    assert all(message.startswith("explorer: ") for message in told)


def test_lone_surrogate_in_a_call_over_http_is_answered(served):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    params = {"name": "subagent", "arguments": {"agent": "nobody \ud83d", "task": "x"}}
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    headers = {
        "Authorization": f"Bearer {served.tokens['alice']}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "subagent",
    }
    text = json.dumps({**body, "params": {**params, "_meta": meta}})
    assert served.status(headers, body=text.encode()) == 200


async def test_client_finds_no_session_of_another_client(served):
    async with served.client("alice") as alice, served.client("bob") as bob:
        arguments = {"tasks": [{"name": "a", "prompt": "look", "profile": "explorer"}]}
        (mine,) = (await alice.call_tool("delegate_to_subagents", arguments)).structured_content["sessionIds"]
        known = await alice.call_tool("get_subagent_output", {"sessionId": mine})
        resumed = {"tasks": [{"name": "a", "prompt": "go on", "resume": mine}]}
        tries = [
            ("get_subagent_output", {"sessionId": mine}),
            ("get_subagent_session", {"sessionId": mine}),
            ("get_subagent_session", {"sessionId": mine[:8]}),
            ("delegate_to_subagents", resumed),
            ("subagent_status", {"id": mine}),
            ("subagent_wait", {"id": mine}),
            ("subagent_steer", {"id": mine, "text": "Tell me what you know."}),
            ("subagent_cancel", {"id": mine}),
            ("subagent_start", {**TASK, "id": mine}),
        ]
        answers = [(await bob.call_tool(tool, given)).structured_content["error"]["code"] for tool, given in tries]
        unknown = await bob.call_tool("get_subagent_output", {"sessionId": "0123456789abcdef"})
        forbidden = await bob.call_tool("get_subagent_output", {"sessionId": mine})
        again = await alice.call_tool("delegate_to_subagents", resumed)
    assert known.content[0].text == "done"
    assert answers == ["session_not_found"] * len(tries)
    assert forbidden.content[0].text == unknown.content[0].text.replace("0123456789abcdef", mine)
    assert again.structured_content["sessionIds"] == [mine]
    assert mine in {session["session"][:16] for session in served.sessions()}  # the user has them all


async def test_mcp_session_is_bound_to_its_client(served):
    """The revisions with sessions: knowing another's session id is no use."""

    def headers(name: str, **more: str) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {served.tokens[name]}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **more,
        }

    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
    connection.request("POST", "/mcp", body, headers("alice"))
    session = connection.getresponse().getheader("mcp-session-id")
    connection.close()
    ping = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "ping"}).encode()
    assert session
    assert served.status(headers("alice", **{"Mcp-Session-Id": session}), body=ping) == 200
    assert served.status(headers("bob", **{"Mcp-Session-Id": session}), body=ping) == 404
    assert served.status(headers("bob", **{"Mcp-Session-Id": session}), "DELETE", b"") == 404
    assert served.status(headers("alice", **{"Mcp-Session-Id": session}), body=ping) == 200


async def test_closing_the_stream_of_a_request_stops_its_agents(served):
    async with served.client("bob") as client, anyio.create_task_group() as group:
        working = anyio.Event()

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            if "read" in (message or ""):
                working.set()

        async def call() -> None:
            arguments = {"agent": "tester", "task": "close me"}
            await client.call_tool("subagent", arguments, progress_callback=progressed)

        group.start_soon(call)
        await working.wait()
        group.cancel_scope.cancel()
    with anyio.fail_after(PATIENCE):
        while not (
            found := [each for each in served.sessions() if each["task"] == "close me" and each["latest"]["ended"]]
        ):
            await anyio.lowlevel.checkpoint()
    assert found[0]["latest"]["failure"]["code"] == "aborted"


async def test_background_run_outlives_its_connection(served):
    async with served.client("bob") as client:
        name = (await client.call_tool("subagent_start", {"agent": "tester", "task": "x"})).structured_content["id"]
    async with served.client("bob", "legacy") as client:
        looked = await client.call_tool("subagent_status", {"id": name})
        stopped = await client.call_tool("subagent_cancel", {"id": name})
    assert looked.structured_content["doing"] == "→ read a.py (1 tool call so far)"
    assert stopped.structured_content["state"] == "cancelled"


async def test_task_outlives_its_connection_and_belongs_to_its_client(served):
    extensions = [TasksExtension()]
    async with served.client("bob", extensions=extensions) as client:
        task = (await start_task(client, agent="tester", task="x"))["taskId"]
    async with served.client("alice", extensions=extensions) as client:
        with pytest.raises(MCPError, match=r"Task .* ?not found"):
            await send_task_request(client.session, "tasks/get", task)
    async with served.client("bob", extensions=extensions) as client:
        looked = await send_task_request(client.session, "tasks/get", task)
        await send_task_request(client.session, "tasks/cancel", task)
        done = await wait_ended(client.session, task)
    assert (looked["status"], looked["statusMessage"]) == ("working", "tester: → read a.py")
    assert done["status"] == "cancelled"


async def test_task_of_a_killed_server_has_failed_for_the_next_server(tmp_path):
    extensions = [TasksExtension()]
    first = Served(tmp_path, "--background")
    async with first.client("bob", extensions=extensions) as client:
        task = (await start_task(client, agent="tester", task="x"))["taskId"]
        working = await send_task_request(client.session, "tasks/get", task)
    first.end()
    second = Served(tmp_path, "--background")
    async with second.client("bob", extensions=extensions) as client:
        told = await send_task_request(client.session, "tasks/get", task)
    second.end()
    assert working["status"] == "working"
    assert (told["status"], told["error"]["message"]) == ("failed", INTERRUPTED_MESSAGE)


def test_request_checks_hold_on_a_real_socket(served):
    good = {"Authorization": f"Bearer {served.tokens['alice']}", "Content-Type": "application/json"}
    assert served.status({"Content-Type": "application/json"}) == 401
    assert served.status({**good, "Host": "evil.example"}) == 421
    assert served.status({**good, "Origin": "https://evil.example"}) == 403
    assert served.status({**good, "Content-Type": "text/plain"}) == 415
    assert served.status({**good, "X-Forwarded-Host": "evil.example"}) not in {401, 403, 421}


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\nContent-Length: x\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
        b"\x00\xff\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
def test_malformed_http_request_is_answered_with_an_error_and_closed(served, request_bytes):
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(request_bytes)
            answer = connection.recv(100)
        except ConnectionError:
            answer = b""
    assert answer == b"" or re.match(rb"HTTP/1.1 4\d\d ", answer)
    assert served.status({}) == 401


async def test_idle_connection_is_closed():
    async def nobody(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(serve_http, nobody, listening, idle_timeout=0.1))
            async with await anyio.connect_tcp("127.0.0.1", listening.getsockname()[1]) as connection:
                await connection.send(b"POST /mcp HTTP/1.1\r\nHost: ")
                with anyio.fail_after(PATIENCE), pytest.raises(anyio.EndOfStream):
                    await connection.receive()
            group.cancel_scope.cancel()


def test_http_server_listens_on_loopback_only(served):
    table = Path("/proc/net/tcp")
    if not table.exists():
        pytest.skip("There is no table of sockets to look at.")
    places = [line.split()[1] for line in table.read_text().splitlines()[1:]]
    assert [place for place in places if place.endswith(f":{served.port:04X}")][0].startswith("0100007F")


def test_signal_ends_the_http_server_and_a_taken_port_is_reported(tmp_path):
    server = Served(tmp_path)
    try:
        second = subprocess.run(
            [sys.executable, "-m", "retinue", "mcp", "--http", str(server.port)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=tmp_path,
            check=False,
        )
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 130
    finally:
        server.end()
    assert second.returncode == 2
    assert f"Could not listen on 127.0.0.1:{server.port}: address already in use." in second.stderr
