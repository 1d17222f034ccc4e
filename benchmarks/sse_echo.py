"""A minimal SSE server that sends what is posted to it. `python -m benchmarks.sse_echo` prints its port first."""

from __future__ import annotations

import socket
from typing import Any

import anyio

from retinue.servers.asgi.serving import serve_http


async def main() -> None:
    watchers: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        if scope["method"] == "POST":
            for watcher in watchers:
                await watcher({"type": "http.response.body", "body": message["body"], "more_body": True})
        kind = b"text/event-stream" if scope["method"] == "GET" else b"text/plain"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        if scope["method"] == "GET":
            watchers.append(send)
            await send({"type": "http.response.body", "body": b"retry: 1000\n\n", "more_body": True})
            await anyio.sleep_forever()
        await send({"type": "http.response.body", "body": b""})

    with socket.create_server(("127.0.0.1", 0)) as bound:
        print(bound.getsockname()[1], flush=True)
        await serve_http(app, bound)


if __name__ == "__main__":
    anyio.run(main)
