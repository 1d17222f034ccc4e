"""Helpers for workloads: measure work inside the process and print its cost."""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def print_cost(*, times: int = 1) -> Iterator[None]:
    """Print the cost of the block, divided by `times`, as the last line."""
    gc.collect()
    before, cpu, wall = resident_bytes(), time.process_time(), time.monotonic()
    yield
    print(
        json.dumps(
            {
                "cpu": (time.process_time() - cpu) / times,
                "wall": (time.monotonic() - wall) / times,
                "grown_bytes": resident_bytes() - before,
            }
        )
    )


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def process_cpu(pid: int) -> float:
    """Return the CPU seconds of another process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def scratch() -> str:
    """Return the temporary folder of this workload."""
    return os.environ["BENCH_SCRATCH"]
