"""MCP servers for tests: a real one written with the SDK, and programs that break the protocol in one way each."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
GOOD, BAD = FOLDER / "good.py", FOLDER / "bad.py"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG of one pixel, as base64."""


def stdio_definition(*arguments: str, **more: Any) -> dict[str, Any]:
    """Return the definition of the real server as a program."""
    return {"command": sys.executable, "args": [str(GOOD), *arguments], **more}


def bad_definition(fault: str, **more: Any) -> dict[str, Any]:
    """Return the definition of a server with this fault."""
    return {"command": sys.executable, "args": [str(BAD), fault], **more}


@contextmanager
def http_server(transport: str = "streamable-http", token: str = "") -> Iterator[str]:
    """Run the real server on a port of its own, and yield its address; it refuses other tokens if it has one."""
    command = [sys.executable, str(GOOD), transport, token]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            line = next(line for line in process.stderr if "running on" in line)
            found = re.search(r"http://[\d.]+:\d+", line)
            assert found
            yield f"{found[0]}/{'sse' if transport == 'sse' else 'mcp'}"
        finally:
            process.kill()


@contextmanager
def compressing_server(body: bytes) -> Iterator[str]:
    """Answer every request with this body, compressed, and yield the address."""
    compressed = gzip.compress(body)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(compressed)))
            self.end_headers()
            self.wfile.write(compressed)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()
