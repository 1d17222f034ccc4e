"""Implementer: the files a change would touch, the neighbours to imitate, and who depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.engines.offline.form import Section, best_lines, file_lines, limits, worth_showing
from retinue.engines.offline.inquiry import Ask, Case, ls
from retinue.engines.offline.roles import Role, ask_for_uses, subjects, uses
from retinue.engines.offline.sources import Symbol

_MOST_NEIGHBOURS = 6
_MOST_CALLERS = 5


def _follow(case: Case) -> Sequence[Ask]:
    folders = dict.fromkeys(file.path.rpartition("/")[0] or "." for file in subjects(case))
    return [*(ls(folder) for folder in folders), *ask_for_uses(case)]


def _answer(case: Case) -> Sequence[Section]:
    new = (f"New here: nothing mentions `{term.word}` yet" for term in case.absent)
    return (
        Section("summary", "Goal", [f"As asked: {case.question.text.strip().splitlines()[0]}"]),
        Section("findings", "Findings", best_lines(case, subjects(case, most=3))),
        Section("plan", "Plan", [f"{number}. {step}" for number, step in enumerate(_steps(case), 1)]),
        Section("tests", "Tests", file_lines(case, worth_showing(case.of_kind("tests"), 4))),
        limits(case, *new, "The steps say where, not what: the design was not judged"),
    )


def _steps(case: Case) -> Iterator[str]:
    for file in subjects(case, most=3):
        defined = [hit for hit in case.evidence_in(file) if isinstance(hit, Symbol)]
        where = ", ".join(f"`{symbol.name}` at line {symbol.line}" for symbol in defined[:2])
        yield f"Change `{file.path}`" + (f": {where}." if where else ".")
    callers = [f"{hit.path}:{hit.line}" for hit in uses(case)[:_MOST_CALLERS]]
    tests, docs = worth_showing(case.of_kind("tests"), 2), worth_showing(case.of_kind("docs"), 2)
    for step, paths in (
        ("Imitate its neighbours: ", _neighbours(case)),
        ("Check who depends on it: ", callers),
        ("Extend the tests in ", [file.path for file in tests]),
        ("Bring the documents up to date: ", [file.path for file in docs]),
    ):
        if paths:
            yield step + ", ".join(f"`{path}`" for path in paths) + "."


def _neighbours(case: Case) -> list[str]:
    """Files beside the ones to change, of the same kind."""
    touched = {file.path for file in subjects(case, most=3)}
    endings = tuple(path.rpartition(".")[2] for path in touched)
    found = [
        f"{got.ask.args['path']}/{name}".removeprefix("./")
        for got in case.more
        if got.ask.tool == "ls"
        for name in got.lines
        if name.endswith(endings) and not name.startswith(("_", "."))
    ]
    return [path for path in found if path not in touched][:_MOST_NEIGHBOURS]


IMPLEMENTER = Role(_follow, _answer)
