"""The fault catalogue is complete both ways: every row has a proof or a reason, every test of a fault a row."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[2]
PARTS = {"A": 24, "B": 18, "C": 18, "D": 15, "E": 12, "F": 18, "G": 20, "H": 23, "I": 17, "J": 14}
"""The rows of each part."""
FAULT_TESTS = (
    "tests/engines/process/test_pi_faults_startup.py",
    "tests/engines/process/test_pi_faults_stream.py",
)
"""Files whose every test names its row in its docstring."""


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    fault: str
    """What goes wrong, and how it is made to."""
    outcome: str
    """What must happen."""
    proof: tuple[str, ...] = ()
    reason: str = ""
    """Why it cannot be shown, or what of it is not."""


CATALOGUE = msgspec.toml.decode(Path(__file__).with_name("catalogue.toml").read_bytes(), type=dict[str, Row])


@cache
def read_tests(file: str) -> dict[str, str]:
    """Return the tests of a file by name, with the first line of their docstrings."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        f"{file}::{function.name}": ast.get_docstring(function) or ""
        for function in functions
        if function.name.startswith("test_")
    }


def test_fault_catalogue_has_every_row():
    assert list(CATALOGUE) == [f"{part}{number}" for part, last in PARTS.items() for number in range(1, last + 1)]
    assert len(CATALOGUE) == 179


def test_every_fault_has_a_text_and_a_proof_or_a_reason():
    assert [name for name, row in CATALOGUE.items() if not (row.proof or row.reason)] == []
    assert [name for name, row in CATALOGUE.items() if not (row.fault and row.outcome)] == []


def test_every_test_in_the_fault_catalogue_exists():
    missing = [
        test
        for row in CATALOGUE.values()
        for test in row.proof
        if not (ROOT / test.partition("::")[0]).is_file() or test not in read_tests(test.partition("::")[0])
    ]
    assert missing == []


def test_every_fault_test_is_in_the_row_it_names():
    for file in FAULT_TESTS:
        for test, docstring in read_tests(file).items():
            row = re.match(r"[AB]\d+\b", docstring)
            assert row, f"{test} names no row"
            assert test in CATALOGUE[row[0]].proof, f"{test} is missing in {row[0]}"
