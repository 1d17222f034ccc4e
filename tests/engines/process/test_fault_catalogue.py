"""The fault catalogue is complete both ways: every row has a proof or a reason, every test of a fault a row."""

import ast
import re
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[3]
ROWS = [*(f"A{number}" for number in range(1, 25)), *(f"B{number}" for number in range(1, 19))]
FAULT_TESTS = ("test_pi_faults_startup.py", "test_pi_faults_stream.py")


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    proof: tuple[str, ...] = ()
    lacks: str = ""
    """A requirement that cannot be tested, and the reason."""


CATALOGUE = msgspec.toml.decode(Path(__file__).with_name("fault_catalogue.toml").read_bytes(), type=dict[str, Row])


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
    assert list(CATALOGUE) == ROWS


def test_every_fault_has_a_proof_or_a_reason():
    assert [name for name, row in CATALOGUE.items() if not row.proof and not row.lacks] == []


def test_every_test_in_the_fault_catalogue_exists():
    named = {test for row in CATALOGUE.values() for test in row.proof}
    existing = {test for file in {name.partition("::")[0] for name in named} for test in read_tests(file)}
    assert sorted(named - existing) == []


def test_every_fault_test_is_in_the_row_it_names():
    for name in FAULT_TESTS:
        for test, docstring in read_tests(f"tests/engines/process/{name}").items():
            row = re.match(r"[AB]\d+\b", docstring)
            assert row, f"{test} names no row"
            assert test in CATALOGUE[row[0]].proof, f"{test} is missing in {row[0]}"
