"""Reviewer: marks in the code that a reviewer looks at first, as facts; it does not judge whether code is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from retinue.engines.offline.form import ReportSection, cite_hit, limits_section
from retinue.engines.offline.inquiry import SearchResults
from retinue.engines.offline.ranking import RankedFile
from retinue.engines.offline.roles import AnswerRole, find_coverage, request_tests, subject_files

_LONG_FUNCTION = 60
"""Lines beyond which a function is hard to hold in the head."""
_MOST_PER_MARK = 4
_MARKS = {
    "left to do": r"\b(?:TODO|FIXME|XXX|HACK)\b",
    "catches everything": r"^\s*except\s*:|\bexcept\s+BaseException\b|\bcatch\s*(?:\([^)]*\))?\s*\{\s*\}",
    "catches nearly everything": r"\bexcept\s+Exception\b|\bcatch\s*\(\s*(?:Throwable|Exception)\b",
    "swallows a failure": r"\bcontextlib\.suppress\(Exception\)|^\s*except\b.*:\s*pass\b",
    "runs what it is given": r"\b(?:eval|exec)\(|\bshell\s*=\s*True\b|\bos\.system\(|\bchild_process\b",
    "loads data that can run code": r"\bpickle\.loads?\(|\byaml\.load\((?!.*Safe)",
    "does not check certificates": r"\bverify\s*=\s*False\b|\brejectUnauthorized\s*:\s*false\b",
    "a default that all calls share": r"\bdef\s+\w+\(.*=\s*(?:\[\]|\{\})\s*[,)]",
    "a check switched off": r"#\s*(?:type:\s*ignore|noqa|nosec)\b|@ts-ignore\b|eslint-disable\b",
    "waits a fixed time": r"\btime\.sleep\(",
}


def _build_sections(case: SearchResults) -> Sequence[ReportSection]:
    files = [file for file in subject_files(case, most=4) if file.path in case.sources]
    marks = [line for file in files for line in _list_marks(case, file)]
    untested = [cite_hit(symbol, "no test mentions it") for symbol, hit in find_coverage(case) if hit is None]
    return (
        ReportSection("summary", "Verdict", [_verdict(case, len(files), len(marks), len(untested))]),
        ReportSection("findings", "Findings", [*marks, *untested] or ["No marks found."]),
        ReportSection("checked", "Checked", [_describe_checked(case, file) for file in files]),
        limits_section(case, "Rules see marks, not meaning: whether the code does the right thing was not judged"),
    )


def _verdict(case: SearchResults, files: int, marks: int, untested: int) -> str:
    seen = f"Looked at {files} file{'s' * (files != 1)} about {case.question.subject}: "
    seen += f"{marks} mark{'s' * (marks != 1)} to look at"
    return f"{seen}, {untested} public name{'s' * (untested != 1)} that no test mentions." if untested else f"{seen}."


def _list_marks(case: SearchResults, file: RankedFile) -> Iterator[str]:
    for what, pattern in _MARKS.items():
        found = [hit for hit in case.sources[file.path].hits() if re.search(pattern, hit.text[:500])]
        yield from (cite_hit(hit, what) for hit in found[:_MOST_PER_MARK])
    for symbol in case.symbols_of(file):
        length = symbol.end - symbol.line + 1
        if symbol.is_callable and length > _LONG_FUNCTION:
            yield cite_hit(symbol, f"{length} lines long")


def _describe_checked(case: SearchResults, file: RankedFile) -> str:
    lines, definitions = len(case.sources[file.path].lines), len(case.symbols_of(file))
    return f"- `{file.path}`: {lines} lines, {definitions} definitions"


REVIEWER = AnswerRole(request_tests, _build_sections)
