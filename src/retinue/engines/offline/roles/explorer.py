"""Explorer: where it is, and who uses it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.engines.offline.answers import (
    Section,
    best_lines,
    cite,
    cited,
    file_lines,
    limits,
    section,
    worth_showing,
)
from retinue.engines.offline.asking import Ask
from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.ranking import Ranked
from retinue.engines.offline.roles.base import Role, ask_for_uses, main_symbol, uses
from retinue.engines.offline.symbols import Symbol

_ENUMERATING = re.compile(r"\b(?:which|list|enumerate|all|every|what\s+\w+s)\b", re.IGNORECASE)
_FIELD = re.compile(r"\s+[a-z]\w*\s*(?::\s*[\w\"'\[]|=(?!=))")
_MOST_MEMBERS, _MOST_FILES, _MOST_USES = 40, 12, 5


def _follow(case: Case) -> Sequence[Ask]:
    main = main_symbol(case)
    return ask_for_uses(main[1].name) if main else ()


def _answer(case: Case) -> Sequence[Section]:
    asked = case.of_kind(*case.question.about) if case.question.about else []
    files = worth_showing(asked or case.of_kind("source", "config") or list(case.ranked), 4)
    return (
        section("findings", "Findings", _found(case, files)),
        section("fits", "How it fits together", [*_uses(case), *_elsewhere(case)]),
        limits(case),
    )


def _found(case: Case, files: Sequence[Ranked]) -> list[str]:
    if case.is_a_folder:
        return file_lines(case, case.ranked[:_MOST_FILES])
    lines = [cited(each) for each in best_lines(case, files)]
    return [*lines, *_members(case)] or file_lines(case, files)


def _members(case: Case) -> list[str]:
    """Where many things are asked for: the fields of the best class, or else all that its file defines."""
    main = main_symbol(case)
    if main is None or not _ENUMERATING.search(case.question.text):
        return []
    file, symbol = main
    fields = [cite(file.path, number, line) for number, line in _fields(case, file, symbol)]
    defined = (each for each in case.symbols_of(file.path) if each.is_public)
    others = [cite(file.path, each.line, each.text, each.summary) for each in defined]
    return (fields or others)[:_MOST_MEMBERS]


def _fields(case: Case, file: Ranked, symbol: Symbol) -> list[tuple[int, str]]:
    """The annotated or assigned names right inside a class."""
    if symbol.kind != "class" or file.path not in case.sources:
        return []
    body = [
        each for each in case.sources[file.path].numbered() if symbol.line < each[0] <= symbol.end and each[1].strip()
    ]
    found = [(number, line) for number, line in body if _FIELD.match(line)]
    depth = min((len(line) - len(line.lstrip()) for _, line in body), default=0)
    return [(number, line) for number, line in found if len(line) - len(line.lstrip()) == depth]


def _uses(case: Case) -> list[str]:
    main = main_symbol(case)
    if main is None:
        return []
    file, symbol = main
    found = [cite(hit.path, hit.line, hit.text) for hit in uses(case, symbol, file.path)[:_MOST_USES]]
    return [f"`{symbol.name}` is used in:", *found] if found else []


def _elsewhere(case: Case) -> list[str]:
    tests, docs = worth_showing(case.of_kind("tests"), 2), worth_showing(case.of_kind("docs"), 2)
    return [
        *(["Tests:", *file_lines(case, tests)] if tests else ()),
        *(["Documents:", *file_lines(case, docs)] if docs else ()),
    ]


EXPLORER = Role(_follow, _answer)
