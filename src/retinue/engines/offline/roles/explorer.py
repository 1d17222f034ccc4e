"""Explorer: where it is, and who uses it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.engines.offline.form import Section, best_lines, cite, file_lines, limits, worth_showing
from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.ranking import Ranked
from retinue.engines.offline.roles import Role, ask_for_uses, main_symbol, uses
from retinue.engines.offline.sources import Hit, Symbol, indent_of

_ENUMERATING = re.compile(r"\b(?:which|list|enumerate|all|every|what\s+\w+s)\b", re.IGNORECASE)
_FIELD = re.compile(r"\s+[a-z]\w*\s*(?::\s*[\w\"'\[]|=(?!=))")
_MOST_MEMBERS, _MOST_FILES, _MOST_USES = 40, 12, 5


def _answer(case: Case) -> Sequence[Section]:
    asked = case.of_kind(*case.question.about)
    files = worth_showing(asked or case.of_kind("source", "config") or case.ranked, 4)
    return (
        Section("findings", "Findings", _found(case, files)),
        Section("fits", "How it fits together", [*_uses(case), *_elsewhere(case)]),
        limits(case),
    )


def _found(case: Case, files: Sequence[Ranked]) -> list[str]:
    if case.is_a_folder:
        return file_lines(case, case.ranked[:_MOST_FILES])
    return [*best_lines(case, files), *_members(case)] or file_lines(case, files)


def _members(case: Case) -> list[str]:
    """Where many things are asked for: the fields of the best class, or else all that its file defines."""
    main = main_symbol(case)
    if main is None or not _ENUMERATING.search(case.question.text):
        return []
    (file,) = [file for file in case.ranked if file.path == main.path]
    defined = [symbol for symbol in case.symbols_of(file) if symbol.is_public]
    return [cite(hit) for hit in (_fields(case, main) or defined)[:_MOST_MEMBERS]]


def _fields(case: Case, symbol: Symbol) -> Sequence[Hit]:
    """The annotated or assigned names right inside a class."""
    if symbol.kind != "class" or symbol.path not in case.sources:
        return []
    inside = [hit for hit in case.sources[symbol.path].hits() if symbol.line < hit.line <= symbol.end]
    indent = min((indent_of(hit.text) for hit in inside if hit.text.strip()), default=0)
    return [hit for hit in inside if _FIELD.match(hit.text) and indent_of(hit.text) == indent]


def _uses(case: Case) -> list[str]:
    main = main_symbol(case)
    found = [cite(hit) for hit in uses(case)[:_MOST_USES]]
    return [f"`{main.name}` is used in:", *found] if main and found else []


def _elsewhere(case: Case) -> list[str]:
    tests, docs = worth_showing(case.of_kind("tests"), 2), worth_showing(case.of_kind("docs"), 2)
    return [
        *(["Tests:", *file_lines(case, tests)] if tests else ()),
        *(["Documents:", *file_lines(case, docs)] if docs else ()),
    ]


EXPLORER = Role(ask_for_uses, _answer)
