"""Measure from the start of a program to the first instruction of its pi: `python -m benchmarks.start_bench WORK`.

WORK is `watchdog` or `direct`: Retinue then starts pi itself, beside a guardian, as on macOS. `pairs COUNT` prints
the differences of interleaved pairs in milliseconds. The pi only notes the time.
"""

from __future__ import annotations

import time

STARTED = time.time_ns()

# ruff: noqa: E402 - the imports are measured
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import anyio
import msgspec

if TYPE_CHECKING:
    from retinue.engines.base import Engine, EngineInfo

MEMORY = Path("/dev/shm")
PAIRS = 60


def main() -> None:
    if sys.argv[1] == "pairs":
        print_pairs(int(sys.argv[2]) if len(sys.argv) > 2 else PAIRS)
    else:
        measure_start({"watchdog": None, "direct": {"pi": _direct_pi()}}[sys.argv[1]])


def measure_start(engines: dict[str, EngineInfo] | None) -> None:
    """Print the seconds from the start to the exec of pi, as `wall`, and from the call, as `planned`."""
    # In memory: at a real-time priority, both processes together delay the kernel's own, which write to the disk.
    with TemporaryDirectory(prefix="bench-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        noted = Path(folder, "noted")
        planned = anyio.run(partial(_run_pi, folder, noted, engines))
        executed = int(noted.read_text())
    figures = {"wall": (executed - STARTED) / 1e9, "planned": (executed - planned) / 1e9}
    sys.stdout.write(msgspec.json.encode(figures).decode() + "\n")


async def _run_pi(folder: str, noted: Path, engines: dict[str, EngineInfo] | None) -> int:
    from retinue.client import Retinue

    environ = _install(Path(folder), noted)
    async with Retinue(cwd=folder, state=f"{folder}/state", engine="pi", environ=environ, engines=engines) as retinue:
        planned = time.time_ns()
        await retinue.run("explorer", "Go.")
    return planned


def _direct_pi() -> EngineInfo:
    from retinue.engines.base import EngineInfo
    from retinue.engines.pi.installation import CAPABILITIES

    return EngineInfo(name="pi", capabilities=CAPABILITIES, make=_make_direct_pi, not_installed_reason=lambda: None)


def _make_direct_pi() -> Engine:
    from retinue.engines.pi.engine import PiEngine
    from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor

    return PiEngine(supervisor=ProcessSupervisor(max_containment=ContainmentKind.GROUP))


def _install(home: Path, noted: Path) -> dict[str, str]:
    """Install a pi that notes the time and exits, and return its environment."""
    from tests.support.fake_pi import install_fake_pi

    program = install_fake_pi(home / "bin")
    program.write_text(f"#!/bin/sh\ndate +%s%N > {noted}.new && mv {noted}.new {noted}\nexit 3\n")
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(home), "ANTHROPIC_API_KEY": "sk-not-a-real-key"}


def print_pairs(count: int) -> None:
    """Print the difference of each figure as a median over interleaved pairs, in turns of either order."""
    differences: dict[str, list[float]] = {"wall": [], "planned": []}
    for number in range(count):
        found = {work: _run_once(work) for work in (("watchdog", "direct"), ("direct", "watchdog"))[number % 2]}
        for name, values in differences.items():
            values.append(1000 * (found["watchdog"][name] - found["direct"][name]))
    for name, values in differences.items():
        low, middle, high = statistics.quantiles(values, n=4)
        sys.stdout.write(f"{name}: {middle:+.1f} ms, quartiles {low:+.1f} and {high:+.1f}, {count} pairs\n")


def _run_once(work: str) -> dict[str, float]:
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.start_bench", work], capture_output=True, check=True
    ).stdout
    return msgspec.json.decode(output.splitlines()[-1], type=dict[str, float])


if __name__ == "__main__":
    main()
