"""The table of promises holds both ways: what it names exists, and what tests a surface is named in it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[2]
ABOUT_SEEDS = (ROOT / "tests" / "surfaces", ROOT / "tests" / "seeds")
"""Folders whose tests exist to prove a promise."""


class Promise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    seed: str
    text: str
    table: str | None = None
    decides: str | None = None
    proof: tuple[str, ...] | None = None
    open: str | None = None


class Requirements(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tables: dict[str, int]
    beyond: dict[str, str]
    """Tests of a surface that prove what no seed asks for, each with what it proves."""
    promise: tuple[Promise, ...]


def read() -> Requirements:
    return msgspec.toml.decode(Path(__file__).with_name("requirements.toml").read_bytes(), type=Requirements)


REQUIREMENTS = read()
PROMISES = REQUIREMENTS.promise


def defined_in(path: Path) -> set[str]:
    """The tests a file defines, by the ids pytest gives them, parameters left out."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    found = _test_functions(body)
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            found |= {f"{node.name}::{name}" for name in _test_functions(node.body)}
    return {f"{path.relative_to(ROOT).as_posix()}::{name}" for name in found}


def _test_functions(body: list[ast.stmt]) -> set[str]:
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def proofs() -> set[str]:
    return {test for promise in PROMISES for test in promise.proof or ()}


def named() -> set[str]:
    return proofs() | REQUIREMENTS.beyond.keys()


def test_each_promise_has_an_id_of_its_own_that_begins_with_its_seed():
    ids = Counter(promise.id for promise in PROMISES)
    assert [name for name, times in ids.items() if times > 1] == []
    assert [promise.id for promise in PROMISES if not promise.id.startswith(f"{promise.seed}-")] == []


def test_each_promise_is_either_proved_or_open():
    assert [promise.id for promise in PROMISES if bool(promise.proof) == bool(promise.open)] == []


def test_no_proof_of_a_promise_is_called_beyond_them():
    assert sorted(proofs() & REQUIREMENTS.beyond.keys()) == []


def test_every_test_that_is_named_exists():
    files = {name.partition("::")[0] for name in named()}
    missing_files = {name for name in files if not (ROOT / name).is_file()}
    assert missing_files == set()
    existing = {test for name in files for test in defined_in(ROOT / name)}
    assert sorted(named() - existing) == []


def test_every_test_of_a_surface_is_named():
    files = {path for folder in ABOUT_SEEDS for path in folder.rglob("test_*.py")} - {Path(__file__)}
    tests = {test for path in files for test in defined_in(path)}
    assert sorted(tests - named()) == []


def test_the_first_two_seeds_wait_for_nothing_but_the_pi_engine():
    waiting = {promise.id: promise.open for promise in PROMISES if promise.seed in {"000", "001"} and promise.open}
    assert {name: what for name, what in waiting.items() if "pi engine" not in what} == {}


def test_every_row_of_the_tables_in_the_seeds_is_a_promise():
    rows = Counter(promise.table for promise in PROMISES if promise.table)
    assert rows == REQUIREMENTS.tables
