"""Which files and lines a question is about.

A file counts for what its name says, what it defines, what it says of itself at its top and how often and how
closely together it mentions the terms; rare terms count more than common ones, and source more than the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from retinue.engines.offline.asking import Hit, Source
from retinue.engines.offline.kinds import Kind, kind_of, topic_of
from retinue.engines.offline.symbols import Symbol, bare, name_defined
from retinue.engines.offline.terms import Question, Term, parts_of

_KINDS: Mapping[Kind, float] = {
    "source": 1.0,
    "config": 0.7,
    "docs": 0.6,
    "tests": 0.5,
    "aside": 0.4,
    "noise": 0.1,
}
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


class Weights(Struct, frozen=True):
    """What each term is worth: its own weight, and more the rarer it is."""

    of: Mapping[Term, float]

    @property
    def whole(self) -> float:
        return sum(self.of.values()) or 1.0


class Ranked(Struct, frozen=True):
    """A file with what speaks for it."""

    path: str
    kind: Kind
    score: float
    hits: tuple[Hit, ...] = ()
    """Lines with at least one term, in order."""


class Evidence(Struct, frozen=True):
    """A line worth showing."""

    path: str
    line: int
    text: str
    note: str = ""
    score: float = 0.0
    symbol: Symbol | None = None


def weights(terms: Iterable[Term], counts: Mapping[Term, int]) -> Weights:
    """A term nobody counted is taken as rare."""
    return Weights({term: term.weight / (1 + math.log10(1 + counts.get(term, 0))) for term in terms})


def mentions(term: Term, text: str) -> bool:
    return re.search(term.pattern, text, re.IGNORECASE) is not None


def hits_in(read: Source, terms: Sequence[Term]) -> tuple[Hit, ...]:
    """Every line of a file with at least one of the terms."""
    if not terms:
        return ()
    either = re.compile("|".join(term.pattern for term in terms), re.IGNORECASE)
    return tuple(Hit(read.path, number, line) for number, line in read.numbered() if either.search(line))


def rank(question: Question, worth: Weights, found: Mapping[str, Sequence[Hit]]) -> list[Ranked]:
    """The files, best first. A file found by its name alone has no hits."""
    ranked = [
        Ranked(path, kind_of(path), _score(question, worth, path, hits), tuple(hits)) for path, hits in found.items()
    ]
    return sorted((file for file in ranked if file.score > 0), key=lambda file: (-file.score, file.path))


def evidence(worth: Weights, path: str, lines: Sequence[Hit], defined: Sequence[Symbol]) -> list[Evidence]:
    """The lines of a file that answer best, best first: definitions, then phrases."""
    named = {symbol.line for symbol in defined}
    summaries = {symbol.summary for symbol in defined}
    shown = [
        Evidence(path, symbol.line, symbol.text, symbol.summary, _symbol_score(worth, symbol), symbol)
        for symbol in defined
    ]
    shown += [
        Evidence(path, hit.line, hit.text.strip(), "", _phrase_score(worth, hit.text))
        for hit in lines
        if hit.line not in named and bare(hit.text.strip()) not in summaries
    ]
    return sorted((each for each in shown if each.score > 0), key=lambda each: (-each.score, each.line))


def _score(question: Question, worth: Weights, path: str, hits: Sequence[Hit]) -> float:
    outright = max((_path_points(path, name.strip("/")) for name in question.paths), default=0.0)
    total, covered = 0.0, 0.0
    defined = [name for hit in hits if (name := name_defined(hit.text))]
    for term, value in worth.of.items():
        lines = [hit for hit in hits if mentions(term, hit.text)]
        points = _name_points(term, path) + math.sqrt(min(len(lines), 9)) / 2
        points += 2.0 * any(_is_named(name, term) for name in defined)
        points += 1.0 * any(hit.line <= _TOP_LINES for hit in lines)
        total += value * points
        covered += value * bool(points)
    phrase = max((_phrase_score(worth, hit.text) for hit in hits), default=0.0)
    kind = kind_of(path)
    factor = _ASKED_FOR if kind in question.about else _KINDS[kind]
    return outright + factor * (covered / worth.whole) * (total + phrase)


def _path_points(path: str, given: str) -> float:
    if f"/{path}".endswith(f"/{given}"):
        return _NAMED_OUTRIGHT
    return _IN_A_NAMED_FOLDER if f"/{given}/" in f"/{path}" else 0.0


def _name_points(term: Term, path: str) -> float:
    folders = path.rpartition("/")[0]
    if any(term.begins(part) for part in parts_of(topic_of(path))):
        return 4.0
    return 1.0 if any(term.begins(part) for part in parts_of(folders)) else 0.0


def _is_named(name: str, term: Term) -> bool:
    return term.begins(name) or any(term.begins(part) for part in parts_of(name))


def _symbol_score(worth: Weights, symbol: Symbol) -> float:
    by_name = sum(value for term, value in worth.of.items() if _is_named(symbol.name, term))
    by_summary = sum(value for term, value in worth.of.items() if mentions(term, symbol.summary))
    return 4.0 * by_name + 1.5 * by_summary + (0.2 if symbol.kind == "class" and by_name else 0.0)


def _phrase_score(worth: Weights, text: str) -> float:
    """Of a line with several terms: the closer they stand, the more; with one, a little."""
    places = {
        term: found.start()
        for term in worth.of
        if (found := re.search(term.pattern, text, re.IGNORECASE)) is not None
    }
    if _IMPORT.match(text):
        return 0.0
    if len(places) <= 1:
        return 0.2 * sum(worth.of[term] for term in places)
    spread = max(places.values()) - min(places.values())
    return sum(worth.of[term] for term in places) * (2.0 if spread <= _CLOSE else 1.0)
