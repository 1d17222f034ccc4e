"""Researcher: what the documents at hand say, by their headings and first sentences."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.engines.offline.answers import Section, best_lines, cite, cited, file_lines, limits, section
from retinue.engines.offline.asking import Ask, grep, hits
from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.kinds import kind_of
from retinue.engines.offline.roles.base import Role

_MOST_HEADINGS = 8


def _follow(case: Case) -> Sequence[Ask]:
    words = "|".join(term.pattern for term in case.question.terms)
    return [grep(rf"^#+ .*(?:{words})", glob="*.{md,markdown,rst,txt}", limit=40)] if words else ()


def _answer(case: Case) -> Sequence[Section]:
    documents = case.of_kind("docs")
    files = documents or list(case.ranked)
    headings = [hit for got in case.more for hit in hits(got) if kind_of(hit.path) != "noise"]
    lines = [cited(each) for each in best_lines(case, files[:4], most=6)]
    lines += [cite(hit.path, hit.line, hit.text, "heading") for hit in headings[:_MOST_HEADINGS]]
    return (
        section("summary", "Answer", _summary(case, len(documents), len(headings))),
        section("findings", "Findings", lines),
        section("sources", "Sources", file_lines(case, files[:6])),
        limits(case, "Local files only: nothing was looked up on the web"),
    )


def _summary(case: Case, documents: int, headings: int) -> list[str]:
    if not documents:
        return [f"No document here is about {case.question.subject}; what follows is from other files."]
    return [f"Documents that mention {case.question.subject}: {documents}; headings that name it: {headings}."]


RESEARCHER = Role(_follow, _answer, prefers="docs")
