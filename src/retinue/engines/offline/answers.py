"""What an answer is made of, before it has a form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.kinds import has_headings
from retinue.engines.offline.ranking import Evidence, Ranked
from retinue.engines.offline.symbols import opening
from retinue.engines.offline.terms import Term

_MOST_TEXT = 160
"""Characters of a line that are quoted."""
_LINES_PER_FILE = 3
_NEARLY_AS_GOOD = 0.35
"""Of the best file's score: what a file must have to be shown beside it."""


class Section(Struct, frozen=True):
    """One part of an answer."""

    topic: str
    """What it is, for finding the heading it belongs under; see `form`."""
    title: str
    """Its own heading, where the agent's form has none for it."""
    lines: tuple[str, ...]


def section(topic: str, title: str, lines: Iterable[str]) -> Section:
    return Section(topic, title, tuple(dict.fromkeys(lines)))


def cite(path: str, line: int, text: str, note: str = "") -> str:
    """A line of evidence: where, what it says there, and what that is."""
    quoted = f" {code(text)}" if text.strip() else ""
    return f"- `{path}:{line}`{quoted}" + (f" — {clipped(note)}" if note else "")


def code(text: str) -> str:
    short = clipped(text.strip())
    # A fence longer than any run of backticks inside keeps it one piece of code.
    return f"`` {short} ``" if "`" in short else f"`{short}`"


def clipped(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1].rstrip() + "…"


def cited(evidence: Evidence) -> str:
    return cite(evidence.path, evidence.line, evidence.text, evidence.note)


def worth_showing(files: Sequence[Ranked], most: int) -> list[Ranked]:
    """The best files, without those that are much worse than the first."""
    return [file for file in files[:most] if file.score >= files[0].score * _NEARLY_AS_GOOD]


def best_lines(case: Case, files: Sequence[Ranked], *, most: int = 8) -> list[Evidence]:
    """The lines that answer best in the best files: a few of each, the best file first."""
    few = (case.evidence_in(file)[:_LINES_PER_FILE] for file in files)
    return [each for lines in few for each in sorted(lines, key=lambda each: each.symbol is None)][:most]


def file_lines(case: Case, files: Sequence[Ranked]) -> list[str]:
    """Files with the reason they are named."""
    return [f"- `{file.path}`{_reason(case, file)}" for file in files]


def _reason(case: Case, file: Ranked) -> str:
    if said := _opening(case, file.path):
        return f" — {clipped(said)}"
    lines = len(file.hits)
    return f" — {lines} line{'s' if lines != 1 else ''} about it" if lines else " — by its name"


def _opening(case: Case, path: str) -> str:
    """What a file that was read says of itself."""
    if path not in case.sources:
        return ""
    if has_headings(path):
        return next((heading.name for heading in case.symbols_of(path)), "")
    return opening(case.sources[path].lines)


def limits(case: Case, *more: str) -> Section:
    """What was searched, what was not found and what could not be done."""
    terms = case.question.terms
    lines = [f"- Searched for: {_listed(terms)}"] if terms else []
    if case.question.paths:
        lines.append(f"- Looked for: {', '.join(f'`{path}`' for path in case.question.paths)}")
    if case.absent:
        lines.append(f"- Found nowhere: {_listed(case.absent)}")
    return section("limits", "Limits", [*lines, *(f"- {gap}" for gap in (*case.gaps, *more))])


def _listed(terms: Iterable[Term]) -> str:
    return ", ".join(f"`{term.word}`" for term in terms)
