"""`retinue mcp` and a minimal server under the same load. `python -m benchmarks.mcp_bench WORK N [minimal]`.

The client is this process: it writes and reads lines, so that what is measured is the server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.workload import process_cpu, scratch

OURS = ("-m", "retinue", "mcp", "--engine", "scripted")
MINIMAL = ("-m", "benchmarks.minimal_mcp")
ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}
NOTHING: dict[str, Any] = {"name": "get_subagent_output", "arguments": {"sessionId": "0123456789abcdef"}, **ENVELOPE}
"""A call that does almost nothing: there is no such session."""
DELEGATION: dict[str, Any] = {
    "name": "subagent",
    "arguments": {"agent": "explorer", "task": "look"},
    **ENVELOPE,
}
"""One agent that answers with one sentence, in a session of its own."""
MEMORY = Path("/dev/shm")
IN_FLIGHT = 8
"""Delegations at once."""


class McpHost:
    """One server process and the messages to and from it."""

    def __init__(self, argv: tuple[str, ...], state: str) -> None:
        self._started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *argv],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "RETINUE_STATE": state},
            cwd=scratch(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, number: int, method: str, params: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
        )
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def first(self) -> float:
        """Return the seconds from the start to the first response."""
        self.ask(0, "tools/list", ENVELOPE)
        assert self.answer()["result"]["tools"]
        return time.monotonic() - self._started

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def leave(self) -> None:
        self.process.communicate()


def start(host: McpHost, _: int) -> None:
    print(json.dumps({"wall": host.first()}))


def memory(host: McpHost, _: int) -> None:
    host.first()
    print(json.dumps({"grown_bytes": host.resident_bytes()}))


def calls(host: McpHost, count: int) -> None:
    """Measure sequential calls."""
    host.first()
    begun = time.monotonic()
    for number in range(count):
        host.ask(number, "tools/call", NOTHING)
        assert host.answer()["id"] == number
    print(json.dumps({"wall": (time.monotonic() - begun) / count}))


def in_flight(host: McpHost, count: int) -> None:
    """Send all calls before reading the first response, and check that none is lost."""
    host.first()
    begun = time.monotonic()
    for number in range(count):
        host.ask(number, "tools/call", NOTHING)
    assert {host.answer()["id"] for _ in range(count)} == set(range(count))
    print(json.dumps({"wall": (time.monotonic() - begun) / count}))


def delegations(host: McpHost, count: int) -> None:
    """Measure the server's CPU for delegations, some of them at a time."""
    host.first()
    cpu, sent = process_cpu(host.process.pid), 0
    for received in range(count):
        while sent < min(count, received + IN_FLIGHT):
            host.ask(sent, "tools/call", DELEGATION)
            sent += 1
        assert not host.answer()["result"].get("isError")
    print(json.dumps({"cpu": (process_cpu(host.process.pid) - cpu) / count}))


WORKS: dict[str, Callable[[McpHost, int], None]] = {
    "start": start,
    "memory": memory,
    "calls": calls,
    "in_flight": in_flight,
    "delegations": delegations,
}


def main() -> None:
    work, count, *which = sys.argv[1:]
    # Sessions in memory: the CPU of a disk that is full of them differs more than ours.
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else scratch()) as state:
        host = McpHost(MINIMAL if which else OURS, state)
        WORKS[work](host, int(count))
        host.leave()


if __name__ == "__main__":
    main()
