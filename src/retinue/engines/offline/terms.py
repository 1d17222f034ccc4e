"""What a task is about: the words worth searching for, with their endings off and their weight."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from retinue.engines.offline.sources import Kind

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


def _word_set(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


_STOP_WORDS = _word_set("""
    a about above after all also am an and any are as at be because been before being below between both but by
    can could did do does doing down during each either else ever every few for from further get gets had has
    have having he her here hers him his how i if in into is it its itself just let like may me might more most
    much must my need needs no nor not now of off on once one only onto or other our ours out over own please
    same she should since so some such than that the their them then there these they this those through to too
    under until up upon us very was we were well what when where whether which while who whom whose why will with
    within without would yes yet you your codebase project repo repository
""")
"""Never searched for."""
_COMMAND_WORDS = _word_set("""
    add analyse analysis analyze answer behave behavior behaviour bug bugs call called change check class
    classes code contain contains cover coverage covered create current define defined definition describe
    design doc docs document documentation documents evidence exact exist existing exists explain explore
    feature file files find fix folder function functions give handle handled handles handling happen happens
    implement implementation implemented implements improve inspect issue issues keep know known line lines list
    locate located look main make mention method methods module modules name names new official path paths plan
    problem problems propose quality related report research review risk risks say see show step steps strategy
    suggest summarise summarize summary support task tell test tested testing tests thing think trace understand
    use used uses using want way weak work works write
""")
"""They say what to do with the subject, and are searched for only where there is no other word."""

_ABOUT: Mapping[Kind, re.Pattern[str]] = {
    "tests": re.compile(r"\b(?:tests?|tested|testing|spec|specs|coverage)\b", re.IGNORECASE),
    "docs": re.compile(r"\b(?:docs?|documents?|documentation|documented|readme|guides?)\b", re.IGNORECASE),
}
_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|(?<!\w)'([^'\n]{2,80})'(?!\w)")
_TOKEN = re.compile(r"\w[\w./-]*")
_PATH = re.compile(r"(?:[\w.-]+/){2,}[\w.-]*|(?:[\w.-]+/)*[\w-]{2,}\.[a-z]{1,5}|[\w.-]+/", re.IGNORECASE)
"""A lone slash between words is a path only if an ending says so: `guards/loop.py`, but `read/write`."""
_NAME = re.compile(r"[a-z][A-Z]|_|\w{2}\.\w{2}|[A-Za-z]\d")
"""A word written as only code is: `snake_case`, `CamelCase`, `ALL_CAPS`, `os.path`, `v2`."""
_ENDINGS = (
    # The first that leaves enough of a word counts.
    "(?:ies|ied|y)",
    "(?<=ss|.x|.z|ch|sh)es",
    "(?:ations?|ating|ated|ates?|ators?)",
    "(?<=t)(?:ions?|ive|ors?)",
    "(?:ements?|ments?)",
    "(?:ings?|ers?|ed)",
    "(?<![sui])s",
    "e",
)
_PART_OF_A_NAME = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


class SearchTerm(Struct, frozen=True):
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

    def within(self, text: str) -> re.Match[str] | None:
        return re.search(self.pattern, text, re.IGNORECASE)

    def names(self, name: str) -> bool:
        """Whether a name, or a word in it, begins with it."""
        return any(re.match(self.pattern, part, re.IGNORECASE) for part in (name, *split_identifier(name)))


class SearchQuestion(Struct, frozen=True):
    """What is asked."""

    text: str
    terms: tuple[SearchTerm, ...]
    """The most telling first; in the order they were written where they tell as much."""
    paths: tuple[str, ...] = ()
    about: frozenset[Kind] = frozenset()
    """`tests` or `docs`, where they are asked for."""

    @property
    def subject(self) -> str:
        return " ".join(term.word for term in self.terms) or ", ".join(self.paths) or self.text.strip()[:60]


def parse_question(text: str) -> SearchQuestion:
    """Reads a task; of a very long one the beginning."""
    text = text[:_MOST_TEXT]
    paths = tuple(dict.fromkeys(filter(_PATH.fullmatch, _tokens(text))))[:MOST_TERMS]
    terms: dict[str, SearchTerm] = {}
    for term in _extract_terms(text, fallback=not paths):
        terms.setdefault(term.pattern.lower(), term)
    return SearchQuestion(
        text,
        tuple(sorted(terms.values(), key=lambda term: -term.weight)[:MOST_TERMS]),
        paths,
        frozenset(kind for kind, pattern in _ABOUT.items() if pattern.search(text)),
    )


def extend_question(asked: SearchQuestion, earlier: Iterable[str]) -> SearchQuestion:
    """The same question; one that names too little to go by takes up what was said before it, at half the weight.

    Of text before it, given with the task or in earlier runs, paths count first.
    """
    for text in earlier:
        if len(asked.terms) >= _ENOUGH_TERMS or asked.paths:
            break
        before = parse_question(text)
        known = {term.pattern for term in asked.terms}
        added = (replace(term, weight=term.weight / 2) for term in before.terms if term.pattern not in known)
        asked = replace(asked, terms=(*asked.terms, *added)[:MOST_TERMS], paths=before.paths)
    return asked


def split_identifier(name: str) -> list[str]:
    """The words in a name: `HttpClient`, `http_client` and `http-client` have the same two."""
    return [part.lower() for part in _PART_OF_A_NAME.findall(name)]


def stem_pattern(word: str) -> str:
    """The expression that finds a word with other endings too. It always matches the word itself."""
    low = word.lower()
    if len(low) < _SHORTEST_STEM:
        return f"{_LIMIT}{re.escape(low)}{_LIMIT}"
    for ending in _ENDINGS:
        if found := re.search(rf"{ending}\Z", low):
            left = low[: found.start()]
            if found[0] in ("y", "ies", "ied") and _SHORTEST_STEM <= len(left) + 1 <= _LONG_STEM:
                return re.escape(left) + "[yi]"
            if left[-1:] == left[-2:-1]:  # cancelled, cancel
                left = left[:-1]
            if len(left) >= _SHORTEST_STEM:
                return re.escape(left)
    return re.escape(low)


def _extract_terms(text: str, *, fallback: bool) -> Iterator[SearchTerm]:
    """Everything worth searching for; with the fallback, words that usually only give the order, if need be."""
    quoted = [next(filter(None, found.groups())) for found in _QUOTED.finditer(text)]
    yield from (SearchTerm(each, re.escape(each), _EXACT) for each in quoted)
    tokens = [token for token in _tokens(_QUOTED.sub(" ", text)) if not _PATH.fullmatch(token)]
    words = [word for token in tokens for word in token.split("/")]
    plain = [word for word in words if word.lower() not in _STOP_WORDS and len(word) > 1]
    telling = [word for word in plain if word.lower() not in _COMMAND_WORDS or _NAME.search(word)]
    for word in telling or (plain if fallback and not quoted else ()):
        yield (
            SearchTerm(word, re.escape(word), _EXACT) if _NAME.search(word) else SearchTerm(word, stem_pattern(word))
        )
    for word in filter(_NAME.search, telling):
        yield from (
            SearchTerm(part, stem_pattern(part), _PART)
            for part in split_identifier(word)
            if len(part) >= _SHORTEST_STEM
        )


def _tokens(text: str) -> Iterator[str]:
    return (token.rstrip(".-") for token in _TOKEN.findall(text))
