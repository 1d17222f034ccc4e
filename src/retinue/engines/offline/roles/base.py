"""What a role is, and what several of them need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from retinue.engines.offline.answers import Section, worth_showing
from retinue.engines.offline.asking import Ask, Hit, answered, grep, hits
from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.kinds import Kind, has_headings, kind_of
from retinue.engines.offline.ranking import Ranked
from retinue.engines.offline.symbols import Symbol, name_defined

_MOST_NAMES = 12
"""Looked for, each by itself."""
_METHOD = 4
"""Indent of what stands right inside a class."""
_SHORTEST_NAME = 3
"""Shorter names are everywhere."""
_COMMENT = re.compile(r"\s*(?:#|//|/?\*|\"{3}|'{3}|[rf]?\"{3})")
_TEST_FOLDERS = ("tests/", "test/", "spec/", "specs/", "__tests__/")
_TOO_COMMON = frozenset({"main", "run", "get", "set", "init", "name", "close", "open", "read", "write", "call"})
"""Names of which a mention somewhere says nothing."""


class Role(Struct, frozen=True):
    """A way of answering."""

    follow: Callable[[Case], Sequence[Ask]]
    """What it wants to know beyond the survey."""
    answer: Callable[[Case], Sequence[Section]]
    prefers: Kind | None = None
    """Files it is about even if the question does not say so."""


def subjects(case: Case, most: int = 2) -> list[Ranked]:
    """The source files the question is about: the best, and others nearly as good."""
    return worth_showing(case.of_kind("source", "config") or list(case.ranked), most)


def public_symbols(case: Case, files: Iterable[Ranked]) -> list[tuple[Ranked, Symbol]]:
    """What others can use of some files: classes and functions, not headings, constants or what is nested deep."""
    return [
        (file, symbol)
        for file in files
        for symbol in case.symbols_of(file.path)
        if symbol.is_public and symbol.kind not in ("heading", "constant") and symbol.indent <= _METHOD
    ]


def main_symbol(case: Case) -> tuple[Ranked, Symbol] | None:
    """The definition that answers best; none where a whole folder is asked for."""
    for file in () if case.is_a_folder else subjects(case):
        for each in case.evidence_in(file):
            if each.symbol and each.symbol.kind != "heading":
                return file, each.symbol
    return None


def ask_for_uses(name: str) -> list[Ask]:
    """A search for a name as a whole word; none for a name that says nothing."""
    return [grep(_whole(name), limit=60, ignore_case=False)] if _tells(name) else []


def ask_tests_for(case: Case, names: Iterable[str]) -> list[Ask]:
    """A search of the tests for each name by itself, so that a common one does not hide the others."""
    telling = list(dict.fromkeys(filter(_tells, names)))[:_MOST_NAMES]
    folder = next((name.rstrip("/") for name in case.top if name in _TEST_FOLDERS), None)
    where = {"path": folder} if folder else {"glob": "*{test,spec}*"}
    return [grep(_whole(name), limit=5, ignore_case=False, **where) for name in telling]


def mentions_in_tests(case: Case, name: str) -> list[Hit] | None:
    """The lines of tests in which a name was found; None if it was not looked for, or in vain for another reason."""
    for got in answered(case.more, "grep"):
        if got.ask.args["pattern"] == _whole(name) and not got.is_error:
            return [hit for hit in hits(got) if not (_COMMENT.match(hit.text) or has_headings(hit.path))]
    return None


def uses(case: Case, symbol: Symbol, path: str) -> list[Hit]:
    """One line of each other source file that uses a symbol; none if several files define that name."""
    found = [hit for got in answered(case.more, "grep") for hit in hits(got)]
    others = [hit for hit in found if hit.path != path and kind_of(hit.path) == "source"]
    if any(name_defined(hit.text) == symbol.name for hit in others):
        return []
    first = {hit.path: hit for hit in reversed(others) if not _COMMENT.match(hit.text)}
    return sorted(first.values(), key=lambda hit: hit.path)


def _whole(name: str) -> str:
    return rf"\b{re.escape(name)}\b"


def _tells(name: str) -> bool:
    return name not in _TOO_COMMON and len(name) >= _SHORTEST_NAME
