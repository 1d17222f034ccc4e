"""The table of faults holds both ways: every row is shown or explained, and every test of a fault stands in its row."""

import ast
import re
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[3]
ROWS = [*(f"A{number}" for number in range(1, 25)), *(f"B{number}" for number in range(1, 19))]
ABOUT_FAULTS = ("test_pi_faults_startup.py", "test_pi_faults_stream.py")


class Row(Struct, frozen=True, forbid_unknown_fields=True):
    proof: tuple[str, ...] = ()
    lacks: str = ""
    """What is required and cannot be shown, and why."""


CATALOGUE = msgspec.toml.decode(Path(__file__).with_name("fault_catalogue.toml").read_bytes(), type=dict[str, Row])


def defined_in(file: str) -> dict[str, str]:
    """The tests of a file by their names, with the first line of what they say of themselves."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        f"{file}::{function.name}": ast.get_docstring(function) or ""
        for function in functions
        if function.name.startswith("test_")
    }


def test_every_row_of_the_catalogue_is_here():
    assert list(CATALOGUE) == ROWS


def test_every_row_is_shown_or_says_why_not():
    assert [name for name, row in CATALOGUE.items() if not row.proof and not row.lacks] == []


def test_every_test_that_is_named_exists():
    named = {test for row in CATALOGUE.values() for test in row.proof}
    existing = {test for file in {name.partition("::")[0] for name in named} for test in defined_in(file)}
    assert sorted(named - existing) == []


def test_every_test_of_a_fault_stands_in_the_row_it_names():
    for name in ABOUT_FAULTS:
        for test, says in defined_in(f"tests/engines/process/{name}").items():
            row = re.match(r"[AB]\d+\b", says)
            assert row, f"{test} names no row"
            assert test in CATALOGUE[row[0]].proof, f"{test} is missing in {row[0]}"
