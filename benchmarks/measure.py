"""What a process of its own cost: CPU, wall time and peak memory of one workload."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[1]
PATIENCE = 300.0
"""Seconds a workload may take before it counts as hung."""


class Cost(Struct, frozen=True, kw_only=True):
    """What a workload used, as it says itself; or, where it says nothing, its whole process."""

    cpu: float
    wall: float
    peak_bytes: int
    grown_bytes: int = 0
    """Memory beyond what the process had before the work."""


class Report(Struct, frozen=True):
    """The last line a workload prints."""

    cpu: float | None = None
    wall: float | None = None
    grown_bytes: int = 0


def run(*argv: str) -> Cost:
    """Runs `python …` once, in a scratch home, with byte code allowed, and says what it cost."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, tempfile.TemporaryFile() as output:
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *argv],
            cwd=ROOT,
            env=_environment(scratch),
            stdin=subprocess.DEVNULL,
            stdout=output,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        output.seek(0)
        printed = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)} ended with status {process.returncode}:\n{printed.decode()}")
    said = _report(printed)
    return Cost(
        cpu=usage.ru_utime + usage.ru_stime if said.cpu is None else said.cpu,
        wall=wall if said.wall is None else said.wall,
        peak_bytes=usage.ru_maxrss * 1024,
        grown_bytes=said.grown_bytes,
    )


def _report(printed: bytes) -> Report:
    last = printed.strip().split(b"\n")[-1]
    return msgspec.json.decode(last, type=Report) if last.startswith(b"{") else Report()


def _environment(scratch: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**kept, "HOME": scratch, "BENCH_SCRATCH": scratch, "PYTHONHASHSEED": "0"}
