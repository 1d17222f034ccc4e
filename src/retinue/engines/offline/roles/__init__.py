"""What each kind of agent makes of a case: what else it asks, and the sections of its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from retinue.engines.offline.form import ReportSection, select_best_files
from retinue.engines.offline.inquiry import SearchResults, ToolRequest, grep
from retinue.engines.offline.ranking import RankedFile
from retinue.engines.offline.sources import (
    Kind,
    SourceLine,
    SymbolDefinition,
    classify_path,
    defined_name,
    is_markdown,
)

_MOST_NAMES = 12
"""Looked for in tests, each by itself."""
_SHORTEST_NAME = 3
"""Shorter names are everywhere."""
_COMMENT = re.compile(r"\s*(?:#|//|/?\*|\"{3}|'{3}|[rf]?\"{3})")
_IMPORT = re.compile(r"\s*(?:from|import)\b")
_TEST_FOLDERS = ("tests/", "test/", "spec/", "specs/", "__tests__/")


class AnswerRole(Struct, frozen=True):
    """A way of answering."""

    follow: Callable[[SearchResults], Sequence[ToolRequest]]
    """What it wants to know beyond the survey."""
    answer: Callable[[SearchResults], Sequence[ReportSection]]
    prefers: Kind | None = None
    """Files it is about even if the question does not say so."""


def subject_files(case: SearchResults, most: int = 2) -> list[RankedFile]:
    """The source files the question is about: the best, and others nearly as good."""
    return select_best_files(case.of_kind("source", "config") or case.ranked, most)


# -- the one definition it is about ----------------------------------------------------------------


def main_symbol(case: SearchResults) -> SymbolDefinition | None:
    """The definition that answers best; none where a whole folder is asked for."""
    files = [] if case.is_a_folder else subject_files(case)
    found = (hit for file in files for hit in case.evidence_in(file) if isinstance(hit, SymbolDefinition))
    return next((symbol for symbol in found if symbol.kind != "heading"), None)


def request_uses(case: SearchResults) -> list[ToolRequest]:
    """A search for the main symbol as a whole word, if it has a name that says something."""
    main = main_symbol(case)
    return _search_requests([main.name], limit=60) if main else []


def find_uses(case: SearchResults) -> list[SourceLine]:
    """One line of each other source file that uses the main symbol; none if several files define that name."""
    main = main_symbol(case)
    if main is None:
        return []
    found = [hit for got in case.more if got.request.tool == "grep" for hit in got.hits]
    others = [hit for hit in found if hit.path != main.path and classify_path(hit.path) == "source"]
    if any(defined_name(hit.text) == main.name for hit in others):
        return []
    first = {hit.path: hit for hit in reversed(others) if not _COMMENT.match(hit.text)}
    return sorted(first.values(), key=lambda hit: hit.path)


# -- what tests mention ----------------------------------------------------------------------------


def request_tests(case: SearchResults) -> list[ToolRequest]:
    """A search of the tests for each public name by itself, so that a common one does not hide the others."""
    folder = next((name.rstrip("/") for name in case.top if name in _TEST_FOLDERS), None)
    names = dict.fromkeys(symbol.name for symbol in _public_symbols(case))
    return _search_requests(names, limit=5, **({"path": folder} if folder else {"glob": "*{test,spec}*"}))[
        :_MOST_NAMES
    ]


def find_coverage(case: SearchResults) -> Iterator[tuple[SymbolDefinition, SourceLine | None]]:
    """Each public name that was looked for, with a line of a test that mentions it, or with none."""
    asked = {got.request.args["pattern"]: got for got in case.more if got.request.tool == "grep" and not got.is_error}
    for symbol in _public_symbols(case):
        if got := asked.get(_word_pattern(symbol.name)):
            mentions = [hit for hit in got.hits if not _COMMENT.match(hit.text) and not is_markdown(hit.path)]
            yield symbol, min(mentions, key=lambda hit: _IMPORT.match(hit.text) is not None, default=None)


def _public_symbols(case: SearchResults) -> list[SymbolDefinition]:
    """What others can use of the files: classes and functions, not headings and constants."""
    found = [symbol for file in subject_files(case) for symbol in case.symbols_of(file) if symbol.is_public]
    return [symbol for symbol in found if symbol.kind not in ("heading", "constant")]


def _search_requests(names: Iterable[str], *, limit: int, **where: str) -> list[ToolRequest]:
    telling = (name for name in names if len(name) >= _SHORTEST_NAME)
    return [grep(_word_pattern(name), limit=limit, ignore_case=False, **where) for name in telling]


def _word_pattern(name: str) -> str:
    return rf"\b{re.escape(name)}\b"
