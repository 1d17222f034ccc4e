"""Explorer: where it is, and who uses it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from retinue.engines.offline.form import (
    ReportSection,
    cite_hit,
    limits_section,
    list_best_lines,
    list_files,
    select_best_files,
)
from retinue.engines.offline.inquiry import SearchResults
from retinue.engines.offline.ranking import RankedFile
from retinue.engines.offline.roles import AnswerRole, find_uses, main_symbol, request_uses
from retinue.engines.offline.sources import SourceLine, SymbolDefinition, indent_of

_ENUMERATING = re.compile(r"\b(?:which|list|enumerate|all|every|what\s+\w+s)\b", re.IGNORECASE)
_FIELD = re.compile(r"\s+[a-z]\w*\s*(?::\s*[\w\"'\[]|=(?!=))")
_MOST_MEMBERS, _MOST_FILES, _MOST_USES = 40, 12, 5


def _build_sections(case: SearchResults) -> Sequence[ReportSection]:
    asked = case.of_kind(*case.question.about)
    files = select_best_files(asked or case.of_kind("source", "config") or case.ranked, 4)
    return (
        ReportSection("findings", "Findings", _list_findings(case, files)),
        ReportSection("fits", "How it fits together", [*_list_uses(case), *_list_other_places(case)]),
        limits_section(case),
    )


def _list_findings(case: SearchResults, files: Sequence[RankedFile]) -> list[str]:
    if case.is_a_folder:
        return list_files(case, case.ranked[:_MOST_FILES])
    return [*list_best_lines(case, files), *_list_class_fields(case)] or list_files(case, files)


def _list_class_fields(case: SearchResults) -> list[str]:
    """Where many things are asked for: the fields of the best class, or else all that its file defines."""
    main = main_symbol(case)
    if main is None or not _ENUMERATING.search(case.question.text):
        return []
    (file,) = [file for file in case.ranked if file.path == main.path]
    defined = [symbol for symbol in case.symbols_of(file) if symbol.is_public]
    return [cite_hit(hit) for hit in (_fields(case, main) or defined)[:_MOST_MEMBERS]]


def _fields(case: SearchResults, symbol: SymbolDefinition) -> Sequence[SourceLine]:
    """The annotated or assigned names right inside a class."""
    if symbol.kind != "class" or symbol.path not in case.sources:
        return []
    inside = [hit for hit in case.sources[symbol.path].hits() if symbol.line < hit.line <= symbol.end]
    indent = min((indent_of(hit.text) for hit in inside if hit.text.strip()), default=0)
    return [hit for hit in inside if _FIELD.match(hit.text) and indent_of(hit.text) == indent]


def _list_uses(case: SearchResults) -> list[str]:
    main = main_symbol(case)
    found = [cite_hit(hit) for hit in find_uses(case)[:_MOST_USES]]
    return [f"`{main.name}` is used in:", *found] if main and found else []


def _list_other_places(case: SearchResults) -> list[str]:
    tests, docs = select_best_files(case.of_kind("tests"), 2), select_best_files(case.of_kind("docs"), 2)
    return [
        *(["Tests:", *list_files(case, tests)] if tests else ()),
        *(["Documents:", *list_files(case, docs)] if docs else ()),
    ]


EXPLORER = AnswerRole(request_uses, _build_sections)
