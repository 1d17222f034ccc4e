"""The cost of subscribers for a run. `python -m benchmarks.watcher_bench SECONDS WATCHERS`.

One run tells 1,000 durable events a second in the process of the server. The watchers are another process: it reads
all their streams but one, which it never reads.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from pathlib import Path

import anyio

from benchmarks.workload import scratch
from retinue.client import Retinue
from retinue.engines.base import Emit, EngineCapabilities, EngineInfo
from retinue.model.events import MessageEnded, Text, ToolCalled, ToolReturned
from retinue.model.runs import RunSpec
from retinue.servers.asgi.request_checks import AllowedHosts
from retinue.servers.asgi.serving import bind_socket, serve_http
from retinue.servers.http.serving import open_server

RATE = 1_000
"""Events per second."""
PACE = 0.02


class StreamingEngine:
    """Emits text at a fixed rate for a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._count = int(seconds * RATE)

    async def run(self, spec: RunSpec, emit: Emit) -> None:
        began, number = time.monotonic(), 0
        while number < self._count:
            while number < min((time.monotonic() - began) * RATE, self._count):
                await emit(ToolCalled(f"c{number}", "ls", {"path": f"src/{number}"}))
                await emit(ToolReturned(f"c{number}", "ls", "a.py\nb.py\nlib/"))
                number += 2
            await anyio.sleep(PACE)
        await emit(Text("done"))
        await emit(MessageEnded(stop_reason="stop"))


async def measure(seconds: float, count: int) -> float:
    """Return the duration of the run with this many subscribers."""
    kind = EngineInfo(
        name="bench",
        capabilities=EngineCapabilities(tools=frozenset({"read", "grep", "find", "ls"})),
        make=lambda: StreamingEngine(seconds),
        not_installed_reason=lambda: None,
    )
    retinue = Retinue(
        cwd=scratch(),
        state=Path(scratch(), "state"),
        engine="bench",
        engines={"bench": kind},
        settings={"looping_pair_count": 0},
    )
    with bind_socket(0) as bound:
        port = bound.getsockname()[1]
        async with (
            retinue,
            open_server(retinue, AllowedHosts(port), port, "") as server,
            anyio.create_task_group() as group,
        ):
            group.start_soon(serve_http, server.app, bound)
            token = server.authenticator.token_file.read_text().strip()
            open_stream = await anyio.open_process(
                [sys.executable, "-m", "benchmarks.watcher_bench", "watch", str(port), token, str(count)]
            )
            while server.feed.watchers < count:
                await anyio.sleep(0.01)
            began = time.monotonic()
            result = await retinue.run("explorer", "work")
            took = time.monotonic() - began
            assert result.failure is None, result.failure
            open_stream.kill()
            await open_stream.aclose()
            group.cancel_scope.cancel()
    return took


def watch(port: int, token: str, count: int) -> None:
    """Read the streams of this many subscribers for ever, except for the first."""
    request = (
        f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    readers = selectors.DefaultSelector()
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request)
        if number:
            readers.register(connection, selectors.EVENT_READ, connection)
        else:
            stalled = connection
    while True:
        for key, _ in readers.select():
            key.data.recv(2**20)
    del stalled


def main() -> None:
    if sys.argv[1] == "watch":
        watch(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    seconds, count = float(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({"wall": anyio.run(measure, seconds, count)}))


if __name__ == "__main__":
    main()
