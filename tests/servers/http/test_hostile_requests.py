"""Malformed and hostile requests on a real socket: each is answered or cut off, and the server keeps running."""

from __future__ import annotations

import gc
import json
import re
import shutil
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream
from tests.servers.http.conftest import PATIENCE, PORT
from tests.support.retinue_factory import stage

from retinue.engines.scripted import RunCallback, reply
from retinue.ipc.federation import POLL_INTERVAL
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.events import Text, TextDelta
from retinue.servers.asgi.request_checks import MAX_BODY_BYTES, AllowedHosts, HttpError
from retinue.servers.asgi.serving import bind_socket, count_usable_connections, serve_http
from retinue.servers.http.app import AssetFolder, HttpApp
from retinue.servers.http.auth import Authenticator
from retinue.servers.http.event_feed import MAX_DELTA_BYTES, MAX_EVENT_BYTES, EventFeed
from retinue.servers.http.inputs import LoginBody
from retinue.servers.http.responses import FileDownload
from retinue.servers.http.routes import make_route
from retinue.servers.http.run_sources import EventSources
from retinue.servers.http.serving import ServerParts, open_server
from retinue.sessions.store import SessionState

TASK = {"agent": "explorer", "task": "look"}
JSON = "application/json"


class RunningServer:
    """A server on a real socket."""

    def __init__(self, port: int, server: ServerParts) -> None:
        self.port = port
        self.server = server
        self._token = server.authenticator.token_file.read_text().strip()

    def head(self, first: str, *lines: str) -> bytes:
        own = [f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {self._token}", *lines]
        return "\r\n".join([f"{first} HTTP/1.1", *own, "", ""]).encode("latin-1")

    async def connect(self) -> ByteStream:
        return await anyio.connect_tcp("127.0.0.1", self.port)

    async def send(self, request: bytes) -> bytes:
        """Send a request and return all bytes until the server closes; none if it resets the connection."""
        seen = b""
        with anyio.fail_after(PATIENCE), suppress(anyio.BrokenResourceError):
            async with await self.connect() as stream:
                await stream.send(request)
                async for piece in stream:
                    seen += piece
        return seen

    async def status(self, first: str, *lines: str) -> int:
        answer = await self.send(self.head(first, "Connection: close", *lines))
        return int(answer.split(b" ", 2)[1])

    async def is_healthy(self) -> bool:
        return await self.status("GET /api/v1/health") == 200


Open = Callable[..., AbstractAsyncContextManager[RunningServer]]


@pytest.fixture
def open_site(place: Path, tmp_path: Path) -> Open:
    """Return `open_site(*script)`, which opens a server on a real socket."""

    @asynccontextmanager
    async def serving(
        *script: Any, patience: float = 30.0, max_connections: int | None = None
    ) -> AsyncIterator[RunningServer]:
        with bind_socket(0) as bound:
            port = bound.getsockname()[1]
            async with (
                stage(place, *script, state=tmp_path / "state", store=None) as retinue,
                open_server(retinue, AllowedHosts(port), port, f"http://127.0.0.1:{port}") as server,
                anyio.create_task_group() as group,
            ):
                group.start_soon(
                    lambda: serve_http(server.app, bound, idle_timeout=patience, max_connections=max_connections)
                )
                yield RunningServer(port, server)
                group.cancel_scope.cancel()

    return serving


# -- requests --------------------------------------------------------------------------------------


async def test_upgrade_to_websocket_starts_no_websocket(open_site):
    upgrade = ("Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    async with open_site(reply("done")) as server:
        assert await server.status("GET /api/v1/runs", *upgrade) == 200
        assert await server.status("GET /api/v1/runs", *upgrade, "Origin: https://evil.example") == 403
        assert await server.is_healthy()


async def test_forwarded_headers_are_ignored(open_site):
    forwarded = ("X-Forwarded-Host: evil.example", "X-Forwarded-For: 192.0.2.1", "Forwarded: host=evil.example")
    async with open_site(reply("done")) as server:
        assert await server.status("GET /api/v1/runs", *forwarded) == 200
        own = server.head("GET /api/v1/runs", f"X-Forwarded-Host: 127.0.0.1:{server.port}", "Connection: close")
        foreign = own.replace(f"\r\nHost: 127.0.0.1:{server.port}".encode(), b"\r\nHost: evil.example")
        assert (await server.send(foreign)).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "first",
    [
        "GET /api/v1/runs/%ff%fe",
        "GET /api/v1/runs/%",
        "GET /api/v1/runs/%00%0d%0aX:%20y",
        "GET /%ff",
        "GET /api/v1/agents/%2e%2e%2fx",
    ],
)
async def test_odd_paths_are_not_found(open_site, first):
    async with open_site(reply("done")) as server:
        assert await server.status(first) in {200, 404}
        assert await server.is_healthy()


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /api/v1/runs/\xff\xfe HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"\x16\x03\x01\x02\x00",
        b"GET",
        b"GET / HTTP/9.9",
    ],
)
async def test_malformed_http_is_rejected(open_site, request_line):
    async with open_site(reply("done")) as server:
        answer = await server.send(request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer[:12] in {b"", b"HTTP/1.1 400", b"HTTP/1.1 421"}
        assert await server.is_healthy()


@pytest.mark.parametrize(
    ("first", "lines", "status"),
    [
        ("GET http://evil.example/api/v1/health", (), 421),
        ("CONNECT evil.example:80", (), 421),
        ("OPTIONS *", (), 421),
        ("POST /api/v1/links", ("Content-Length: 2", "Transfer-Encoding: chunked"), 400),
        ("POST /api/v1/links", ("Content-Encoding: gzip", "Content-Length: 2"), 415),
        ("POST /api/v1/links", ("Content-Encoding: identity", "Content-Length: 2"), 200),
        ("POST /api/v1/links", (f"Content-Length: {MAX_BODY_BYTES + 1}", "Expect: 100-continue"), 413),
        ("POST /api/v1/links", ("Content-Length: 2", "Content-Length: 3"), 400),
        ("POST /api/v1/links", ("Content-Length: -2",), 400),
    ],
)
async def test_ambiguous_or_misdirected_requests_are_rejected(open_site, first, lines, status):
    async with open_site(reply("done")) as server:
        stop = () if status != 200 else ("Connection: close",)
        asked = server.head(first, f"Content-Type: {JSON}", *lines, *stop) + b"{}"
        assert (await server.send(asked)).startswith(b"HTTP/1.1 %d" % status)  # and closed
        assert await server.is_healthy()


async def test_huge_headers_and_queries_are_rejected(open_site):
    async with open_site(reply("done")) as server:
        huge = await server.send(server.head("GET /api/v1/health", f"X-Much: {'x' * 200_000}"))
        assert huge[:12] in {b"", b"HTTP/1.1 400", b"HTTP/1.1 431"}
        assert await server.status("GET /api/v1/runs?q=" + "x" * 20_000) == 400
        assert await server.status("GET /api/v1/health", *[f"X-{number}: y" for number in range(300)]) == 200
        assert await server.is_healthy()


@pytest.mark.parametrize(
    ("method", "status"), [("HEAD", 405), ("OPTIONS", 405), ("TRACE", 405), ("PATCH", 405), ("X" * 50, 405)]
)
async def test_unsupported_methods_are_not_allowed(open_site, method, status):
    async with open_site(reply("done")) as server:
        for path in ("/api/v1/runs", "/api/v1/health"):
            assert await server.status(f"{method} {path}") == status


async def test_body_of_a_get_request_is_ignored(open_site):
    async with open_site(reply("done")) as server:
        body = json.dumps(TASK).encode()
        asked = server.head("GET /api/v1/runs", "Connection: close", f"Content-Length: {len(body)}") + body
        assert (await server.send(asked)).startswith(b"HTTP/1.1 200")
        large = server.head("GET /api/v1/health", "Connection: close", "Content-Length: 99999999")
        assert (await server.send(large + b"x" * 100_000)).startswith(b"HTTP/1.1 413")
        assert b'"runs":[]' in await server.send(server.head("GET /api/v1/runs", "Connection: close"))


@pytest.mark.parametrize(
    "place", ["x" * 9_000, "EPOCH-" + "9" * 5_000, "EPOCH--1", "EPOCH-²", "EPOCH-0 ", "\x80\xff", "-"]
)
async def test_invalid_last_event_id_causes_a_resync(open_site, place):
    async with open_site(reply("done")) as server, await server.connect() as stream:
        odd = place.replace("EPOCH", server.server.feed.epoch)
        await stream.send(server.head("GET /api/v1/events", f"Last-Event-ID: {odd}"))
        seen = b""
        with anyio.fail_after(PATIENCE):
            while b"\n\n" not in seen.partition(b"retry: 1000\n\n")[2]:
                seen += await stream.receive()
                if odd.strip() == f"{server.server.feed.epoch}-0":  # spaces around a value are none of it
                    break
            else:
                assert b"event: resync" in seen
        assert seen.startswith(b"HTTP/1.1 200")


async def test_incomplete_request_is_dropped_even_after_a_complete_one(open_site):
    async with open_site(reply("done"), patience=0.2) as server:
        with anyio.fail_after(PATIENCE):
            async with await server.connect() as first, await server.connect() as second:
                await first.send(b"GET /api/v1/health HTTP/1.1\r\nHost:")
                await second.send(server.head("GET /api/v1/health") + b"GET /api/v1/health HTTP/1.1\r\nHost:")
                with pytest.raises(anyio.EndOfStream):
                    while True:
                        await first.receive()
                with pytest.raises(anyio.EndOfStream):
                    while True:
                        await second.receive()


async def test_stalled_reader_is_dropped_even_without_a_token(open_site):
    """Requests without reading a response fill the buffers until neither side can send."""
    async with open_site(reply("done"), patience=0.2) as server, await server.connect() as stream:
        with anyio.fail_after(PATIENCE), pytest.raises(anyio.BrokenResourceError):
            while True:
                await stream.send(f"GET /login.js HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode() * 100)
        assert await server.is_healthy()


async def test_stalled_watcher_is_dropped_and_a_reading_one_is_kept(open_site):
    text = Text(text="x" * 2**20)
    async with (
        open_site(*[text] * 16, reply("done"), patience=0.3) as server,
        await server.connect() as stalled,
        await server.connect() as reading,
    ):
        hub = server.server.feed
        for stream in (stalled, reading):
            await stream.send(server.head("GET /api/v1/events"))
            await stream.receive()
        body = json.dumps(TASK).encode()
        begin = server.head("POST /api/v1/runs", f"Content-Type: {JSON}", f"Content-Length: {len(body)}")
        assert (await server.send(begin.replace(b"Host", b"Connection: close\r\nHost", 1) + body))[9:12] == b"202"
        seen = b""
        with anyio.fail_after(PATIENCE):
            while b"run_ended" not in seen:
                seen = seen[-100:] + await reading.receive()
            while hub.watchers > 1:
                await anyio.lowlevel.checkpoint()
        assert await server.is_healthy()


async def test_long_idle_stream_is_kept_open(open_site):
    go = anyio.Event()
    async with (
        open_site(RunCallback(go.wait), reply("done"), patience=0.1) as server,
        await server.connect() as stream,
    ):
        await stream.send(server.head("GET /api/v1/events"))
        await anyio.sleep(0.5)
        body = json.dumps(TASK).encode()
        begin = server.head("POST /api/v1/runs", f"Content-Type: {JSON}", f"Content-Length: {len(body)}")
        async with await server.connect() as other:
            await other.send(begin + body)
            go.set()
            seen = b""
            with anyio.fail_after(PATIENCE):
                while b"run_ended" not in seen:
                    seen += await stream.receive()


async def test_two_hundred_watchers_are_served_and_released(open_site):
    async with open_site(reply("done")) as server:
        async with anyio.create_task_group() as group:
            streams: list[ByteStream] = []

            async def watch() -> None:
                stream = await server.connect()
                streams.append(stream)
                await stream.send(server.head("GET /api/v1/events?rows=1"))
                await stream.receive()

            for _ in range(200):
                group.start_soon(watch)
        assert await server.is_healthy()
        assert server.server.feed.watchers == 200
        for stream in streams:
            await stream.aclose()
        with anyio.fail_after(PATIENCE):
            while server.server.feed.watchers:
                assert await server.is_healthy()


async def test_silent_connections_shut_nobody_out(open_site):
    async with open_site(reply("done"), max_connections=40) as server, AsyncExitStack() as stack:
        stream = await stack.enter_async_context(await server.connect())
        await stream.send(server.head("GET /api/v1/events"))
        assert await stream.receive()
        for _ in range(100):
            await stack.enter_async_context(await server.connect())
            assert await server.is_healthy()
        body = json.dumps(TASK).encode()
        begin = server.head("POST /api/v1/runs", f"Content-Type: {JSON}", f"Content-Length: {len(body)}")
        assert (await server.send(begin.replace(b"Host", b"Connection: close\r\nHost", 1) + body))[9:12] == b"202"
        assert b"run_queued" in await stream.receive()


async def test_connections_that_all_have_requests_are_limited(open_site):
    async with open_site(reply("done"), max_connections=8) as server, AsyncExitStack() as stack:
        for _ in range(7):
            stream = await stack.enter_async_context(await server.connect())
            await stream.send(server.head("GET /api/v1/events"))
            assert (await stream.receive())[9:12] == b"200"
        assert await server.status("GET /api/v1/health") == 503


async def test_closed_connections_are_freed_before_their_timeout(open_site):
    async with open_site(reply("done"), patience=3600) as server:
        for _ in range(20):
            assert await server.is_healthy()
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        assert sum(type(each).__name__ == "TimeoutProtocol" for each in gc.get_objects()) <= 1


def test_server_leaves_half_of_the_descriptors_to_runs(monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1024))
    assert count_usable_connections() == 128


def test_connections_have_tcp_nodelay():
    with bind_socket(0) as bound, socket.create_connection(bound.getsockname()):
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# -- names and cookies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("LOCALHOST:PORT", True),
        ("Box.Example:PORT", True),
        ("box.example:PORT", True),
        ("[::1]:PORT", True),
        ("localhost.:PORT", False),
        ("[::1%lo]:PORT", False),
        ("[0:0:0:0:0:0:0:1]:PORT", False),
        ("::1:PORT", False),
        ("127.1:PORT", False),
        ("2130706433:PORT", False),
        ("127.0.0.1:PORT@evil.example", False),
        ("127.0.0.1:PORT, evil.example", False),
        ("127.0.0.1:0PORT", False),
        ("", False),
    ],
)
def test_only_exact_host_names_are_accepted(host, is_ours):
    names = AllowedHosts(PORT, ("127.0.0.1", "localhost", "[::1]", "BOX.example"))
    headers = [("host", host.replace("PORT", str(PORT)))]
    if is_ours:
        names.check(headers)
    else:
        with pytest.raises(HttpError):
            names.check(headers)


def test_port_80_may_be_omitted_from_host_and_origin():
    AllowedHosts(80).check([("host", "localhost"), ("origin", "http://localhost")])
    with pytest.raises(HttpError):
        AllowedHosts(PORT).check([("host", "localhost")])


@pytest.mark.parametrize(
    "cookies",
    [
        'prefs={"a": [1, 2]}; OURS',
        "a b=c; OURS",
        "OURS; odd=\x80\xff",
        "=; ;; OURS",
        "retinue_8477=planted by another port; OURS",
        "retinue_1=of another server; OURS",
    ],
)
async def test_cookies_of_other_servers_on_the_host_are_ignored(tmp_path, cookies):
    access = Authenticator(tmp_path, PORT)
    ours = (await access.log_in(LoginBody(code=access.create_code()))).partition(";")[0]
    await access.authenticate([("cookie", cookies.replace("OURS", ours))])
    with pytest.raises(HttpError):
        await access.authenticate([("cookie", cookies.replace("OURS", ours[:-1]))])


async def test_concurrent_logins_with_one_link_succeed_once(serve):
    async with serve(reply("done")) as client:
        code = (await client.post("links")).json["link"].partition("#")[2]
        told: list[int] = []

        async def log_in() -> None:
            told.append((await client.post("login", {"code": code}, authorization=None)).status)

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(log_in)
    assert sorted(told) == [200] + [401] * 9


# -- runs that are not there -----------------------------------------------------------------------

ORDERS = [("cancel", {}), ("resume", {"task": "x"}), ("extend", {"seconds": 5}), ("steer", {"text": "x"})]


async def test_commands_to_runs_that_are_not_live_are_refused(serve):
    async with serve(reply("done")) as client:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        for order, body in ORDERS:
            unknown = await client.post(f"runs/{'0' * 32}/{order}", body)
            assert (unknown.status, unknown.error) == (404, "session_not_found")
        assert (await client.post(f"runs/{run}/cancel")).json == {"run": run, "found": False, "failure": None}
        for order, body in ORDERS[2:]:
            over = await client.post(f"runs/{run}/{order}", body)
            assert over.status in {400, 404, 409}
            assert over.json["error"]["message"]
        assert (await client.get(f"runs/{run}")).json["state"] == "completed"


@asynccontextmanager
async def open_failing_download(serve, *pieces: bytes) -> AsyncIterator[tuple[HttpApp, Any]]:
    """Open an application with a download that fails after these chunks, and the scope of a request for it."""

    async def broken() -> AsyncGenerator[bytes, None]:
        for piece in pieces:
            yield piece
        raise RefusedError(Failure(ErrorCode.STORAGE, "Its record is gone."))

    async def handle() -> FileDownload:
        return FileDownload("a.md", "text/markdown", broken())

    async with serve(reply("done")) as client:
        routes = [make_route("GET", "/file", handle, "A file.", media=("text/markdown",))]
        yield (
            HttpApp(routes, client.hub, client.server.authenticator, AllowedHosts(PORT), AssetFolder()),
            client._scope("GET", "file", {}),
        )


async def test_download_that_fails_midway_is_cut_off(serve):
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with open_failing_download(serve, b"begun") as (app, scope):
        with pytest.raises(RefusedError):
            await app(scope, anyio.sleep_forever, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[-1]["more_body"]


async def test_download_that_fails_at_the_start_is_an_error_response(serve):
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with open_failing_download(serve) as (app, scope):
        await app(scope, anyio.sleep_forever, send)
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["error"]["message"] == "Its record is gone."


async def test_child_text_never_reaches_a_header(serve, place):
    folder = place / ".retinue" / "agents"
    folder.mkdir(parents=True)
    odd = 'a";b\r\nset-cookie: x=é'
    (folder / "odd.md").write_text(f"---\nname: {json.dumps(odd)}\ndescription: d\n---\nBe odd.\n")
    async with serve(reply("done")) as client:
        run = (await client.post("runs", {"agent": odd, "task": 'x"\r\ny: z'})).json["run"]["run"]
        answer = await client.get(f"runs/{run}/transcript")
    assert answer.status == 200
    assert re.fullmatch(r'attachment; filename="[A-Za-z0-9._-]+"', answer.headers["content-disposition"])


# -- load ------------------------------------------------------------------------------------------


async def test_stalled_reader_of_fifty_runs_uses_bounded_memory(serve):
    """It takes the first piece and nothing more, while fifty runs write and end."""
    said = [event for number in range(20) for event in (TextDelta("x" * 50_000), Text(f"{number} " + "y" * 50_000))]
    stuck, pieces = anyio.Event(), 0

    async def send(message: Any) -> None:
        nonlocal pieces
        if message["type"] == "http.response.body":
            pieces += 1
            stuck.set()
            await anyio.sleep_forever()

    chunks = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        return chunks.pop() if chunks else await anyio.sleep_forever()

    async with serve(*said, reply("done")) as client, anyio.create_task_group() as group:
        group.start_soon(client.server.app, client._scope("GET", "events?deltas=1", {}), receive, send)
        await stuck.wait()
        runs = [(await client.post("runs", TASK)).json["run"]["run"] for _ in range(50)]
        with anyio.fail_after(3 * PATIENCE):
            rows = [await client.hub.wait_final_row(run) for run in runs]
        assert [row and row.state for row in rows] == [SessionState.COMPLETED] * 50
        assert pieces == 1
        assert sum(len(entry.event) + len(entry.row) for entry in client.hub.entries) <= MAX_EVENT_BYTES
        assert sum(len(delta.data) for delta in client.hub.deltas) <= MAX_DELTA_BYTES
        assert not client.hub.blocks.has_open
        group.cancel_scope.cancel()


async def test_run_whose_first_seen_event_is_its_end_is_loaded_completely(serve):
    async with serve(reply("done")) as client:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        whole = [stamped async for stamped in client.retinue.history(run)]
        hub = EventFeed()
        await EventSources(client.retinue, hub).receive_event(whole[-1], "the socket of another process")
    told = [json.loads(entry.event)["seq"] for entry in hub.entries]
    assert told == [stamped.seq for stamped in whole]


# -- the state folder ------------------------------------------------------------------------------


async def test_deleted_state_folder_locks_everyone_out_and_runs_continue(serve, tmp_path):
    go = anyio.Event()
    async with serve(RunCallback(go.wait), reply("done")) as client, client.watch() as stream:
        await client.post("runs", TASK)
        shutil.rmtree(tmp_path / "state")
        await anyio.sleep(3 * POLL_INTERVAL)
        assert (await client.get("runs")).status == 401
        assert (await client.get("/login")).status == 200
        go.set()
        ended = (await stream.until(lambda message: message.data["event"]["type"] == "run_ended"))[-1]
        assert ended.data["row"]["preview"] == "done"
        fresh = Authenticator(tmp_path / "state", PORT).token_file.read_text().strip()
        for path in ("runs", "activity", "sessions", "health"):
            assert (await client.get(path, authorization=f"Bearer {fresh}")).status == 200
        begun = await client.post("runs", TASK, authorization=f"Bearer {fresh}")
        assert begun.status == 202


async def test_state_folder_replaced_by_a_file_is_a_failure_not_a_crash(serve, tmp_path):
    async with serve(reply("done")) as client:
        sessions = tmp_path / "state" / "sessions"
        shutil.rmtree(sessions, ignore_errors=True)
        sessions.write_text("")
        await anyio.sleep(3 * POLL_INTERVAL)
        for path in ("runs", "activity", "runs/12345678", "events?run=12345678"):
            assert (await client.get(path)).status in {200, 404, 503}
        assert (await client.post("runs", TASK)).status in {202, 503}
        assert (await client.get("health")).status == 200
