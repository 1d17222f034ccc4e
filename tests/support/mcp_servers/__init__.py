"""MCP servers for tests: a real one written with the SDK, and programs that break the protocol in one way each."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
