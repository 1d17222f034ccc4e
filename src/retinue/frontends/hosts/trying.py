"""What a host finds when it starts us: what its configuration names is started so, and asked for its tools."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.output.frame import one_line

PATIENCE = 20.0
"""Seconds until it has answered and ended: hosts wait longer, people do not."""
MOST_BYTES = 4 * 2**20
"""Of an answer."""
MOST_SAID = 300
"""Characters of what it says of itself when it fails."""

_REVISION = "2026-07-28"
_ABOUT = {"protocolVersion": _REVISION, "clientCapabilities": {}}
_META = {f"io.modelcontextprotocol/{name}": value for name, value in _ABOUT.items()}
OVER_MCP = {"jsonrpc": "2.0", "id": "tools", "method": "tools/list", "params": {"_meta": _META}}
OVER_BRIDGE = {"type": "tools", "id": "tools"}


async def tools_offered(
    command: Sequence[str], *, speaks_mcp: bool, cwd: str, environ: Mapping[str, str]
) -> int | str:
    """How many tools the program offers who starts it; why it offers none."""
    asked = json.dumps(OVER_MCP if speaks_mcp else OVER_BRIDGE).encode() + b"\n"
    with tempfile.TemporaryFile() as stderr:
        try:
            with anyio.fail_after(PATIENCE):
                process = await anyio.open_process(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=cwd, env=environ
                )
                async with process:  # leaving it closes its stdin, which ends it
                    count = await _answer(process, asked)
        except TimeoutError:
            return f"it did not answer within {PATIENCE:g} seconds"
        except OSError as error:
            return f"it cannot be started: {error.strerror}"
        return count if count is not None else _said(stderr) or "it ended without a word"


async def _answer(process: Process, asked: bytes) -> int | None:
    """The number of tools in the answer; None if there comes none."""
    assert process.stdin
    assert process.stdout
    lines = BufferedByteReceiveStream(process.stdout)
    try:
        await process.stdin.send(asked)
        while True:
            match json.loads(await lines.receive_until(b"\n", MOST_BYTES)):
                case {"id": "tools", "tools": list(tools)} | {"id": "tools", "result": {"tools": list(tools)}}:
                    return len(tools)
                case {"id": "tools"}:
                    return None
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.DelimiterNotFound, ValueError):
        return None


def _said(stderr: IO[bytes]) -> str:
    """The last line a program has written."""
    stderr.seek(0)
    lines = stderr.read(MOST_BYTES).decode("utf-8", "replace").strip().splitlines()
    return f"it said: {one_line(lines[-1], MOST_SAID)}" if lines else ""
