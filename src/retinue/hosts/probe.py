"""Start the command of a host's entry as the host would, and count the tools it offers."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.output.untrusted_text import to_one_line

PROBE_TIMEOUT = 20.0
"""Seconds for its answer and its exit: hosts wait longer, people do not."""
MAX_REPLY_BYTES = 4 * 2**20
"""Limit of one answer."""
MAX_QUOTED_CHARS = 300
"""Characters of stderr quoted when it fails."""

_REVISION = "2026-07-28"
_CLIENT_META = {"protocolVersion": _REVISION, "clientCapabilities": {}}
_META = {f"io.modelcontextprotocol/{name}": value for name, value in _CLIENT_META.items()}
MCP_REQUEST = {"jsonrpc": "2.0", "id": "tools", "method": "tools/list", "params": {"_meta": _META}}
BRIDGE_REQUEST = {"type": "tools", "id": "tools"}


async def list_offered_tools(
    command: Sequence[str], *, speaks_mcp: bool, cwd: str, environ: Mapping[str, str]
) -> int | str:
    """Return the number of tools the program offers, or the reason why it offers none."""
    request = json.dumps(MCP_REQUEST if speaks_mcp else BRIDGE_REQUEST).encode() + b"\n"
    with tempfile.TemporaryFile() as stderr:
        try:
            with anyio.fail_after(PROBE_TIMEOUT):
                process = await anyio.open_process(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=cwd, env=environ
                )
                async with process:  # leaving the block closes its stdin, which ends it
                    count = await _read_tool_count(process, request)
        except TimeoutError:
            return f"it did not answer within {PROBE_TIMEOUT:g} seconds"
        except OSError as error:
            return f"it cannot be started: {error.strerror}"
        return count if count is not None else _last_stderr_line(stderr) or "it ended without a word"


async def _read_tool_count(process: Process, request: bytes) -> int | None:
    """Return the number of tools in the answer; None if there is no answer."""
    assert process.stdin
    assert process.stdout
    lines = BufferedByteReceiveStream(process.stdout)
    try:
        await process.stdin.send(request)
        while True:
            match json.loads(await lines.receive_until(b"\n", MAX_REPLY_BYTES)):
                case {"id": "tools", "tools": list(tools)} | {"id": "tools", "result": {"tools": list(tools)}}:
                    return len(tools)
                case {"id": "tools"}:
                    return None
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.DelimiterNotFound, ValueError):
        return None


def _last_stderr_line(stderr: IO[bytes]) -> str:
    """Return the last line of stderr as a reason; empty if there is none."""
    stderr.seek(0)
    lines = stderr.read(MAX_REPLY_BYTES).decode("utf-8", "replace").strip().splitlines()
    return f"it said: {to_one_line(lines[-1], MAX_QUOTED_CHARS)}" if lines else ""
