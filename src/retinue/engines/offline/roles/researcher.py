"""Researcher: what the documents at hand say, by their headings and first sentences."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.engines.offline.form import ReportSection, cite_hit, limits_section, list_best_lines, list_files
from retinue.engines.offline.inquiry import SearchResults, ToolRequest, grep
from retinue.engines.offline.roles import AnswerRole
from retinue.engines.offline.sources import classify_path

_MOST_HEADINGS = 8


def _follow_up_requests(case: SearchResults) -> Sequence[ToolRequest]:
    words = "|".join(term.pattern for term in case.question.terms)
    return [grep(rf"^#+ .*(?:{words})", glob="*.{md,markdown,rst,txt}", limit=40)] if words else ()


def _build_sections(case: SearchResults) -> Sequence[ReportSection]:
    documents = case.of_kind("docs")
    files = documents or case.ranked
    headings = [hit for got in case.more for hit in got.hits if classify_path(hit.path) != "noise"]
    named = [cite_hit(hit, "heading") for hit in headings[:_MOST_HEADINGS]]
    return (
        ReportSection("summary", "Answer", [_summary(case, len(documents), len(headings))]),
        ReportSection("findings", "Findings", [*list_best_lines(case, files[:4], most=6), *named]),
        ReportSection("sources", "Sources", list_files(case, files[:6])),
        limits_section(case, "Local files only: nothing was looked up on the web"),
    )


def _summary(case: SearchResults, documents: int, headings: int) -> str:
    if not documents:
        return f"No document here is about {case.question.subject}; what follows is from other files."
    return f"Documents that mention {case.question.subject}: {documents}; headings that name it: {headings}."


RESEARCHER = AnswerRole(_follow_up_requests, _build_sections, prefers="docs")
