"""How a question is looked into with the run's own tools: names, then lines, then the best files themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.engines.offline.ranking import RankedFile, Worth, find_hits, rank_files, select_evidence, weigh_terms
from retinue.engines.offline.sources import Kind, SourceFile, SourceLine, SymbolDefinition, find_symbols
from retinue.engines.offline.terms import SearchQuestion, SearchTerm
from retinue.model.runs import ToolArguments

MAX_FILES_READ = 6
"""Files that are read whole."""
_HITS = 150
"""Lines looked at per search."""
_LONG_FILE = 1500
"""A hit beyond this line is read from just before it."""
_WITHOUT = {
    "grep": "Lines were not searched",
    "find": "File names were not searched",
    "read": "No file was read whole",
}
_DEFINING = "class|def|function|func|fn|struct|interface|type|enum|trait|const|impl"
_HIT = re.compile(r"(.+?):(\d+): (.*)")
_NOTICE = re.compile(r"(?:\A|\n\n)\[([^\n]*)\]\Z")
_NOTHING = ("", "No matches found", "No files found matching pattern", "(empty directory)")
_STOPPED = re.compile(r"Stopped|Could not read|only the first")


# -- one tool call and its answer ------------------------------------------------------------------


class ToolRequest(Struct, frozen=True):
    """A wish to call a tool."""

    tool: str
    args: ToolArguments


class ToolResponse(Struct, frozen=True):
    """What the tool answered."""

    request: ToolRequest
    text: str
    is_error: bool = False

    @property
    def notice(self) -> str:
        """What the tool says of its own answer, such as that it was cut; empty if nothing."""
        found = _NOTICE.search(self.text)
        return found[1] if found else ""

    @property
    def lines(self) -> list[str]:
        """The answer without the notice; nothing if there was none, or an error."""
        body = _NOTICE.sub("", self.text)
        return [] if self.is_error or body in _NOTHING else body.split("\n")

    @property
    def hits(self) -> list[SourceLine]:
        """The lines a `grep` found."""
        return [
            SourceLine(found[1], int(found[2]), found[3]) for line in self.lines if (found := _HIT.fullmatch(line))
        ]


def grep(
    pattern: str, *, path: str = ".", glob: str | None = None, limit: int = 100, ignore_case: bool = True
) -> ToolRequest:
    wanted = {"pattern": pattern, "path": path, "ignoreCase": ignore_case, "limit": limit}
    return ToolRequest("grep", {**wanted, "glob": glob} if glob else wanted)


def find(pattern: str, *, path: str = ".", limit: int = 60) -> ToolRequest:
    return ToolRequest("find", {"pattern": pattern, "path": path, "limit": limit})


def read(path: str, *, offset: int = 1) -> ToolRequest:
    return ToolRequest("read", {"path": path, "offset": offset} if offset > 1 else {"path": path})


def ls(path: str = ".") -> ToolRequest:
    return ToolRequest("ls", {"path": path})


def collect_lines(tool: str, got: Iterable[ToolResponse]) -> list[str]:
    """All that one of the tools said."""
    return [line for each in got if each.request.tool == tool for line in each.lines]


# -- what is found out -----------------------------------------------------------------------------


class SearchResults(Struct, frozen=True, kw_only=True):
    """Everything found out about a question."""

    question: SearchQuestion
    tools: frozenset[str]
    worth: Worth = field(default_factory=dict)
    ranked: tuple[RankedFile, ...] = ()
    sources: Mapping[str, SourceFile] = field(default_factory=dict)
    """Files that were read, by path."""
    top: tuple[str, ...] = ()
    """What the working directory holds."""
    absent: tuple[SearchTerm, ...] = ()
    """Terms that stand nowhere, as far as could be searched."""
    gaps: tuple[str, ...] = ()
    """What could not be looked at, in words."""
    more: tuple[ToolResponse, ...] = ()
    """Answers to what the role asked."""

    @property
    def is_doubtful(self) -> bool:
        """Whether most of what was asked for stands nowhere, so that what was found is hardly about it."""
        return sum(term.weight for term in self.absent) * 2 > sum(term.weight for term in self.question.terms)

    @property
    def is_a_folder(self) -> bool:
        """Whether the question names a folder and nothing in particular that is in it."""
        return not self.question.terms and len(self.ranked) > 1

    def of_kind(self, *kinds: Kind) -> list[RankedFile]:
        return [file for file in self.ranked if file.kind in kinds]

    def symbols_of(self, file: RankedFile) -> list[SymbolDefinition]:
        """What a file defines, if it was read; else what its hits define."""
        if found := self.sources.get(file.path):
            return find_symbols(found)
        return [symbol for hit in file.hits for symbol in find_symbols(SourceFile(hit.path, [hit.text], hit.line))]

    def evidence_in(self, file: RankedFile) -> Sequence[SourceLine]:
        """The lines of a file that answer best; where only its name does, what it defines."""
        defined = self.symbols_of(file)
        return select_evidence(self.worth, file.hits, defined) or defined


# -- the turns -------------------------------------------------------------------------------------

Turn = Generator[Sequence[ToolRequest], Sequence[ToolResponse], Sequence[ToolResponse]]
Inquiry = Generator[Sequence[ToolRequest], Sequence[ToolResponse], SearchResults]


def investigate(
    question: SearchQuestion, tools: frozenset[str], follow: Callable[[SearchResults], Sequence[ToolRequest]]
) -> Inquiry:
    """Asks the tools it has, turn by turn; at last whatever else the role wants to know of the best files."""
    named = yield from _request_turn(tools, _name_requests(question))
    inside = yield from _request_turn(tools, [*_line_requests(question), *_folder_requests(question, named)])
    case = _rank_results(question, tools, [*named, *inside])
    contents = yield from _request_turn(tools, _content_requests(case))
    case = _rerank_with_contents(case, contents)
    more = yield from _request_turn(tools, follow(case))
    return replace(case, more=tuple(more), gaps=(*case.gaps, *_describe_errors(more)))


def _request_turn(tools: frozenset[str], asks: Sequence[ToolRequest]) -> Turn:
    granted = [ask for ask in asks if ask.tool in tools]
    return (yield granted) if granted else ()


def _name_requests(question: SearchQuestion) -> list[ToolRequest]:
    globs = [*question.paths, *(term.glob for term in question.terms)]
    return [ls(), *(find(glob) for glob in globs)]


def _line_requests(question: SearchQuestion) -> list[ToolRequest]:
    patterns = [term.pattern for term in question.terms]
    defined = [f"(?:{_DEFINING}) +\\w*(?:{'|'.join(patterns)})"] if patterns else []
    return [grep(pattern, limit=_HITS) for pattern in (*patterns, *defined)]


def _folder_requests(question: SearchQuestion, named: Sequence[ToolResponse]) -> list[ToolRequest]:
    """What lies in the folders the question names."""
    wanted = [each for each in named if each.request.args.get("pattern") in question.paths]
    return [find("*", path=line) for each in wanted for line in each.lines[:3] if line.endswith("/")]


def _content_requests(case: SearchResults) -> list[ToolRequest]:
    """The best files, and the best of each kind worth reading."""
    chosen = [*case.ranked[: MAX_FILES_READ - 2]]
    for kind in ("source", "tests", "docs"):
        chosen += [file for file in case.of_kind(kind)[:2] if file not in chosen]
    if chosen:
        return [read(file.path, offset=_offset(file)) for file in chosen[:MAX_FILES_READ]]
    # Without a search the names in the question are all there is to go by, and then the file everyone writes.
    if case.question.paths and not case.tools & {"grep", "find"}:
        return [read(path) for path in case.question.paths]
    return [read("README.md")] if "README.md" in case.top or not case.top else []


def _offset(file: RankedFile) -> int:
    first = file.hits[0].line if file.hits else 1
    return first - 50 if first > _LONG_FILE else 1


def _rank_results(question: SearchQuestion, tools: frozenset[str], got: Sequence[ToolResponse]) -> SearchResults:
    """What the searches found, ranked by what they showed of it."""
    searches = {each.request.args["pattern"]: each for each in got if each.request.tool == "grep"}
    counts = {
        term: len(searched.lines)
        for term in question.terms
        if (searched := searches.get(term.pattern)) and not searched.is_error
    }
    top = collect_lines("ls", got)
    files = [name for name in (*top, *collect_lines("find", got)) if not name.endswith("/")]
    found: dict[str, dict[int, SourceLine]] = {name: {} for name in files}
    for hit in (hit for searched in searches.values() for hit in searched.hits):
        found.setdefault(hit.path, {})[hit.line] = hit
    worth = weigh_terms(question.terms, counts)
    return SearchResults(
        question=question,
        tools=tools,
        worth=worth,
        ranked=rank_files(
            question, worth, {path: [hits[line] for line in sorted(hits)] for path, hits in found.items()}
        ),
        top=tuple(top),
        absent=tuple(term for term, count in counts.items() if count == 0),
        gaps=(
            *(f"{what} (no `{tool}`)" for tool, what in _WITHOUT.items() if tool not in tools),
            *_describe_errors(got),
        ),
    )


def _rerank_with_contents(case: SearchResults, contents: Sequence[ToolResponse]) -> SearchResults:
    """The same case, ranked anew by all that the files which were read contain."""
    shown = [got for got in contents if not got.is_error]
    found = [SourceFile(got.request.args["path"], got.lines, got.request.args.get("offset", 1)) for got in shown]
    hits: dict[str, Sequence[SourceLine]] = {file.path: file.hits for file in case.ranked}
    hits |= {source.path: find_hits(source, case.question.terms) for source in found}
    return replace(
        case,
        ranked=rank_files(case.question, case.worth, hits),
        sources={source.path: source for source in found},
        gaps=(*case.gaps, *_describe_errors(contents)),
    )


def _describe_errors(got: Sequence[ToolResponse]) -> list[str]:
    """What went wrong in words; an answer that was merely cut at its limit is no trouble."""
    failed = [f"`{each.request.tool}` failed: {each.text}" for each in got if each.is_error]
    stopped = [each.notice for each in got if _STOPPED.search(each.notice)]
    return list(dict.fromkeys([*failed, *stopped]))
