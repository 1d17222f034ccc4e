"""Measure CPU, wall time and peak memory of one workload in a process of its own."""

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
WORK_TIMEOUT = 300.0
"""Seconds a workload may take before it counts as hung."""


class ProcessCost(Struct, frozen=True, kw_only=True):
    """The cost of a workload as it reports it, or else of its whole process."""

    cpu: float
    wall: float
    peak_bytes: int
    grown_bytes: int = 0
    """Memory that the process gained during the work."""


class WorkloadReport(Struct, frozen=True):
    """The last line a workload prints."""

    cpu: float | None = None
    wall: float | None = None
    grown_bytes: int = 0


def run(*argv: str) -> ProcessCost:
    """Run `python …` once in a temporary home, with byte code allowed, and return its cost."""
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
    report = _report(printed)
    return ProcessCost(
        cpu=usage.ru_utime + usage.ru_stime if report.cpu is None else report.cpu,
        wall=wall if report.wall is None else report.wall,
        peak_bytes=usage.ru_maxrss * 1024,
        grown_bytes=report.grown_bytes,
    )


def _report(printed: bytes) -> WorkloadReport:
    last = printed.strip().split(b"\n")[-1]
    return msgspec.json.decode(last, type=WorkloadReport) if last.startswith(b"{") else WorkloadReport()


def _environment(scratch: str) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {**inherited, "HOME": scratch, "BENCH_SCRATCH": scratch, "PYTHONHASHSEED": "0"}
