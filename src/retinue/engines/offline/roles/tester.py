"""Tester: which public names tests mention, which they do not, and how tests look here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from retinue.engines.offline.answers import Section, cite, code, file_lines, limits, section, worth_showing
from retinue.engines.offline.asking import Ask, Hit, answered, find
from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.kinds import topic_of
from retinue.engines.offline.ranking import Ranked
from retinue.engines.offline.roles.base import Role, ask_tests_for, mentions_in_tests, public_symbols, subjects
from retinue.engines.offline.symbols import Symbol

_MOST_TESTS_TO_WRITE = 5
_IMPORT = re.compile(r"\s*(?:from|import)\b")
_FIXTURES = ("conftest.py", "*{fixture,helper,factory}*", "setup*.{js,ts}")


def _follow(case: Case) -> Sequence[Ask]:
    names = (symbol.name for _, symbol in public_symbols(case, subjects(case)))
    return [*ask_tests_for(case, names), *(find(glob, limit=5) for glob in _FIXTURES)]


def _answer(case: Case) -> Sequence[Section]:
    tests = case.of_kind("tests")
    coverage = list(_coverage(case))
    missing = [(file, symbol) for file, symbol, hit in coverage if hit is None]
    return (
        section("findings", "Findings", (_found(file, symbol, hit) for file, symbol, hit in coverage)),
        section("write", "Tests to write", _to_write(case, missing[:_MOST_TESTS_TO_WRITE])),
        section("tests", "Tests about it", file_lines(case, worth_showing(tests, 5))),
        section("practice", "How to test here", [*_fixtures(case), *_examples(case, tests)]),
        limits(case, "A name that a test mentions may still be badly tested: what the tests observe was not judged"),
    )


def _coverage(case: Case) -> Iterator[tuple[Ranked, Symbol, Hit | None]]:
    """Each public name that was looked for, with a line of a test that mentions it, or with none."""
    for file, symbol in public_symbols(case, subjects(case)):
        mentions = mentions_in_tests(case, symbol.name)
        if mentions is not None:
            telling = [hit for hit in mentions if not _IMPORT.match(hit.text)]
            yield file, symbol, next(iter(telling or mentions), None)


def _found(file: Ranked, symbol: Symbol, hit: Hit | None) -> str:
    where = f"mentioned in `{hit.path}:{hit.line}` {code(hit.text)}" if hit else "not mentioned in any test found"
    return cite(file.path, symbol.line, symbol.text) + f" — {where}"


def _to_write(case: Case, missing: Sequence[tuple[Ranked, Symbol]]) -> Iterator[str]:
    for number, (file, symbol) in enumerate(missing, 1):
        promise = f": {symbol.summary}" if symbol.summary else "."
        yield f"{number}. `{symbol.name}` (`{file.path}:{symbol.line}`){promise} Belongs in {_home(case, file)}."


def _home(case: Case, file: Ranked) -> str:
    topic = topic_of(file.path)
    near = next((test.path for test in case.of_kind("tests") if topic_of(test.path) == topic), None)
    return f"`{near}`" if near else "a new test file beside the others"


def _fixtures(case: Case) -> list[str]:
    found = dict.fromkeys(line for got in answered(case.more, "find") for line in got.lines if line[-1] != "/")
    return [f"- `{path}`: fixtures or helpers" for path in list(found)[:4]]


def _examples(case: Case, tests: Sequence[Ranked]) -> list[str]:
    return [
        cite(test.path, symbol.line, symbol.text)
        for test in tests[:1]
        for symbol in [each for each in case.symbols_of(test.path) if each.is_callable][:3]
    ]


TESTER = Role(_follow, _answer)
