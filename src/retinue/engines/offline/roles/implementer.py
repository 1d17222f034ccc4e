"""Implementer: the files a change would touch, the neighbours to imitate, and who depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.engines.offline.form import ReportSection, limits_section, list_best_lines, list_files, select_best_files
from retinue.engines.offline.inquiry import SearchResults, ToolRequest, ls
from retinue.engines.offline.roles import AnswerRole, find_uses, request_uses, subject_files
from retinue.engines.offline.sources import SymbolDefinition

_MOST_NEIGHBOURS = 6
_MOST_CALLERS = 5


def _follow_up_requests(case: SearchResults) -> Sequence[ToolRequest]:
    folders = dict.fromkeys(file.path.rpartition("/")[0] or "." for file in subject_files(case))
    return [*(ls(folder) for folder in folders), *request_uses(case)]


def _build_sections(case: SearchResults) -> Sequence[ReportSection]:
    new = (f"New here: nothing mentions `{term.word}` yet" for term in case.absent)
    return (
        ReportSection("summary", "Goal", [f"As asked: {case.question.text.strip().splitlines()[0]}"]),
        ReportSection("findings", "Findings", list_best_lines(case, subject_files(case, most=3))),
        ReportSection("plan", "Plan", [f"{number}. {step}" for number, step in enumerate(_list_steps(case), 1)]),
        ReportSection("tests", "Tests", list_files(case, select_best_files(case.of_kind("tests"), 4))),
        limits_section(case, *new, "The steps say where, not what: the design was not judged"),
    )


def _list_steps(case: SearchResults) -> Iterator[str]:
    for file in subject_files(case, most=3):
        defined = [hit for hit in case.evidence_in(file) if isinstance(hit, SymbolDefinition)]
        where = ", ".join(f"`{symbol.name}` at line {symbol.line}" for symbol in defined[:2])
        yield f"Change `{file.path}`" + (f": {where}." if where else ".")
    callers = [f"{hit.path}:{hit.line}" for hit in find_uses(case)[:_MOST_CALLERS]]
    tests, docs = select_best_files(case.of_kind("tests"), 2), select_best_files(case.of_kind("docs"), 2)
    for step, paths in (
        ("Imitate its neighbours: ", _list_neighbours(case)),
        ("Check who depends on it: ", callers),
        ("Extend the tests in ", [file.path for file in tests]),
        ("Bring the documents up to date: ", [file.path for file in docs]),
    ):
        if paths:
            yield step + ", ".join(f"`{path}`" for path in paths) + "."


def _list_neighbours(case: SearchResults) -> list[str]:
    """Files beside the ones to change, of the same kind."""
    touched = {file.path for file in subject_files(case, most=3)}
    endings = tuple(path.rpartition(".")[2] for path in touched)
    found = [
        f"{got.request.args['path']}/{name}".removeprefix("./")
        for got in case.more
        if got.request.tool == "ls"
        for name in got.lines
        if name.endswith(endings) and not name.startswith(("_", "."))
    ]
    return [path for path in found if path not in touched][:_MOST_NEIGHBOURS]


IMPLEMENTER = AnswerRole(_follow_up_requests, _build_sections)
