"""Search by rules: the words of a task, the tool calls that look for them, and the files ranked by the results."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from retinue.model.runs import ToolArguments

MAX_TERMS = 5
"""Words, and paths, that are searched for: a task names its subject with fewer."""
MAX_FILES_READ = 5
_MAX_TASK = 20_000
"""Characters of a task that are examined."""
_MAX_LINE = 300
"""Characters of a line that are examined: more is data, and expressions must not take long."""
_MAX_HITS = 150
"""Lines per search."""
_MIN_TERMS = 2
"""With fewer a task alone is hardly about anything: "go on", "and the tests?"."""
_MIN_STEM = 4
"""Characters of a word that are always searched for; of a longer word the first two thirds, to find other endings."""

FileKind = Literal["source", "tests", "docs", "other"]
_KINDS: Mapping[FileKind, re.Pattern[str]] = {
    # The first that matches decides; anything else is source.
    "other": re.compile(
        r"(?:^|/)(?:node_modules|vendor|dist|build|\.?venv|\.\w+_cache|bench(?:marks?)?|examples?|scripts)/"
        r"|\.(?:lock|min\.js|map|svg|csv|snap|ambr|log|toml|ya?ml|json|ini|cfg)$|(?:^|/)demo\.\w+$"
    ),
    "tests": re.compile(
        r"(?:^|/)(?:tests?|specs?|__tests__|fixtures)/|(?:^|/)(?:test_|conftest)|[_.-](?:test|spec)\.\w+$"
    ),
    "docs": re.compile(r"(?:^|/)docs?/|\.(?:md|markdown|rst|adoc|txt)$", re.IGNORECASE),
}
_KIND_FACTORS: Mapping[FileKind, float] = {"source": 1.0, "docs": 0.6, "tests": 0.5, "other": 0.3}
_PREFERRED_FACTOR = 1.5
_ASKED_KINDS: Mapping[FileKind, re.Pattern[str]] = {
    "tests": re.compile(r"\b(?:tests?|tested|specs?|coverage)\b", re.IGNORECASE),
    "docs": re.compile(r"\b(?:docs?|documents?|documentation|readme|guides?)\b", re.IGNORECASE),
}
_STOP_WORDS = frozenset(re.findall(r"\w+", """
    a about add after all also an and any are as at be been before between both but by can change check code could
    cover covered coverage describe did do docs document documentation documents does each else every exist exists
    explain file files find for from get go has have he how i if implement implementation implemented in into is it
    its just let like list look may me module more most must my name need new no not now of on one only or other our
    out over own path plan please project readme report repository research review risk risks same say see she should
    show since so some such summarise summarize task tell test tested testing tests than that the their them then
    there these they this those through to too under until up use used us was way we well were what when where
    whether which while who whom whose why will with within without work works would write you your
"""))  # fmt: skip
_QUOTED = re.compile(r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|(?<!\w)'([^'\n]{2,80})'(?!\w)")
_PART = r"[\w.-]{1,100}"
"""A folder in a path. Bounded: without a bound a task of dashes alone would take seconds to examine."""
_PATH = re.compile(
    rf"(?:{_PART}/){{2,}}(?:{_PART})?|(?:{_PART}/)*[\w-]{{2,100}}\.[a-z]{{1,5}}|{_PART}/(?!\w)", re.IGNORECASE
)
"""A slash between two words is a path only with a file ending: `guards/loop.py`, but `read/write`."""
_DEFINITION = re.compile(
    r"[ \t]*(?:(?:export|default|public|private|protected|static|final|abstract|async|pub(?:\([\w:]+\))?)\s+)*"
    r"(?:class|def|function|func|fn|interface|struct|enum|trait|type|const)\s+(?:\([^)]{0,80}\)\s*)?([A-Za-z_]\w*)"
    r"|([A-Z][A-Z0-9_]{2,})\s*(?::[^=]{1,80})?=(?!=)|#{1,6} +(\S.{0,80})"
)
"""Definitions of common languages, constants and headings."""
_HIT = re.compile(r"(.+?):(\d+): (.*)")
_NOTICE = re.compile(r"(?:\A|\n\n)\[([^\n]*)\]\Z")
_EMPTY_RESULTS = ("", "No matches found", "No files found matching pattern", "(empty directory)")
_WITHOUT_TOOL = {
    "grep": "Lines were not searched",
    "find": "File names were not searched",
    "read": "No file was read whole",
}

T = TypeVar("T")


class ToolRequest(Struct, frozen=True):
    tool: str
    args: ToolArguments


class ToolResponse(Struct, frozen=True):
    request: ToolRequest
    text: str
    is_error: bool = False

    @property
    def lines(self) -> list[str]:
        """Lines of a successful result, without its notice."""
        body = _NOTICE.sub("", self.text)
        return [] if self.is_error or body in _EMPTY_RESULTS else body.split("\n")

    @property
    def hits(self) -> list[SourceLine]:
        """Lines that a `grep` found."""
        found = (_HIT.fullmatch(line) for line in self.lines)
        return [SourceLine(match[1], int(match[2]), match[3]) for match in found if match]

    @property
    def problem(self) -> str:
        """The failure of the call, or the reason why its result is incomplete; empty if there is none."""
        notice = _NOTICE.search(self.text)
        if self.is_error:
            return f"`{self.request.tool}` failed: {self.text}"
        return notice[1] if notice and re.search("Stopped|Could not read", notice[1]) else ""


ToolSteps = Generator[Sequence[ToolRequest], Sequence[ToolResponse], T]
"""Yields the calls of one turn, receives their results, and returns an outcome."""


class SourceLine(Struct, frozen=True):
    path: str
    line: int
    text: str

    @property
    def defined_name(self) -> str:
        """The name that the line defines; empty if it defines none."""
        found = _DEFINITION.match(self.text[:_MAX_LINE])
        return next(filter(None, found.groups()), "") if found else ""


class SearchQuestion(Struct, frozen=True):
    """The subject of a task."""

    text: str
    terms: tuple[str, ...]
    paths: tuple[str, ...]
    prefers: frozenset[FileKind]

    @property
    def subject(self) -> str:
        return " ".join((*self.terms, *self.paths)) or "that"


class RankedFile(Struct, frozen=True):
    path: str
    score: float
    hits: tuple[SourceLine, ...] = ()
    """Lines with a term, in order; empty if the file was found by its name."""

    @property
    def kind(self) -> FileKind:
        return next((kind for kind, pattern in _KINDS.items() if pattern.search(self.path)), "source")


class SearchResults(Struct, frozen=True, kw_only=True):
    question: SearchQuestion
    ranked: tuple[RankedFile, ...] = ()
    """Files about the question, best first."""
    contents: Mapping[str, tuple[SourceLine, ...]] = {}
    """Lines of the files that were read, by path."""
    absent: tuple[str, ...] = ()
    """Terms that were found nowhere."""
    gaps: tuple[str, ...] = ()
    """Parts of the search that could not be done."""

    @property
    def is_doubtful(self) -> bool:
        """True if most terms were found nowhere, so that the files found are hardly about the question."""
        return len(self.absent) * 2 > len(self.question.terms)

    def files(self, *kinds: FileKind, limit: int = 4) -> list[RankedFile]:
        """Return the best files of some kinds, without those much worse than the first."""
        found = [file for file in self.ranked if file.kind in kinds]
        return [file for file in found[:limit] if file.score >= found[0].score / 3]

    def evidence(self, file: RankedFile) -> list[SourceLine]:
        """Return the lines of a file that answer best: definitions of a term, then lines with many terms."""
        hits = file.hits or [line for line in self.contents.get(file.path, ()) if line.defined_name]
        return sorted(hits, key=lambda hit: (-self._line_score(hit), hit.line))

    def _line_score(self, hit: SourceLine) -> float:
        by_name = count_terms(self.question.terms, hit.defined_name)
        return 3 * by_name + count_terms(self.question.terms, hit.text) + 1.5 * hit.text.lstrip().startswith("class ")


def parse_question(task: str, earlier: Iterable[str] = (), *, prefers: FileKind | None = None) -> SearchQuestion:
    """Return what a task is about; one that names too little continues earlier tasks."""
    text = task[:_MAX_TASK]
    terms, paths = _find_terms(text), list(dict.fromkeys(_PATH.findall(text)))
    for before in earlier:
        if len(terms) + len(paths) < _MIN_TERMS:
            terms += [term for term in _find_terms(before[:_MAX_TASK]) if term not in terms]
    asked = {kind for kind, pattern in _ASKED_KINDS.items() if pattern.search(text)}
    return SearchQuestion(
        task, tuple(terms[:MAX_TERMS]), tuple(paths[:MAX_TERMS]), frozenset({*asked, *([prefers] if prefers else [])})
    )


def _find_terms(text: str) -> list[str]:
    quoted = [next(filter(None, found.groups())) for found in _QUOTED.finditer(text)]
    words = re.findall(r"\w{2,80}", _PATH.sub(" ", _QUOTED.sub(" ", text)))
    telling = [word for word in words if word.lower() not in _STOP_WORDS]
    return list(dict.fromkeys(quoted + telling))


def stem(term: str) -> str:
    """Return the start of a term that its other forms share, in lower case."""
    return term.lower()[: max(_MIN_STEM, len(term) * 2 // 3)] if term.isalpha() else term.lower()


def count_terms(terms: Iterable[str], text: str) -> int:
    low = text[:_MAX_LINE].lower()
    return sum(stem(term) in low for term in terms)


def search(question: SearchQuestion, tools: frozenset[str]) -> ToolSteps[SearchResults]:
    """Search names and lines, then read the best files; without a search, the files that the task names."""
    found = yield from _call(tools, _search_requests(question))
    results = _rank(question, found)
    paths = [file.path for file in results.ranked[:MAX_FILES_READ]]
    if not tools & {"grep", "find"}:
        paths = [*question.paths] or ["README.md"]
    responses = yield from _call(tools, [ToolRequest("read", {"path": path}) for path in paths])
    contents = {
        path: tuple(SourceLine(path, number, text) for number, text in enumerate(response.lines, 1))
        for path, response in zip(paths, responses, strict=False)
        if response.lines
    }
    if not tools & {"grep", "find"}:
        results = _rank(question, [ToolResponse(ToolRequest("find", {}), path) for path in contents])
    missing = (f"{gap} (no `{tool}`)" for tool, gap in _WITHOUT_TOOL.items() if tool not in tools)
    problems = dict.fromkeys(each.problem for each in (*found, *responses) if each.problem)
    return replace(results, contents=contents, gaps=(*missing, *problems))


def _call(tools: frozenset[str], requests: Sequence[ToolRequest]) -> ToolSteps[Sequence[ToolResponse]]:
    granted = [request for request in requests if request.tool in tools]
    return (yield granted) if granted else ()


def _search_requests(question: SearchQuestion) -> list[ToolRequest]:
    globs = [glob for path in question.paths for glob in (path.rstrip("/"), f"{path.rstrip('/')}/**")]
    globs += [f"*{stem(term)}*" for term in question.terms if "/" not in term]
    greps = [
        {"pattern": stem(term), "literal": True, "ignoreCase": True, "limit": _MAX_HITS} for term in question.terms
    ]
    return [
        ToolRequest("ls", {"path": "."}),
        *(ToolRequest("find", {"pattern": glob, "limit": 60}) for glob in globs),
        *(ToolRequest("grep", args) for args in greps),
    ]


def _rank(question: SearchQuestion, responses: Sequence[ToolResponse]) -> SearchResults:
    """Rank the files of the first turn; a term counts more the fewer lines have it."""
    greps = [response for response in responses if response.request.tool == "grep"]
    weights = dict.fromkeys(question.terms, 1.0)
    absent = []
    for term, response in zip(question.terms, greps, strict=False):
        weights[term] = 1 / (1 + math.log10(1 + len(response.lines)))
        absent += [term] if not response.lines and not response.is_error else []
    hits: dict[str, dict[int, SourceLine]] = {
        path: {}
        for response in responses
        if response.request.tool in ("find", "ls")
        for path in response.lines
        if not path.endswith("/")
    }
    for hit in (hit for response in greps for hit in response.hits):
        hits.setdefault(hit.path, {})[hit.line] = hit
    files = [_score(question, weights, path, [lines[line] for line in sorted(lines)]) for path, lines in hits.items()]
    ranked = sorted((file for file in files if file.score > 0), key=lambda file: (-file.score, file.path))
    return SearchResults(question=question, ranked=tuple(ranked), absent=tuple(absent))


def _score(question: SearchQuestion, weights: Mapping[str, float], path: str, hits: list[SourceLine]) -> RankedFile:
    """Score a file: by its name, its definitions, its lines, and lines with several terms."""
    file = RankedFile(path, 0.0, tuple(hits))
    folder, _, name = path.rpartition("/")
    total = covered = 0.0
    for term, weight in weights.items():
        lines = [hit for hit in hits if count_terms([term], hit.text)]
        points = 4.0 * count_terms([term], name) or 1.0 * count_terms([term], folder)
        is_defined = any(count_terms([term], hit.defined_name) for hit in lines)
        points += math.sqrt(min(len(lines), 9)) / 2 + 2.0 * is_defined
        total += weight * points
        covered += weight * (points > 0)
    total += max((count_terms(weights, hit.text) for hit in hits), default=0)
    factor = _PREFERRED_FACTOR if file.kind in question.prefers else _KIND_FACTORS[file.kind]
    named = max((_path_score(path, each.rstrip("/")) for each in question.paths), default=0.0)
    return replace(file, score=named + factor * total * covered / (sum(weights.values()) or 1.0))


def _path_score(path: str, named: str) -> float:
    if f"/{path}".endswith(f"/{named}"):
        return 40.0
    return 20.0 if f"/{named}/" in f"/{path}" else 0.0
