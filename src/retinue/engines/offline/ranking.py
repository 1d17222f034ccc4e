"""Which files and lines a question is about.

A file counts for what its name says, what it defines, what it says of itself at its top and how often and how
closely together it mentions the terms; rare terms count more than common ones, and source more than the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from retinue.engines.offline.sources import (
    Kind,
    SourceFile,
    SourceLine,
    SymbolDefinition,
    classify_path,
    defined_name,
    strip_comment_marks,
    topic_of,
)
from retinue.engines.offline.terms import SearchQuestion, SearchTerm

_KINDS: dict[Kind, float] = {"source": 1.0, "config": 0.7, "docs": 0.6, "tests": 0.5, "aside": 0.4, "noise": 0.1}
_ASKED_FOR = 1.5
"""Of a kind the question names."""
_TOP_LINES = 5
"""Where a file says what it is about."""
_NAMED_OUTRIGHT, _IN_A_NAMED_FOLDER = 20.0, 10.0
"""For a path the question gives: more than any search brings."""
_CLOSE = 40
"""Characters between two terms that are still one phrase."""
_IMPORT = re.compile(r"\s*(?:from\s+\S+\s+)?import\b|\s*(?:use|require|#include)\b")
"""Names what stands elsewhere."""

Worth = Mapping[SearchTerm, float]
"""What each term is worth: its own weight, and more the rarer it is."""


class RankedFile(Struct, frozen=True):
    """A file with what speaks for it."""

    path: str
    kind: Kind
    score: float
    hits: tuple[SourceLine, ...] = ()
    """Lines with at least one term, in order."""


def weigh_terms(terms: Iterable[SearchTerm], counts: Mapping[SearchTerm, int]) -> Worth:
    """A term nobody counted is taken as rare."""
    return {term: term.weight / (1 + math.log10(1 + counts.get(term, 0))) for term in terms}


def find_hits(read: SourceFile, terms: Sequence[SearchTerm]) -> list[SourceLine]:
    """Every line of a file with at least one of the terms."""
    either = re.compile("|".join(term.pattern for term in terms) or "(?!)", re.IGNORECASE)
    return [hit for hit in read.hits() if either.search(hit.text)]


def rank_files(
    question: SearchQuestion, worth: Worth, found: Mapping[str, Sequence[SourceLine]]
) -> tuple[RankedFile, ...]:
    """The files, best first. A file found by its name alone has no hits."""
    ranked = [
        RankedFile(path, classify_path(path), _score(question, worth, path, hits), tuple(hits))
        for path, hits in found.items()
    ]
    return tuple(sorted((file for file in ranked if file.score > 0), key=lambda file: (-file.score, file.path)))


def select_evidence(
    worth: Worth, hits: Sequence[SourceLine], defined: Sequence[SymbolDefinition]
) -> list[SourceLine]:
    """The lines of a file that answer best, best first: definitions, then phrases."""
    shown = {symbol.line for symbol in defined}
    notes = {symbol.note for symbol in defined}
    others = [hit for hit in hits if hit.line not in shown and strip_comment_marks(hit.text.strip()) not in notes]
    scored: list[tuple[float, SourceLine]] = [(_symbol_score(worth, symbol), symbol) for symbol in defined]
    scored += [(_phrase_score(worth, hit.text), hit) for hit in others]
    return [hit for score, hit in sorted(scored, key=lambda each: (-each[0], each[1].line)) if score > 0]


def _score(question: SearchQuestion, worth: Worth, path: str, hits: Sequence[SourceLine]) -> float:
    total, covered = 0.0, 0.0
    defined = [name for hit in hits if (name := defined_name(hit.text))]
    for term, value in worth.items():
        lines = [hit for hit in hits if term.within(hit.text)]
        points = _name_points(term, path) + math.sqrt(min(len(lines), 9)) / 2
        points += 2.0 * any(map(term.names, defined))
        points += 1.0 * any(hit.line <= _TOP_LINES for hit in lines)
        total += value * points
        covered += value * bool(points)
    phrase = max((_phrase_score(worth, hit.text) for hit in hits), default=0.0)
    kind = classify_path(path)
    factor = _ASKED_FOR if kind in question.about else _KINDS[kind]
    outright = max((_path_points(path, name.strip("/")) for name in question.paths), default=0.0)
    return outright + factor * covered / (sum(worth.values()) or 1.0) * (total + phrase)


def _path_points(path: str, given: str) -> float:
    if f"/{path}".endswith(f"/{given}"):
        return _NAMED_OUTRIGHT
    return _IN_A_NAMED_FOLDER if f"/{given}/" in f"/{path}" else 0.0


def _name_points(term: SearchTerm, path: str) -> float:
    if term.names(topic_of(path)):
        return 4.0
    return 1.0 if term.names(path.rpartition("/")[0]) else 0.0


def _symbol_score(worth: Worth, symbol: SymbolDefinition) -> float:
    by_name = sum(value for term, value in worth.items() if term.names(symbol.name))
    by_note = sum(value for term, value in worth.items() if term.within(symbol.note))
    return 4.0 * by_name + 1.5 * by_note + (0.2 if symbol.kind == "class" and by_name else 0.0)


def _phrase_score(worth: Worth, text: str) -> float:
    """Of a line with several terms: the closer they stand, the more; with one, a little."""
    if _IMPORT.match(text):
        return 0.0
    places = {term: found.start() for term in worth if (found := term.within(text))}
    value = sum(worth[term] for term in places)
    if len(places) <= 1:
        return 0.2 * value
    spread = max(places.values()) - min(places.values())
    return value * (2.0 if spread <= _CLOSE else 1.0)
