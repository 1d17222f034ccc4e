"""Reviewer: marks in the code that a reviewer looks at first, as facts; it does not judge whether code is right."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from retinue.engines.offline.answers import Section, cite, limits, section
from retinue.engines.offline.asking import Ask, Source
from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.ranking import Ranked
from retinue.engines.offline.roles.base import Role, ask_tests_for, mentions_in_tests, public_symbols, subjects

_LONG_FUNCTION = 60
"""Lines beyond which a function is hard to hold in the head."""
_MOST_PER_MARK = 4
_MARKS = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (r"\b(?:TODO|FIXME|XXX|HACK)\b", "left to do"),
        (r"^\s*except\s*:|\bexcept\s+BaseException\b|\bcatch\s*(?:\([^)]*\))?\s*\{\s*\}", "catches everything"),
        (r"\bexcept\s+Exception\b|\bcatch\s*\(\s*(?:Throwable|Exception)\b", "catches nearly everything"),
        (r"\bcontextlib\.suppress\(Exception\)|^\s*except\b.*:\s*pass\b", "swallows a failure"),
        (r"\b(?:eval|exec)\(|\bshell\s*=\s*True\b|\bos\.system\(|\bchild_process\b", "runs what it is given"),
        (r"\bpickle\.loads?\(|\byaml\.load\((?!.*Safe)", "loads data that can run code"),
        (r"\bverify\s*=\s*False\b|\brejectUnauthorized\s*:\s*false\b", "does not check certificates"),
        (r"\bdef\s+\w+\(.*=\s*(?:\[\]|\{\})\s*[,)]", "a default that all calls share"),
        (r"#\s*(?:type:\s*ignore|noqa|nosec)\b|@ts-ignore\b|eslint-disable\b", "a check switched off"),
        (r"\btime\.sleep\(", "waits a fixed time"),
    )
)


def _follow(case: Case) -> Sequence[Ask]:
    return ask_tests_for(case, (symbol.name for _, symbol in public_symbols(case, subjects(case))))


def _answer(case: Case) -> Sequence[Section]:
    files = [file for file in subjects(case, most=4) if file.path in case.sources]
    marks = [line for file in files for line in _marks(case, file)]
    untested = list(_untested(case))
    return (
        section("summary", "Verdict", [_verdict(case, len(files), len(marks), len(untested))]),
        section("findings", "Findings", [*marks, *untested] or ["No marks found."]),
        section("checked", "Checked", (_checked(case, file) for file in files)),
        limits(case, "Rules see marks, not meaning: whether the code does the right thing was not judged"),
    )


def _verdict(case: Case, files: int, marks: int, untested: int) -> str:
    seen = f"Looked at {files} file{'s' * (files != 1)} about {case.question.subject}: "
    seen += f"{marks} mark{'s' * (marks != 1)} to look at"
    return f"{seen}, {untested} public name{'s' * (untested != 1)} that no test mentions." if untested else f"{seen}."


def _marks(case: Case, file: Ranked) -> Iterator[str]:
    source = case.sources[file.path]
    for pattern, what in _MARKS:
        found = [(number, line) for number, line in source.numbered() if pattern.search(line[:500])]
        yield from (cite(file.path, number, line, what) for number, line in found[:_MOST_PER_MARK])
    yield from _long_functions(case, source)


def _long_functions(case: Case, source: Source) -> Iterator[str]:
    for symbol in case.symbols_of(source.path):
        length = symbol.end - symbol.line + 1
        if symbol.is_callable and length > _LONG_FUNCTION:
            yield cite(source.path, symbol.line, symbol.text, f"{length} lines long")


def _untested(case: Case) -> Iterator[str]:
    for file, symbol in public_symbols(case, subjects(case)):
        if mentions_in_tests(case, symbol.name) == []:
            yield cite(file.path, symbol.line, symbol.text, "no test mentions it")


def _checked(case: Case, file: Ranked) -> str:
    source = case.sources[file.path]
    return f"- `{file.path}`: {len(source.lines)} lines, {len(case.symbols_of(file.path))} definitions"


REVIEWER = Role(_follow, _answer)
