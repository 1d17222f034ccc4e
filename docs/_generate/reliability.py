"""The fault catalogue and the figures of the last attack, as they stand in the documents."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from chaos.attack import SectionResult
from chaos.figures import ChaosResult, merge_rows, read_committed
from docs._generate.tables import table

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "tests" / "faults" / "catalogue.toml"
PAGES = (ROOT / "README.md", ROOT / "docs" / "reliability.md")
"""Pages with blocks that are made from figures."""
PARTS = {
    "A": "child processes",
    "B": "streams",
    "C": "storage",
    "D": "concurrency",
    "E": "resources",
    "F": "hostile input",
    "G": "hostile output of agents",
    "H": "HTTP, event stream, dashboard, MCP",
    "I": "distributed workers",
    "J": "the host and Retinue itself",
}
_BLOCK = re.compile(r"(<!-- made by `make docs`: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def faults_page() -> str:
    """Return the page with every row of the catalogue."""
    faults = read_catalogue()
    sections = []
    for part, title in PARTS.items():
        rows = [
            (name, row["fault"], row["outcome"], _proof(row)) for name, row in faults.items() if name.startswith(part)
        ]
        sections.append(f"## {part}: {title}\n\n{table(['row', 'fault', 'required outcome', 'shown by'], rows)}")
    return f"""\
# Fault catalogue

This page lists the {len(faults)} faults that Retinue is tested with, and what must happen.
`tests/faults/catalogue.toml` has the same rows with the names of the tests. See [reliability](../reliability.md).

{chr(10).join(sections)}"""


def read_catalogue() -> dict[str, dict[str, Any]]:
    return tomllib.loads(CATALOGUE.read_text("utf-8"))


def _proof(row: dict[str, Any]) -> str:
    count = len(row.get("proof", ()))
    tests = f"{count} test{'s' if count > 1 else ''}." if count else ""
    return " ".join(filter(None, (tests, row.get("reason", ""))))


def fill_blocks(text: str) -> str:
    """Return the text of a page with its blocks made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{BLOCKS[found[2]]()}\n{found[3]}", text)


def coverage_block() -> str:
    """Return how many rows of each part have tests."""
    faults = read_catalogue()
    rows = []
    for part, title in PARTS.items():
        mine = [row for name, row in faults.items() if name.startswith(part)]
        tested = sum("proof" in row for row in mine)
        partly = sum("proof" in row and "reason" in row for row in mine)
        rows.append((f"{part}: {title}", str(len(mine)), str(tested), str(partly), str(len(mine) - tested)))
    sums = [str(sum(int(row[column]) for row in rows)) for column in range(1, 5)]
    head = ["part", "rows", "with tests", "of these in part", "with a reason only"]
    return table(head, [*rows, ("all", *sums)])


def figures_block() -> str:
    """Return the committed attacks, and their figures together."""
    results = read_committed()
    if not results:
        return "No result has been committed yet. `make chaos` attacks on your machine and prints the table.\n"
    runs = [
        (each.date, str(each.seed), f"{each.minutes:g}", each.user, each.containment, each.python, each.system)
        for each in results
    ]
    minutes = sum(each.minutes for each in results)
    rows = [(row.name, *map(str, _counts(row)), _figures(row)) for row in merge_rows(results)]
    return (
        f"{minutes:g} minutes in all, on {' or '.join(_cores(results))} cores:\n\n"
        f"{table(['date', 'seed', 'minutes', 'user', 'processes held by', 'Python', 'system'], runs)}\n"
        f"Attempts are added, of times and sizes the largest is shown:\n\n"
        f"{table(['attack', 'tried', 'held', 'lost', 'orphans', 'leaks', 'figures'], rows)}"
    )


def _cores(results: list[ChaosResult]) -> list[str]:
    return sorted({str(each.cores) for each in results})


def _counts(row: SectionResult) -> tuple[int, ...]:
    return row.tried, row.held, row.lost, row.orphans, row.leaks


def _figures(row: SectionResult) -> str:
    return ", ".join(f"{name}: {value:,.10g}" for name, value in (row.counts | row.figures).items())


def summary_block() -> str:
    """Return the committed attacks in a sentence."""
    results = read_committed()
    if not results:
        return "`make chaos` attacks Retinue from outside and prints what held: [reliability](docs/reliability.md).\n"
    merged = merge_rows(results)
    tried, held, lost, orphans, leaks = (sum(column) for column in zip(*map(_counts, merged), strict=True))
    kills = sum(row.tried for row in merged if row.name.startswith("kills"))
    cuts = sum(row.tried for row in merged if row.name == "power cuts")
    minutes = sum(each.minutes for each in results)
    return (
        f"**Attacked** for {minutes:g} minutes, last on {max(each.date for each in results)} (`make chaos`): "
        f"{tried:,} attempts, {held:,} held; {kills:,} kills and\n{cuts:,} power cuts among them. {lost} events were "
        f"lost, {orphans} processes left, {leaks} secrets or requests got through:\n"
        "[reliability](docs/reliability.md).\n"
    )


BLOCKS: Mapping[str, Callable[[], str]] = {
    "coverage": coverage_block,
    "figures": figures_block,
    "summary": summary_block,
}
"""Generators of blocks, by the name in their comment."""
