"""Tester: which public names tests mention, which they do not, and how tests look here."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.engines.offline.form import (
    ReportSection,
    cite_hit,
    format_code,
    limits_section,
    list_files,
    select_best_files,
)
from retinue.engines.offline.inquiry import SearchResults, ToolRequest, collect_lines, find
from retinue.engines.offline.ranking import RankedFile
from retinue.engines.offline.roles import AnswerRole, find_coverage, request_tests
from retinue.engines.offline.sources import SourceLine, SymbolDefinition, topic_of

_MOST_TESTS_TO_WRITE = 5
_FIXTURES = ("conftest.py", "*{fixture,helper,factory}*", "setup*.{js,ts}")


def _follow_up_requests(case: SearchResults) -> Sequence[ToolRequest]:
    return [*request_tests(case), *(find(glob, limit=5) for glob in _FIXTURES)]


def _build_sections(case: SearchResults) -> Sequence[ReportSection]:
    tests = case.of_kind("tests")
    covered = list(find_coverage(case))
    missing = [_suggest_test(case, symbol) for symbol, hit in covered if hit is None][:_MOST_TESTS_TO_WRITE]
    return (
        ReportSection("findings", "Findings", [_format_coverage(*each) for each in covered]),
        ReportSection("write", "Tests to write", [f"{number}. {each}" for number, each in enumerate(missing, 1)]),
        ReportSection("tests", "Tests about it", list_files(case, select_best_files(tests, 5))),
        ReportSection("practice", "How to test here", [*_fixtures(case), *_examples(case, tests)]),
        limits_section(
            case, "A name that a test mentions may still be badly tested: what the tests observe was not judged"
        ),
    )


def _format_coverage(symbol: SymbolDefinition, hit: SourceLine | None) -> str:
    where = (
        f"mentioned in `{hit.path}:{hit.line}` {format_code(hit.text)}" if hit else "not mentioned in any test found"
    )
    return f"- `{symbol.path}:{symbol.line}` {format_code(symbol.text)} — {where}"


def _suggest_test(case: SearchResults, symbol: SymbolDefinition) -> str:
    topic = topic_of(symbol.path)
    near = next((f"`{test.path}`" for test in case.of_kind("tests") if topic_of(test.path) == topic), None)
    promise = f": {symbol.note}" if symbol.note else "."
    home = near or "a new test file beside the others"
    return f"`{symbol.name}` (`{symbol.path}:{symbol.line}`){promise} Belongs in {home}."


def _fixtures(case: SearchResults) -> list[str]:
    found = dict.fromkeys(line for line in collect_lines("find", case.more) if not line.endswith("/"))
    return [f"- `{path}`: fixtures or helpers" for path in list(found)[:4]]


def _examples(case: SearchResults, tests: Sequence[RankedFile]) -> list[str]:
    defined = [symbol for test in tests[:1] for symbol in case.symbols_of(test) if symbol.is_callable]
    return [cite_hit(symbol) for symbol in defined[:3]]


TESTER = AnswerRole(_follow_up_requests, _build_sections)
