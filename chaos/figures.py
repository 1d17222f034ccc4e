"""The result of an attack, and several results as one: what the documents show."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import msgspec
from msgspec import Struct

from chaos.attack import SectionResult
from chaos.users import user_name
from retinue.engines.process.supervisor import detect_containment

RESULTS = Path(__file__).parent / "results"
COMMITTED = RESULTS / "committed.json"
"""All results that the documents show, as a list."""
LATEST = RESULTS / "latest.local.json"


class ChaosResult(Struct, frozen=True, kw_only=True):
    """One attack: when, where and as whom, and what each section had."""

    date: str
    seed: int
    minutes: float
    python: str
    system: str
    cores: int
    user: str
    containment: str
    rows: list[SectionResult]


def make_result(seed: int, minutes: float, rows: list[SectionResult]) -> ChaosResult:
    return ChaosResult(
        date=time.strftime("%Y-%m-%d"),
        seed=seed,
        minutes=minutes,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release().partition('-')[0]}",
        cores=os.cpu_count() or 1,
        user=user_name(),
        containment=detect_containment()[0],
        rows=rows,
    )


def read_result(path: Path) -> ChaosResult:
    """Read the result of one attack. Raises `OSError` or `msgspec.MsgspecError`."""
    return msgspec.json.decode(path.read_bytes(), type=ChaosResult)


def read_committed(path: Path = COMMITTED) -> list[ChaosResult]:
    return msgspec.json.decode(path.read_bytes(), type=list[ChaosResult]) if path.exists() else []


def write_result(path: Path, result: ChaosResult | list[ChaosResult]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")


def commit_results(results: list[ChaosResult], path: Path = COMMITTED) -> int:
    """Add results to those that the documents show; return how many are new."""
    committed = read_committed(path)
    new = [result for result in results if result not in committed]
    write_result(path, [*committed, *new])
    return len(new)


def merge_rows(results: list[ChaosResult]) -> list[SectionResult]:
    """Return one row for each section: attempts and counts are added, of other figures the largest is taken."""
    merged: dict[str, SectionResult] = {}
    for row in (row for result in results for row in result.rows):
        merged[row.name] = _add(merged[row.name], row) if row.name in merged else row
    return list(merged.values())


def _add(first: SectionResult, second: SectionResult) -> SectionResult:
    counts = {key: first.counts.get(key, 0) + second.counts.get(key, 0) for key in first.counts | second.counts}
    figures = {
        key: max(each.figures[key] for each in (first, second) if key in each.figures)
        for key in first.figures | second.figures
    }
    return SectionResult(
        name=first.name,
        tried=first.tried + second.tried,
        held=first.held + second.held,
        lost=first.lost + second.lost,
        orphans=first.orphans + second.orphans,
        leaks=first.leaks + second.leaks,
        seconds=round(first.seconds + second.seconds, 1),
        counts=counts,
        figures=figures,
        problems=[*first.problems, *second.problems],
    )
