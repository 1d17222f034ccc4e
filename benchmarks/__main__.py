"""`python -m benchmarks [WORDS…] [--pairs N]`: measure, print a table, and write the result as JSON.

Each case runs its two sides in turn, so that a busy machine slows both; the ratio is the median over the pairs. The
last committed result is printed beside the new one. A missed goal is printed and fails nothing: machines differ.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.cases import CASES, BenchmarkCase
from benchmarks.measure import run

RESULTS = Path(__file__).parent / "results"
COMMITTED = RESULTS / "committed.json"
LATEST = RESULTS / "latest.local.json"
REGRESSION = 1.25
"""A ratio this much worse than the committed one is marked."""


class CaseResult(Struct, frozen=True, kw_only=True):
    name: str
    ratio: float
    goal: float
    is_rate: bool
    met: bool
    ours: float
    floor: float
    unit: str
    per: str
    pairs: int
    spread: tuple[float, float]
    """The smallest and the largest ratio seen."""


class BenchmarkResult(Struct, frozen=True, kw_only=True):
    python: str
    machine: str
    cores: int
    rows: list[CaseResult]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("words", nargs="*", help="only cases whose name contains one of these")
    parser.add_argument("--pairs", type=int, help="pairs per case instead of the case's own number")
    parser.add_argument("--commit", action="store_true", help="keep the result as the one to compare with")
    chosen = parser.parse_args()
    cases = [case for case in CASES if not chosen.words or any(word in case.name for word in chosen.words)]
    before = _before()
    print(f"{'':44}{'ours':>12}{'floor':>12}{'ratio':>9}{'goal':>9}{'before':>9}")
    rows = []
    for case in cases:
        rows.append(_measure_case(case, chosen.pairs or case.pairs))
        print(_line(rows[-1], before.get(case.name)), flush=True)
    result = BenchmarkResult(
        python=platform.python_version(),
        machine=platform.machine(),
        cores=os.cpu_count() or 1,
        rows=rows,
    )
    path = COMMITTED if chosen.commit else LATEST
    RESULTS.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    missed = [row.name for row in rows if not row.met]
    print(
        f"\n{len(rows) - len(missed)} of {len(rows)} goals met" + (f"; missed: {', '.join(missed)}" if missed else "")
    )
    print(f"written to {path.relative_to(RESULTS.parents[1])}")


def _measure_case(case: BenchmarkCase, pairs: int) -> CaseResult:
    run(*case.ours)  # byte code and page cache, for both sides
    measured = [(run(*case.ours), run(*case.floor)) for _ in range(pairs)]
    ratios = [case.ratio(ours, floor) for ours, floor in measured]
    ratio = statistics.median(ratios)
    scale = {"ms": 1e3, "µs": 1e6, "KB": 1 / 1024, "×": 1}[case.unit]
    return CaseResult(
        name=case.name,
        ratio=round(ratio, 3),
        goal=case.goal,
        is_rate=case.is_rate,
        met=ratio >= case.goal if case.is_rate else ratio <= case.goal,
        ours=round(statistics.median(case.figure(ours) for ours, _ in measured) * scale, 3),
        floor=round(statistics.median(case.figure(floor) for _, floor in measured) * scale, 3),
        unit=case.unit,
        per=case.per,
        pairs=pairs,
        spread=(round(min(ratios), 3), round(max(ratios), 3)),
    )


def _line(row: CaseResult, before: CaseResult | None) -> str:
    mark = " " if row.met else "!"
    sign = "≥" if row.is_rate else "≤"
    compared = ""
    if before:
        worse = before.ratio / row.ratio if row.is_rate else row.ratio / before.ratio
        compared = f"{before.ratio:.2f}" + (" worse" if worse > REGRESSION else "")
    unit = row.unit + (f"/{row.per}" if row.per else "")
    figures = f"{row.ours:>12.3f}{row.floor:>12.3f}{row.ratio:>8.2f}{mark}{sign:>4}{row.goal:>5g}"
    return f"{row.name + ' (' + unit + ')':44}{figures}{compared:>9}"


def _before() -> dict[str, CaseResult]:
    if not COMMITTED.exists():
        return {}
    return {row.name: row for row in msgspec.json.decode(COMMITTED.read_bytes(), type=BenchmarkResult).rows}


if __name__ == "__main__":
    main()
