"""Ten thousand calls of one `retinue mcp` on stdio."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.servers.mcp.test_stdio import Host

pytestmark = pytest.mark.process

CALLS = 10_000
IN_FLIGHT = 8


def call_often(host: Host, calls: int) -> Counter[str]:
    """Make so many calls, some in flight at a time; return how often each answer came."""
    answers: Counter[str] = Counter()
    sent = 0
    for received in range(calls):
        while sent < calls and sent - received < IN_FLIGHT:
            host.call("subagent", {"agent": "explorer", "task": "look"}, sent)
            sent += 1
        answers[host.line()["result"]["content"][0]["text"]] += 1
    return answers


def resident_bytes(pid: int) -> int:
    fields = Path("/proc", str(pid), "statm").read_text().split()
    return int(fields[1]) * 4096


@pytest.mark.timeout(300)
def test_ten_thousand_calls_of_one_stdio_server_are_answered_in_bounded_memory(tmp_path, memory_path):
    host = Host(tmp_path, RETINUE_STATE=str(memory_path))
    early = CALLS // 5
    answers = call_often(host, early)
    before = resident_bytes(host.process.pid)
    answers += call_often(host, CALLS - early)
    grown = resident_bytes(host.process.pid) - before
    rest, stderr = host.leave()
    assert answers == {"A scripted answer of explorer to: look": CALLS}
    assert (rest, stderr, host.process.returncode) == (b"", b"", 0)
    assert grown < 16 * 2**20
