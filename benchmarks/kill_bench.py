"""Kill busy Retinues at random moments and count what is left: `python -m benchmarks.kill_bench KIND COUNT [SEED]`.

KIND is `cgroup` or `subreaper` (without control groups). The result is printed as JSON.
"""

from __future__ import annotations

import sys

import msgspec
from tests.support.kills import kill_busy_parent


def main() -> None:
    kind, count = sys.argv[1], int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    outcomes = [kill_busy_parent(kind, seed) for seed in range(first, first + count)]
    summary = {
        "containment": kind,
        "kills": len(outcomes),
        "processes": sum(outcome.started for outcome in outcomes),
        "orphans": sum(len(outcome.left) for outcome in outcomes),
        "slowest_seconds": round(max(outcome.seconds for outcome in outcomes), 3),
    }
    sys.stdout.write(msgspec.json.encode(summary).decode() + "\n")


if __name__ == "__main__":
    main()
