"""Tests of the table of promises: every proof exists, and everything a toolset offers is promised."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from tests.support.retinue_factory import stage

ROOT = Path(__file__).parents[2]
DOCUMENTS = {"single": ("000", "001"), "sticky": ("002",), "fanout": ("003",), "nested": ("004",)}
"""The documents that describe each toolset."""


class Promise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    text: str
    decides: str = ""
    table: str | None = None
    proof: str | tuple[str, ...]

    @property
    def proofs(self) -> tuple[str, ...]:
        return (self.proof,) if isinstance(self.proof, str) else self.proof


class Requirements(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tables: dict[str, int]
    promises: dict[str, Promise]
    beyond: dict[str, str]
    """Promises of the toolsets, the live view and the search that no document makes, by the test that proves each."""


REQUIREMENTS = msgspec.toml.decode(Path(__file__).with_name("requirements.toml").read_bytes(), type=Requirements)
PROOFS = {test for promise in REQUIREMENTS.promises.values() for test in promise.proofs}
NAMED_TESTS = PROOFS | REQUIREMENTS.beyond.keys()


def list_tests(path: Path) -> set[str]:
    """Return the ids of the tests in a file as pytest spells them, without parameters."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = _test_functions(body)
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            names |= {f"{node.name}::{name}" for name in _test_functions(node.body)}
    return {f"{path.relative_to(ROOT).as_posix()}::{name}" for name in names}


def _test_functions(body: list[ast.stmt]) -> set[str]:
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def property_names(schema: Any) -> Iterable[str]:
    """Yield the names of all properties of a JSON schema, at any depth."""
    match schema:
        case dict():
            for key, value in schema.items():
                if key == "properties":
                    yield from value
                yield from property_names(value)
        case list():
            for item in schema:
                yield from property_names(item)


def test_every_promise_belongs_to_a_document():
    known = {document for documents in DOCUMENTS.values() for document in documents}
    assert [name for name in REQUIREMENTS.promises if name.partition("-")[0] not in known] == []


def test_every_promise_has_a_proof():
    assert [name for name, promise in REQUIREMENTS.promises.items() if not promise.proofs] == []


def test_proofs_of_documented_promises_are_not_listed_as_beyond():
    assert sorted(PROOFS & REQUIREMENTS.beyond.keys()) == []


def test_every_named_test_exists():
    files = {ROOT / name.partition("::")[0] for name in NAMED_TESTS}
    existing = {test for path in files if path.is_file() for test in list_tests(path)}
    assert sorted(NAMED_TESTS - existing) == []


def test_every_file_of_toolset_tests_proves_a_promise():
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "toolsets").rglob("test_*.py")}
    assert files
    assert sorted(files - {name.partition("::")[0] for name in NAMED_TESTS}) == []


@pytest.mark.parametrize("toolset", DOCUMENTS)
async def test_every_tool_and_parameter_of_a_toolset_is_promised(toolset: str, tmp_path: Path):
    """A tool or a parameter can be added only together with its row."""
    rows = [promise for name, promise in REQUIREMENTS.promises.items() if name.startswith(DOCUMENTS[toolset])]
    promised = " ".join([f"{row.text} {row.decides}" for row in rows] + list(REQUIREMENTS.beyond.values()))
    words = set(re.findall(r"\w+", promised))
    async with stage(tmp_path) as retinue:
        tools = retinue.toolset(toolset).list_tools(retinue.call(toolset))
    offered = {name for tool in tools for name in (tool.name, *property_names(tool.input_schema))}
    assert offered
    assert sorted(offered - words) == []


def test_every_row_of_the_documented_tables_is_a_promise():
    rows = Counter(promise.table for promise in REQUIREMENTS.promises.values() if promise.table)
    assert rows == REQUIREMENTS.tables
