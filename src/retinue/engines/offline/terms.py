"""What a task is about: the words worth searching for, with their endings off and their weight."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from retinue.engines.offline.kinds import Kind
from retinue.engines.offline.words import COMMAND_WORDS, STOP_WORDS

MOST_TERMS = 5
"""Words, and paths, that are looked for: a task's subject is named by fewer."""
_MOST_TEXT = 20_000
"""Characters of a task that are looked at."""
_ENOUGH_TERMS = 2
"""With fewer a question alone is hardly about anything: "go on", "and the tests?"."""
_SHORTEST_STEM = 4
"""A shorter one begins too many other words."""
_LONG_STEM = 6
"""Long enough to need no [yi] after it: `recovery` is also `recovered`, but `query` is not `querulous`."""
_LIMIT = r"\b"
_EXACT, _WORD, _PART = 3.0, 1.0, 0.5
"""Weight of a name someone wrote as code, of a plain word, and of a word within a name."""

_ABOUT: Mapping[Kind, re.Pattern[str]] = {
    "tests": re.compile(r"\b(?:tests?|tested|testing|spec|specs|coverage)\b", re.IGNORECASE),
    "docs": re.compile(r"\b(?:docs?|documents?|documentation|documented|readme|guides?)\b", re.IGNORECASE),
}
_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|(?<!\w)'([^'\n]{2,80})'(?!\w)")
_TOKEN = re.compile(r"\w[\w./-]*")
_PATH = re.compile(r"(?:[\w.-]+/){2,}[\w.-]*|(?:[\w.-]+/)*[\w-]{2,}\.[a-z]{1,5}|[\w.-]+/", re.IGNORECASE)
"""A lone slash between words is a path only if an ending says so: `guards/loop.py`, but `read/write`."""
_ENDINGS = tuple(
    # The first that leaves enough of a word counts.
    re.compile(rf"{ending}\Z")
    for ending in (
        "(?:ies|ied|y)",
        "(?<=ss|.x|.z|ch|sh)es",
        "(?:ations?|ating|ated|ates?|ators?)",
        "(?<=t)(?:ions?|ive|ors?)",
        "(?:ements?|ments?)",
        "(?:ings?|ers?|ed)",
        "(?<![sui])s",
        "e",
    )
)
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


class Term(Struct, frozen=True):
    """One thing to look for."""

    word: str
    """As it was written."""
    pattern: str
    """Regular expression, for use without regard to case."""
    weight: float = _WORD

    @property
    def glob(self) -> str:
        """For names that have it in them."""
        # But for the word's limits an expression has nothing in it that a glob does not understand as well.
        return f"*{self.pattern.removeprefix(_LIMIT).removesuffix(_LIMIT).lower()}*"

    def begins(self, part: str) -> bool:
        """Whether a part of a name begins with it."""
        return re.match(self.pattern, part, re.IGNORECASE) is not None


class Question(Struct, frozen=True):
    """What is asked."""

    text: str
    terms: tuple[Term, ...]
    """The most telling first; in the order they were written where they tell as much."""
    paths: tuple[str, ...] = ()
    about: frozenset[Kind] = frozenset()
    """`tests` or `docs`, where they are asked for."""

    @property
    def subject(self) -> str:
        return " ".join(term.word for term in self.terms) or ", ".join(self.paths) or self.text.strip()[:60]

    def preferring(self, kind: Kind) -> Question:
        return replace(self, about=self.about | {kind})


def question(text: str) -> Question:
    """Reads a task; of a very long one the beginning."""
    text = text[:_MOST_TEXT]
    paths = tuple(dict.fromkeys(_paths(text)))[:MOST_TERMS]
    terms: dict[str, Term] = {}
    for term in _terms(text, fallback=not paths):
        terms.setdefault(term.pattern.lower(), term)
    return Question(
        text,
        tuple(sorted(terms.values(), key=lambda term: -term.weight)[:MOST_TERMS]),
        paths,
        frozenset(name for name, pattern in _ABOUT.items() if pattern.search(text)),
    )


def continued(asked: Question, earlier: Iterable[str]) -> Question:
    """The same question; one that names too little to go by takes up what was said before it, at half the weight.

    Of text before it, given with the task or in earlier runs, paths count first.
    """
    for text in earlier:
        if len(asked.terms) >= _ENOUGH_TERMS or asked.paths:
            break
        before = question(text)
        known = {term.pattern for term in asked.terms}
        added = (replace(term, weight=term.weight / 2) for term in before.terms if term.pattern not in known)
        asked = replace(asked, terms=(*asked.terms, *added)[:MOST_TERMS], paths=before.paths)
    return asked


def parts_of(name: str) -> list[str]:
    """The words in a name: `HttpClient`, `http_client` and `http-client` have the same two."""
    return [part.lower() for part in _CAMEL.findall(name)]


def stem(word: str) -> str:
    """The expression that finds a word with other endings too. It always matches the word itself."""
    low = word.lower()
    if len(low) < _SHORTEST_STEM:
        return f"{_LIMIT}{re.escape(low)}{_LIMIT}"
    for ending in _ENDINGS:
        if found := ending.search(low):
            left = low[: found.start()]
            if found[0] in ("y", "ies", "ied") and _SHORTEST_STEM <= len(left) + 1 <= _LONG_STEM:
                return re.escape(left) + "[yi]"
            if left[-1:] == left[-2:-1]:  # cancelled, cancel
                left = left[:-1]
            if len(left) >= _SHORTEST_STEM:
                return re.escape(left)
    return re.escape(low)


def _terms(text: str, *, fallback: bool) -> Iterator[Term]:
    """Everything worth searching for; with the fallback, words that usually only give the order, if need be."""
    for found in _QUOTED.finditer(text):
        quoted = next(filter(None, found.groups()))
        fallback = False
        yield Term(quoted, re.escape(quoted), _EXACT)
    tokens = (token for token in _tokens(_QUOTED.sub(" ", text)) if not _PATH.fullmatch(token))
    words = [word for token in tokens for word in token.split("/")]
    plain = [word for word in words if word.lower() not in STOP_WORDS and len(word) > 1]
    telling = [word for word in plain if word.lower() not in COMMAND_WORDS or _is_name(word)]
    for word in telling or (plain if fallback else ()):
        yield Term(word, re.escape(word), _EXACT) if _is_name(word) else Term(word, stem(word))
    for word in filter(_is_name, telling):
        yield from (Term(part, stem(part), _PART) for part in parts_of(word) if len(part) >= _SHORTEST_STEM)


def _paths(text: str) -> Iterator[str]:
    return (token for token in _tokens(text) if _PATH.fullmatch(token))


def _tokens(text: str) -> Iterator[str]:
    return (token.rstrip(".-") for token in _TOKEN.findall(text))


def _is_name(word: str) -> bool:
    """Whether a word is written as only code is: `snake_case`, `CamelCase`, `ALL_CAPS`, `os.path`, `v2`."""
    return bool(re.search(r"[a-z][A-Z]|_|\w{2}\.\w{2}|[A-Za-z]\d", word))
