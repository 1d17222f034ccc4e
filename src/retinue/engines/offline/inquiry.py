"""How a question is looked into: names, then lines, then the best files themselves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.engines.offline.asking import Ask, Got, Hit, Source, answered, find, grep, hits, ls, read, source
from retinue.engines.offline.kinds import Kind, has_headings
from retinue.engines.offline.ranking import Evidence, Ranked, Weights, evidence, hits_in, rank, weights
from retinue.engines.offline.symbols import Symbol, headings, symbols
from retinue.engines.offline.terms import Question, Term

MOST_READ = 6
"""Files that are read whole."""
_HITS = 150
"""Lines looked at per search."""
_CUT_FACTOR = 4
"""A search that was cut found at least this many times more than it shows, for all we know."""
_LONG_FILE = 1500
"""A hit beyond this line is read from just before it."""
_WORTH_READING: tuple[Kind, ...] = ("source", "tests", "docs")
_WITHOUT = {
    "grep": "Lines were not searched",
    "find": "File names were not searched",
    "read": "No file was read whole",
}
_STOPPED = re.compile(r"Stopped|Could not read|only the first")
_DEFINING = "class|def|function|func|fn|struct|interface|type|enum|trait|const|impl"

Turn = Generator[Sequence[Ask], Sequence[Got], Sequence[Got]]
Inquiry = Generator[Sequence[Ask], Sequence[Got], "Case"]


class Case(Struct, frozen=True, kw_only=True):
    """Everything found out about a question."""

    question: Question
    tools: frozenset[str]
    worth: Weights = Weights({})
    ranked: tuple[Ranked, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Files that were read, by path."""
    defined: Mapping[str, Sequence[Symbol]] = field(default_factory=dict)
    """What those files define."""
    top: tuple[str, ...] = ()
    """What the working directory holds."""
    absent: tuple[Term, ...] = ()
    """Terms that stand nowhere, as far as could be searched."""
    gaps: tuple[str, ...] = ()
    """What could not be looked at, in words."""
    more: tuple[Got, ...] = ()
    """Answers to what the role asked."""

    @property
    def is_doubtful(self) -> bool:
        """Whether most of what was asked for stands nowhere, so that what was found is hardly about it."""
        return sum(term.weight for term in self.absent) * 2 > sum(term.weight for term in self.question.terms)

    @property
    def is_a_folder(self) -> bool:
        """Whether the question names a folder and nothing in particular that is in it."""
        return not self.question.terms and len(self.ranked) > 1

    def of_kind(self, *kinds: Kind) -> list[Ranked]:
        return [file for file in self.ranked if file.kind in kinds]

    def symbols_of(self, path: str) -> Sequence[Symbol]:
        """What a file defines, if it was read; else what its hits define."""
        if path in self.defined:
            return self.defined[path]
        found = next((file.hits for file in self.ranked if file.path == path), ())
        return [symbol for hit in found for symbol in _defined(path, [hit.text], hit.line)]

    def evidence_in(self, file: Ranked) -> list[Evidence]:
        """The lines of a file that answer best; where only its name does, what it defines."""
        defined = self.symbols_of(file.path)
        found = evidence(self.worth, file.path, file.hits, defined)
        return found or [Evidence(file.path, each.line, each.text, each.summary, 0.0, each) for each in defined]


def investigate(question: Question, tools: frozenset[str], follow: Callable[[Case], Sequence[Ask]]) -> Inquiry:
    """Asks the tools it has, turn by turn; at last whatever else the role wants to know of the best files."""
    named = yield from _turn(tools, _about_names(question))
    inside = yield from _turn(tools, [*_about_lines(question), *_about_folders(question, named)])
    case = _survey(question, tools, [*named, *inside])
    contents = yield from _turn(tools, _about_contents(case))
    case = _reconsider(case, contents)
    more = yield from _turn(tools, follow(case))
    return replace(case, more=tuple(more), gaps=(*case.gaps, *_troubles(more)))


def _turn(tools: frozenset[str], asks: Sequence[Ask]) -> Turn:
    granted = [ask for ask in asks if ask.tool in tools]
    return (yield granted) if granted else ()


def _about_names(question: Question) -> list[Ask]:
    globs = [*question.paths, *(term.glob for term in question.terms)]
    return [ls(), *(find(glob) for glob in globs)]


def _about_lines(question: Question) -> list[Ask]:
    patterns = [term.pattern for term in question.terms]
    close = [f"{one}.{{0,40}}{two}|{two}.{{0,40}}{one}" for one, two in pairwise(patterns)]
    defined = [f"(?:{_DEFINING}) +\\w*(?:{'|'.join(patterns)})"] if patterns else []
    return [grep(pattern, limit=_HITS) for pattern in (*patterns, *close, *defined)]


def _about_folders(question: Question, named: Sequence[Got]) -> list[Ask]:
    """What lies in the folders the question names."""
    wanted = [each for each in answered(named, "find") if each.ask.args["pattern"] in question.paths]
    return [find("*", path=line) for each in wanted for line in each.lines[:3] if line.endswith("/")]


def _about_contents(case: Case) -> list[Ask]:
    chosen = list(case.ranked[: MOST_READ - 2])
    for kind in _WORTH_READING:
        chosen += [file for file in case.of_kind(kind)[:2] if file not in chosen]
    best = [read(file.path, offset=_offset(file)) for file in chosen[:MOST_READ]]
    # Without a search the names in the question are all there is to go by, and then the file everyone writes.
    unseen = [read(path) for path in case.question.paths if not case.tools & {"grep", "find"}]
    return best or unseen or [read(name) for name in ("README.md",) if name in case.top or not case.top]


def _offset(file: Ranked) -> int:
    lines = [hit.line for hit in file.hits]
    return max(min(lines) - 50, 1) if lines and min(lines) > _LONG_FILE else 1


def _survey(question: Question, tools: frozenset[str], got: Sequence[Got]) -> Case:
    """What the searches found, ranked by what they showed of it."""
    by_term = {each.ask.args["pattern"]: each for each in answered(got, "grep")}
    counts: dict[Term, int] = {}
    for term in question.terms:
        if (searched := by_term.get(term.pattern)) and not searched.is_error:
            counts[term] = len(searched.lines) * (_CUT_FACTOR if searched.is_cut else 1)
    found: defaultdict[str, dict[int, Hit]] = defaultdict(dict)
    for hit in (hit for each in answered(got, "grep") for hit in hits(each)):
        found[hit.path][hit.line] = hit
    top = tuple(line for each in answered(got, "ls") for line in each.lines)
    for name in (*top, *(line for each in answered(got, "find") for line in each.lines)):
        if not name.endswith("/"):
            found[name].update({})
    worth = weights(question.terms, counts)
    return Case(
        question=question,
        tools=tools,
        worth=worth,
        ranked=tuple(rank(question, worth, {path: _in_order(lines) for path, lines in found.items()})),
        top=top,
        absent=tuple(term for term, count in counts.items() if count == 0),
        gaps=(*_missing(tools), *_troubles(got)),
    )


def _reconsider(case: Case, contents: Sequence[Got]) -> Case:
    """The same case, ranked anew by all that the files which were read contain."""
    sources = {found.path: found for each in contents if (found := source(each))}
    known: dict[str, Sequence[Hit]] = {file.path: file.hits for file in case.ranked}
    known |= {path: hits_in(found, case.question.terms) for path, found in sources.items()}
    ranked = tuple(rank(case.question, case.worth, known))
    return replace(
        case,
        ranked=ranked,
        sources=sources,
        defined={path: _defined(path, found.lines, found.first) for path, found in sources.items()},
        gaps=(*case.gaps, *_troubles(contents)),
    )


def _defined(path: str, lines: Sequence[str], first: int) -> Sequence[Symbol]:
    return headings(lines, first=first) if has_headings(path) else symbols(lines, first=first)


def _in_order(lines: dict[int, Hit]) -> list[Hit]:
    return [lines[number] for number in sorted(lines)]


def _missing(tools: frozenset[str]) -> list[str]:
    return [f"{what} (no `{tool}`)" for tool, what in _WITHOUT.items() if tool not in tools]


def _troubles(got: Sequence[Got]) -> list[str]:
    """What went wrong in words; an answer that was merely cut at its limit is no trouble."""
    failed = [f"`{each.ask.tool}` failed: {each.text}" for each in got if each.is_error]
    stopped = [each.notice for each in got if _STOPPED.search(each.notice)]
    return list(dict.fromkeys([*failed, *stopped]))
