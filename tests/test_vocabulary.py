"""The language of the sources: no metaphors in names, exceptions end in Error, functions stay short."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "retinue"
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent.name != "testing"]

MAX_FUNCTION_LINES = 90
METAPHORS = re.compile(
    r"^_?(tell|told|say|said|hear|heard|guest|lodger|household|purse|reins|door|desk|errand|farewell|goodbye|deed)s?$",
    re.IGNORECASE,
)
ERROR_BASES = ("Exception", "ValueError", "RuntimeError", "OSError", "TypeError", "KeyError")


def definitions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


def words_of(name: str) -> list[str]:
    return re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+", name.strip("_"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_names_use_no_metaphors(path):
    names = [node.name for node in definitions(path)]
    assert [name for name in names if any(METAPHORS.match(word) for word in words_of(name))] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_exceptions_end_in_error(path):
    classes = [node for node in definitions(path) if isinstance(node, ast.ClassDef)]
    raised = [node for node in classes if any(ast.unparse(base).endswith(ERROR_BASES) for base in node.bases)]
    assert [node.name for node in raised if not node.name.endswith(("Error", "Exit", "Warning"))] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_functions_have_at_most_90_lines(path):
    functions = [node for node in definitions(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}
