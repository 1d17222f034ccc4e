"""A real MCP server: `python good.py [stdio|sse|streamable-http] [TOKEN]`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp_types import ImageContent
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

server = MCPServer("good")


@server.tool()
def search(query: str) -> str:
    """Search the documents."""
    return f"found {query}"


@server.tool()
def variable(name: str) -> str:
    """Return a variable of the server's environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def write(path: str, text: str) -> str:
    """Write a file."""
    Path(path).write_text(text, encoding="utf-8")
    return f"wrote {path}"


@server.tool()
def picture() -> ImageContent:
    """Return an image."""
    return ImageContent(type="image", data=PIXEL, mime_type="image/png")


@server.tool()
def process() -> str:
    """Return the ids of the server and of its working directory."""
    return f"{os.getpid()} {Path.cwd()}"


@server.tool()
def fail() -> str:
    """Always fail."""
    raise ValueError("this never works")


@server.tool()
def die() -> str:
    """End the server."""
    print("out of luck", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(3)


class RequiresToken:
    """Refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != f"Bearer {self._token}":
            await PlainTextResponse("no", status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def serve_http(transport: str, token: str) -> None:
    import uvicorn

    app: Any = server.sse_app() if transport == "sse" else server.streamable_http_app()
    uvicorn.run(RequiresToken(app, token) if token else app, host="127.0.0.1", port=0)


if __name__ == "__main__":
    transport, token = (*sys.argv[1:], "", "")[:2]
    if transport in {"sse", "streamable-http"}:
        serve_http(transport, token)
    else:
        server.run("stdio")
