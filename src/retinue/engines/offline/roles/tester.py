"""Tester: which public names tests mention, which they do not, and how tests look here."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.engines.offline.form import Section, cite, code, file_lines, limits, worth_showing
from retinue.engines.offline.inquiry import Ask, Case, find, lines_of
from retinue.engines.offline.ranking import Ranked
from retinue.engines.offline.roles import Role, ask_tests, coverage
from retinue.engines.offline.sources import Hit, Symbol, topic_of

_MOST_TESTS_TO_WRITE = 5
_FIXTURES = ("conftest.py", "*{fixture,helper,factory}*", "setup*.{js,ts}")


def _follow(case: Case) -> Sequence[Ask]:
    return [*ask_tests(case), *(find(glob, limit=5) for glob in _FIXTURES)]


def _answer(case: Case) -> Sequence[Section]:
    tests = case.of_kind("tests")
    covered = list(coverage(case))
    missing = [_to_write(case, symbol) for symbol, hit in covered if hit is None][:_MOST_TESTS_TO_WRITE]
    return (
        Section("findings", "Findings", [_found(*each) for each in covered]),
        Section("write", "Tests to write", [f"{number}. {each}" for number, each in enumerate(missing, 1)]),
        Section("tests", "Tests about it", file_lines(case, worth_showing(tests, 5))),
        Section("practice", "How to test here", [*_fixtures(case), *_examples(case, tests)]),
        limits(case, "A name that a test mentions may still be badly tested: what the tests observe was not judged"),
    )


def _found(symbol: Symbol, hit: Hit | None) -> str:
    where = f"mentioned in `{hit.path}:{hit.line}` {code(hit.text)}" if hit else "not mentioned in any test found"
    return f"- `{symbol.path}:{symbol.line}` {code(symbol.text)} — {where}"


def _to_write(case: Case, symbol: Symbol) -> str:
    topic = topic_of(symbol.path)
    near = next((f"`{test.path}`" for test in case.of_kind("tests") if topic_of(test.path) == topic), None)
    promise = f": {symbol.note}" if symbol.note else "."
    home = near or "a new test file beside the others"
    return f"`{symbol.name}` (`{symbol.path}:{symbol.line}`){promise} Belongs in {home}."


def _fixtures(case: Case) -> list[str]:
    found = dict.fromkeys(line for line in lines_of("find", case.more) if not line.endswith("/"))
    return [f"- `{path}`: fixtures or helpers" for path in list(found)[:4]]


def _examples(case: Case, tests: Sequence[Ranked]) -> list[str]:
    defined = [symbol for test in tests[:1] for symbol in case.symbols_of(test) if symbol.is_callable]
    return [cite(symbol) for symbol in defined[:3]]


TESTER = Role(_follow, _answer)
