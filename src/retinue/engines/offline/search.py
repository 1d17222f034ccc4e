"""Search by rules: the words of a task, the tool calls that look for them, and the files ranked by the results."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct

from retinue.model.runs import Message, ToolArguments

_MAX_TERMS = 5
"""Words and paths that are searched for: a task names its subject with fewer."""
MAX_TASK = 20_000
"""Characters of a task that are examined."""
_MAX_FILES_READ = 5
_MAX_LINE = 300
"""Characters of a line that are examined: more is data, and expressions must not take long."""
_MAX_HITS = 150
"""Lines per search."""
_MIN_TERMS = 2
"""With fewer a task alone is hardly about anything: "go on", "and the tests?"."""
_MIN_STEM = 4
"""Characters of a word that are always searched for; of a longer word the first two thirds, to find other endings."""

FileKind = Literal["source", "tests", "docs", "other"]
_KIND_FACTORS: Mapping[FileKind, float] = {"source": 1.0, "docs": 0.6, "tests": 0.5, "other": 0.3}
_PREFERRED_FACTOR = 1.5
_PATHS_OF_KIND: Mapping[FileKind, str] = {
    # The first that matches decides; anything else is source.
    "other": r"(?:^|/)(?:node_modules|vendor|dist|build|\.?venv|\.\w+_cache|bench(?:marks?)?|examples?|scripts)/"
    r"|\.(?:lock|min\.js|map|svg|csv|snap|ambr|log|toml|ya?ml|json|ini|cfg)$|(?:^|/)demo\.\w+$",
    "tests": r"(?:^|/)(?:tests?|specs?|__tests__|fixtures)/|(?:^|/)(?:test_|conftest)|[_.-](?:test|spec)\.\w+$",
    "docs": r"(?:^|/)docs?/|\.(?:md|markdown|rst|adoc|txt)$",
}
_TASKS_ABOUT_KIND: Mapping[FileKind, str] = {
    "tests": r"\b(?:tests?|tested|specs?|coverage)\b",
    "docs": r"\b(?:docs?|documents?|documentation|readme|guides?|research\w*)\b",
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
_PART = r"[\w.-]{1,100}"
"""A folder in a path. Bounded: without a bound a task of dashes alone would take seconds to examine."""
_TERM = re.compile(
    r"`([^`\n]{2,80})`|\"([^\"\n]{2,80})\"|(?<!\w)'([^'\n]{2,80})'(?!\w)"
    rf"|((?:{_PART}/){{2,}}(?:{_PART})?|(?:{_PART}/)*[\w-]{{2,100}}\.[a-z]{{1,5}}|{_PART}/(?!\w))|(\w{{2,80}})",
    re.IGNORECASE,
)
"""Quoted text, a path or a word. A slash between two words is a path only with a file ending: `guards/loop.py`."""
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
    "grep": "Lines were not searched (no `grep`)",
    "find": "File names were not searched (no `find`)",
    "read": "No file was read whole (no `read`)",
}

T = TypeVar("T")
ToolCall = tuple[str, ToolArguments]
ToolSteps = Generator[Sequence[ToolCall], Sequence[Message], T]
"""Yields the calls of one turn, receives their results, and returns an outcome."""


class ToolResult(Struct, frozen=True):
    lines: Sequence[str] | None = None
    """Lines without a notice beneath them; None if the call failed or its tool was not granted."""
    problem: str = ""
    """The failure of the call, or the reason why its result is incomplete."""


class SourceLine(Struct, frozen=True, order=True):
    path: str
    line: int
    text: str

    @property
    def defined_name(self) -> str:
        """The name that the line defines; empty if it defines none."""
        found = _DEFINITION.match(self.text[:_MAX_LINE])
        return next(filter(None, found.groups()), "") if found else ""


class RankedFile(Struct, frozen=True):
    path: str
    kind: FileKind
    score: float
    hits: tuple[SourceLine, ...] = ()
    """Lines with a term, in order; empty if the file was found by its name."""


class FileSearch:
    """Finds the files that a task is about."""

    def __init__(self, task: str, earlier: Iterable[str] = (), agent: str = "") -> None:
        """Take the terms of the task; one that names too little continues the `earlier` tasks."""
        self.task = task
        terms = _find_terms(task)
        for before in earlier:
            if len(terms) < _MIN_TERMS:
                terms += [term for term in _find_terms(before) if term not in terms]
        self.terms = terms[:_MAX_TERMS]
        """Words, quoted texts and paths."""
        self._stems = [_stem(term) for term in self.terms]
        self._paths = [stem for stem in self._stems if re.search("[./]", stem)]
        asked = f"{agent} {task[:MAX_TASK]}"
        self.preferred = [kind for kind, words in _TASKS_ABOUT_KIND.items() if re.search(words, asked, re.IGNORECASE)]
        """Files that the task asks for, or that the agent is about."""
        self.ranked: list[RankedFile] = []
        """Files about the terms, best first."""
        self.contents: dict[str, list[SourceLine]] = {}
        """Lines of the files that were read, by path."""
        self.absent: list[str] = []
        """Terms that were found nowhere."""
        self.gaps: list[str] = []
        """Parts of the search that could not be done."""

    @property
    def subject(self) -> str:
        return " ".join(self.terms) or "that"

    def files(self, *kinds: FileKind, limit: int = 4) -> list[RankedFile]:
        """Return the best files of some kinds, without those much worse than the first."""
        found = [file for file in self.ranked if file.kind in kinds]
        return [file for file in found[:limit] if file.score >= found[0].score / 3]

    def evidence(self, file: RankedFile) -> list[SourceLine]:
        """Return the lines of a file that answer best: definitions of a term, then lines with many terms."""
        hits = file.hits or [line for line in self.contents.get(file.path, ()) if line.defined_name]
        return sorted(hits, key=lambda hit: (-self._score_line(hit), hit.line))

    def run(self, tools: frozenset[str]) -> ToolSteps[None]:
        """Search names and lines, then read the best files; without a search, the files that the task names."""
        globs = [f"{{{stem},{stem}/**}}" if "/" in stem else f"*{stem}*" for stem in self._stems]
        options = {"literal": True, "ignoreCase": True, "limit": _MAX_HITS}
        names: list[ToolCall] = [("ls", {"path": "."}), *(("find", {"pattern": glob, "limit": 60}) for glob in globs)]
        greps: list[ToolCall] = [("grep", {"pattern": stem, **options}) for stem in self._stems]
        found = yield from _call(tools, [*names, *greps])
        named = [path for result in found[: len(names)] for path in result.lines or () if not path.endswith("/")]
        can_search = not tools.isdisjoint(("grep", "find"))
        named = named if can_search else [term for term in self.terms if re.search("[./]", term)]
        self._rank(named, found[len(names) :])
        paths = [file.path for file in self.ranked[:_MAX_FILES_READ]]
        texts = yield from _call(tools, [("read", {"path": path}) for path in paths])
        for path, text in zip(paths, texts, strict=True):
            if text.lines:
                self.contents[path] = [SourceLine(path, number, line) for number, line in enumerate(text.lines, 1)]
        self.ranked = [file for file in self.ranked if can_search or file.path in self.contents]
        self.gaps = list(dict.fromkeys(result.problem for result in (*found, *texts) if result.problem))

    def _rank(self, named: Iterable[str], greps: Sequence[ToolResult]) -> None:
        """Rank the files found by name or by a line; a term counts more the fewer lines have it."""
        hits: dict[str, set[SourceLine]] = {path: set() for path in named}
        for hit in (_HIT.fullmatch(line) for grep in greps for line in grep.lines or ()):
            if hit:
                hits.setdefault(hit[1], set()).add(SourceLine(hit[1], int(hit[2]), hit[3]))
        weights = [1 / (1 + math.log10(1 + len(grep.lines or ()))) for grep in greps]
        files = [self._score_file(path, weights, sorted(lines)) for path, lines in hits.items()]
        self.ranked = sorted((file for file in files if file.score > 0), key=lambda file: (-file.score, file.path))
        for term, stem, grep in zip(self.terms, self._stems, greps, strict=True):
            if grep.lines == [] and not any(stem in path.lower() for path in hits):
                self.absent.append(term)

    def _score_file(self, path: str, weights: Sequence[float], hits: Sequence[SourceLine]) -> RankedFile:
        """Score a file: by its path, its definitions, its lines, and lines with several terms."""
        kind: FileKind = next((kind for kind, paths in _PATHS_OF_KIND.items() if re.search(paths, path)), "source")
        lines = [(hit.text[:_MAX_LINE].lower(), hit.defined_name.lower()) for hit in hits]
        low, name = path.lower(), path.rpartition("/")[2].lower()
        total = covered = 0.0
        for stem, weight in zip(self._stems, weights, strict=True):
            matching = [defined for text, defined in lines if stem in text]
            points = 4.0 * (stem in name) or 1.0 * (stem in low)
            points += math.sqrt(min(len(matching), 9)) / 2 + 2.0 * any(stem in defined for defined in matching)
            total += weight * points
            covered += weight * (points > 0)
        total += max((self._count_terms(text) for text, _ in lines), default=0)
        factor = _PREFERRED_FACTOR if kind in self.preferred else _KIND_FACTORS[kind]
        named = max((_score_path(low, stem) for stem in self._paths), default=0.0)
        return RankedFile(path, kind, named + factor * total * covered / (sum(weights) or 1.0), tuple(hits))

    def _score_line(self, line: SourceLine) -> float:
        terms = 3 * self._count_terms(line.defined_name) + self._count_terms(line.text)
        return terms + 1.5 * line.text.lstrip().startswith("class ")

    def _count_terms(self, text: str) -> int:
        low = text[:_MAX_LINE].lower()
        return sum(stem in low for stem in self._stems)


def _score_path(path: str, named: str) -> float:
    if f"/{path}".endswith(f"/{named}"):
        return 40.0
    return 20.0 if f"/{named}/" in f"/{path}" else 0.0


def _find_terms(task: str) -> list[str]:
    terms = (next(filter(None, found.groups())) for found in _TERM.finditer(task[:MAX_TASK]))
    return list(dict.fromkeys(term for term in terms if term.lower() not in _STOP_WORDS))


def _stem(term: str) -> str:
    """Return the part of a term that its other forms share, in lower case."""
    low = term.lower().strip("/")
    return low[: max(_MIN_STEM, len(low) * 2 // 3)] if low.isalpha() else low


def _call(tools: frozenset[str], calls: Sequence[ToolCall]) -> ToolSteps[Sequence[ToolResult]]:
    """Make the calls of granted tools in one turn, and return the result of each call."""
    granted = [call for call in calls if call[0] in tools]
    messages = iter((yield granted) if granted else ())
    return [_parse_result(tool, next(messages) if tool in tools else None) for tool, _ in calls]


def _parse_result(tool: str, message: Message | None) -> ToolResult:
    if message is None or message.is_error:
        return ToolResult(problem=f"`{tool}` failed: {message.text}" if message else _WITHOUT_TOOL.get(tool, ""))
    found = _NOTICE.search(message.text)
    body, notice = (message.text[: found.start()], found[1]) if found else (message.text, "")
    problem = notice if re.search("Stopped|Could not read", notice) else ""
    return ToolResult([] if body in _EMPTY_RESULTS else body.split("\n"), problem)
