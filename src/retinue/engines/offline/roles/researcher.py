"""Researcher: what the documents at hand say, by their headings and first sentences."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.engines.offline.form import Section, best_lines, cite, file_lines, limits
from retinue.engines.offline.inquiry import Ask, Case, grep
from retinue.engines.offline.roles import Role
from retinue.engines.offline.sources import kind_of

_MOST_HEADINGS = 8


def _follow(case: Case) -> Sequence[Ask]:
    words = "|".join(term.pattern for term in case.question.terms)
    return [grep(rf"^#+ .*(?:{words})", glob="*.{md,markdown,rst,txt}", limit=40)] if words else ()


def _answer(case: Case) -> Sequence[Section]:
    documents = case.of_kind("docs")
    files = documents or case.ranked
    headings = [hit for got in case.more for hit in got.hits if kind_of(hit.path) != "noise"]
    named = [cite(hit, "heading") for hit in headings[:_MOST_HEADINGS]]
    return (
        Section("summary", "Answer", [_summary(case, len(documents), len(headings))]),
        Section("findings", "Findings", [*best_lines(case, files[:4], most=6), *named]),
        Section("sources", "Sources", file_lines(case, files[:6])),
        limits(case, "Local files only: nothing was looked up on the web"),
    )


def _summary(case: Case, documents: int, headings: int) -> str:
    if not documents:
        return f"No document here is about {case.question.subject}; what follows is from other files."
    return f"Documents that mention {case.question.subject}: {documents}; headings that name it: {headings}."


RESEARCHER = Role(_follow, _answer, prefers="docs")
