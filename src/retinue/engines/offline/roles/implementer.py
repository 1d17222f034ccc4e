"""Implementer: the files a change would touch, the neighbours to imitate, and who depends on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retinue.engines.offline.answers import Section, best_lines, cited, file_lines, limits, section, worth_showing
from retinue.engines.offline.asking import Ask, answered, ls
from retinue.engines.offline.inquiry import Case
from retinue.engines.offline.roles.base import Role, ask_for_uses, main_symbol, subjects, uses

_MOST_NEIGHBOURS = 6
_MOST_CALLERS = 5


def _follow(case: Case) -> Sequence[Ask]:
    main = main_symbol(case)
    folders = dict.fromkeys(_folder(file.path) for file in subjects(case))
    return [*(ls(folder) for folder in folders), *(ask_for_uses(main[1].name) if main else ())]


def _answer(case: Case) -> Sequence[Section]:
    return (
        section("summary", "Goal", [f"As asked: {case.question.text.strip().splitlines()[0]}"]),
        section("findings", "Findings", (cited(each) for each in best_lines(case, subjects(case, most=3)))),
        section("plan", "Plan", (f"{number}. {step}" for number, step in enumerate(_steps(case), 1))),
        section("tests", "Tests", file_lines(case, worth_showing(case.of_kind("tests"), 4))),
        limits(case, *_new(case), "The steps say where, not what: the design was not judged"),
    )


def _steps(case: Case) -> Iterator[str]:
    for file in subjects(case, most=3):
        lines = [each for each in case.evidence_in(file) if each.symbol][:2]
        where = ", ".join(f"`{each.symbol.name}` at line {each.line}" for each in lines if each.symbol)
        yield f"Change `{file.path}`" + (f": {where}." if where else ".")
    if neighbours := _neighbours(case):
        yield f"Imitate its neighbours: {', '.join(f'`{path}`' for path in neighbours)}."
    if callers := _callers(case):
        yield f"Check who depends on it: {', '.join(callers)}."
    if tests := worth_showing(case.of_kind("tests"), 2):
        yield f"Extend the tests in {', '.join(f'`{file.path}`' for file in tests)}."
    if docs := worth_showing(case.of_kind("docs"), 2):
        yield f"Bring the documents up to date: {', '.join(f'`{file.path}`' for file in docs)}."


def _neighbours(case: Case) -> list[str]:
    """Files beside the ones to change, of the same kind."""
    touched = {file.path for file in subjects(case, most=3)}
    endings = tuple(path.rpartition(".")[2] for path in touched)
    found = [
        name if (folder := got.ask.args["path"]) == "." else f"{folder}/{name}"
        for got in answered(case.more, "ls")
        for name in got.lines
        if name.endswith(endings) and not name.startswith(("_", "."))
    ]
    return [path for path in found if path not in touched][:_MOST_NEIGHBOURS]


def _callers(case: Case) -> list[str]:
    main = main_symbol(case)
    found = uses(case, main[1], main[0].path) if main else []
    return [f"`{hit.path}:{hit.line}`" for hit in found[:_MOST_CALLERS]]


def _new(case: Case) -> list[str]:
    return [f"New here: nothing mentions `{term.word}` yet" for term in case.absent]


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "."


IMPLEMENTER = Role(_follow, _answer)
