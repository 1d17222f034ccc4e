"""The answer of the offline engine: evidence as `path:line`, under the headings of the built-in agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from retinue.engines.offline.search import FileKind, RankedFile, SearchResults, SourceLine

HONESTY = "Rule-based search, not a language model"
_MAX_QUOTE = 160
"""Characters of a line that are quoted."""
_LINES_PER_FILE = 3
_MAX_MARKS = 4
"""Lines per file and mark."""
_MARKS = {
    "open task": r"\b(?:TODO|FIXME|XXX|HACK)\b",
    "catches all exceptions": r"^\s*except\s*:|\bexcept\s+(?:Base)?Exception\b|\bcatch\s*(?:\([^)]*\))?\s*\{\s*\}",
    "executes its input": r"\b(?:eval|exec)\(|\bshell\s*=\s*True\b|\bos\.system\(|\bchild_process\b",
    "does not check certificates": r"\bverify\s*=\s*False\b|\brejectUnauthorized\s*:\s*false\b",
    "a disabled check": r"#\s*(?:type:\s*ignore|noqa|nosec)\b|@ts-ignore\b|eslint-disable\b",
}

Sections = Sequence[tuple[str, Iterable[str]]]
"""Headings with their lines; one without lines is left out."""


class AnswerRole(Struct, frozen=True):
    """The way one kind of agent answers."""

    agent_pattern: str
    """Names of agents that have this role."""
    task_pattern: str
    """Tasks of any other agent that give it this role."""
    sections: Callable[[SearchResults], Sections]
    limits: str
    """The heading for what was not found or not done."""
    caveat: str = ""
    prefers: FileKind | None = None
    """Files it is about even if the task does not ask for them."""


def find_role(agent: str, task: str) -> AnswerRole:
    """Return the role of an agent by its name, else by its task; the explorer's where neither decides."""
    by_name = [role for role in _ROLES if re.search(role.agent_pattern, agent, re.IGNORECASE)]
    by_task = [role for role in _ROLES if re.search(role.task_pattern, task, re.IGNORECASE)]
    return next(iter((*by_name, *by_task)), _ROLES[0])


def render_report(role: AnswerRole, results: SearchResults) -> str:
    """Render the answer: a headline that says what it is, then the sections of the role."""
    subject = results.question.subject
    sections: Sections = [("Findings", [f"Nothing found about {subject}."])]
    headline = f"nothing found about {subject}"
    if results.ranked:
        sections = role.sections(results)
        headline = _render_headline(results)
    searched = {
        "Searched for": results.question.terms,
        "Searched for files": results.question.paths,
        "Not found": results.absent,
    }
    limits = [f"{what}: {', '.join(f'`{name}`' for name in names)}" for what, names in searched.items() if names]
    limits += [*results.gaps, *([role.caveat] if role.caveat and results.ranked else [])]
    blocks = [(title, list(dict.fromkeys(lines))) for title, lines in sections]
    blocks.append((role.limits, [f"- {line}" for line in limits]))
    body = "\n\n".join("\n".join((f"## {title}", *lines)) for title, lines in blocks if lines)
    return f"{HONESTY}; {headline}.\n\n{body}"


def _render_headline(results: SearchResults) -> str:
    match = "no good match; nearest" if results.is_doubtful else "best match"
    best = (results.files(*results.question.prefers) or results.files("source") or results.ranked)[0]
    if not (lines := results.evidence(best)):
        return f"{match}: `{best.path}`"
    name = lines[0].defined_name if best.kind == "source" else ""
    place = f"`{lines[0].path}:{lines[0].line}`"
    return f"{match}: `{name}` in {place}" if name else f"{match}: {place}"


# -- parts of sections -----------------------------------------------------------------------------


def _subject_files(results: SearchResults, limit: int = 3) -> list[RankedFile]:
    return results.files("source", limit=limit) or list(results.ranked[:limit])


def _best_lines(results: SearchResults, files: Iterable[RankedFile]) -> list[str]:
    lines = []
    for file in files:
        best = [_cite(line, _summary(results, line)) for line in results.evidence(file)[:_LINES_PER_FILE]]
        lines += best or [f"- `{file.path}`"]
    return lines


def _list_files(files: Iterable[RankedFile], title: str = "") -> list[str]:
    lines = [f"- `{file.path}` — matching lines: {len(file.hits)}" for file in files]
    return [title, *lines] if title and lines else lines


def _summary(results: SearchResults, line: SourceLine) -> str:
    """Return the first line of the docstring beneath a definition that was read; empty without one."""
    below = results.contents.get(line.path, ())[line.line : line.line + 1]
    text = below[0].text.strip() if below and line.defined_name else ""
    return text.strip('"').strip() if text.startswith('"""') else ""


def _cite(line: SourceLine, note: str = "") -> str:
    quoted = f" {_quote(line.text)}" if line.text.strip() else ""
    return f"- `{line.path}:{line.line}`{quoted}" + (f" — {_clip(note)}" if note else "")


def _quote(text: str) -> str:
    short = _clip(text.strip())
    # A fence longer than any run of backticks inside keeps it one piece of code.
    return f"`` {short} ``" if "`" in short else f"`{short}`"


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_QUOTE else text[: _MAX_QUOTE - 1].rstrip() + "…"


# -- the roles -------------------------------------------------------------------------------------


def _explore(results: SearchResults) -> Sections:
    files = results.files(*results.question.prefers) or _subject_files(results, 4)
    others = [*_list_files(results.files("tests"), "Tests:"), *_list_files(results.files("docs"), "Documents:")]
    return [("Findings", _best_lines(results, files)), ("How it fits together", others)]


def _review(results: SearchResults) -> Sections:
    files = [file for file in _subject_files(results) if file.path in results.contents]
    marks = [
        _cite(line, mark)
        for file in files
        for mark, pattern in _MARKS.items()
        for line in [line for line in results.contents[file.path] if re.search(pattern, line.text[:500])][:_MAX_MARKS]
    ]
    verdict = f"Read {len(files)} files about {results.question.subject}: {len(marks)} lines to check."
    checked = [f"- `{file.path}`: {len(results.contents[file.path])} lines" for file in files]
    return [("Verdict", [verdict]), ("Findings", marks or ["No suspicious lines found."]), ("Checked", checked)]


def _implement(results: SearchResults) -> Sections:
    steps = [f"Change `{file.path}`." for file in _subject_files(results)]
    steps += [f"Extend the tests in `{file.path}`." for file in results.files("tests", limit=2)]
    steps += [f"Update `{file.path}`." for file in results.files("docs", limit=2)]
    return [
        (
            "Result",
            [f"Nothing was changed: rules write no code. Task: {results.question.text.strip().splitlines()[0]}"],
        ),
        ("Findings", _best_lines(results, _subject_files(results))),
        ("Changes", [f"{number}. {step}" for number, step in enumerate(steps, 1)]),
        ("Tests", _list_files(results.files("tests"))),
    ]


def _test(results: SearchResults) -> Sections:
    tests = results.files("tests")
    sources = [f"- `{file.path}`" for file in results.files("source", limit=2)]
    return [
        ("Findings", _best_lines(results, tests) or ["No test found that mentions the subject."]),
        ("Tests to write", [*sources, "Compare their definitions with the tests above."] if sources else []),
        ("How to test here", _list_files(tests)),
    ]


def _research(results: SearchResults) -> Sections:
    documents = results.files("docs")
    answer = f"Documents that mention {results.question.subject}: {len(documents)}."
    return [
        ("Answer", [answer]),
        ("Findings", _best_lines(results, documents or results.ranked[:4])),
        ("Sources", _list_files(documents)),
    ]


_ROLES = (
    AnswerRole(
        r"explor|scout|\bsearch|\bfind|navigat",
        r"^\W*(?:please\s+)?(?:where|which|find|locate|list|show)\b",
        _explore,
        "Not found or uncertain",
    ),
    AnswerRole(
        r"review|audit|critic|security",
        r"\b(?:review|audit|risks?|vulnerab\w+|smells?)\b",
        _review,
        "Not checked",
        "Rules find patterns, not meaning: whether the code is correct was not judged",
    ),
    AnswerRole(
        r"test|\bqa\b",
        r"\b(?:tests?|coverage|untested)\b",
        _test,
        "Not judged",
        "A test that mentions a name may still test it badly: the assertions were not judged",
    ),
    AnswerRole(
        r"implement|plan|architect|develop|cod(?:er|ing)",
        r"\b(?:plan|implement|add|introduce|refactor|migrate)\b",
        _implement,
        "Risks and open questions",
        "The changes name files, not code: no patch was written",
    ),
    AnswerRole(
        r"research|doc|librar",
        r"\b(?:docs?|documentation|research|readme)\b",
        _research,
        "Open questions",
        "Local files only: the web was not searched",
        prefers="docs",
    ),
)
