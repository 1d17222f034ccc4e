"""The answer of the offline engine: evidence as `path:line`, under the headings of the built-in agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, product

from retinue.engines.offline.search import FileSearch, RankedFile, SourceLine

HONESTY = "Rule-based search, not a language model"
_MAX_QUOTE = 160
"""Characters of a line that are quoted."""
_LINES_PER_FILE, _MAX_MARKS = 3, 4
_MARKS = {
    "open task": r"\b(?:TODO|FIXME|XXX|HACK)\b",
    "catches all exceptions": r"^\s*except\s*:|\bexcept\s+(?:Base)?Exception\b|\bcatch\s*(?:\([^)]*\))?\s*\{\s*\}",
    "executes its input": r"\b(?:eval|exec)\(|\bshell\s*=\s*True\b|\bos\.system\(|\bchild_process\b",
    "does not check certificates": r"\bverify\s*=\s*False\b|\brejectUnauthorized\s*:\s*false\b",
    "a disabled check": r"#\s*(?:type:\s*ignore|noqa|nosec)\b|@ts-ignore\b|eslint-disable\b",
}

Sections = Mapping[str, Sequence[str]]
"""Lines beneath their headings; one without lines is left out. The last heading is for what was not found or done."""


def render_report(agent: str, search: FileSearch) -> str:
    """Render the answer: a headline that says what it is, then the sections of the agent's kind."""
    sections = dict(_find_role(agent, search.task)(search))
    limits_title, caveats = sections.popitem()
    if not search.ranked:
        sections, caveats = {"Findings": [f"Nothing found about {search.subject}."]}, []
    searched = {"Searched for": search.terms, "Not found": search.absent}
    limits = [f"{what}: {', '.join(f'`{name}`' for name in names)}" for what, names in searched.items() if names]
    sections[limits_title] = [f"- {line}" for line in (*limits, *search.gaps, *caveats)]
    blocks = ("\n".join((f"## {title}", *dict.fromkeys(lines))) for title, lines in sections.items() if lines)
    return "\n\n".join((f"{HONESTY}; {_render_headline(search)}.", *blocks))


def _find_role(agent: str, task: str) -> Callable[[FileSearch], Sections]:
    """Return the sections of an agent by its name, else by its task; the explorer's where neither decides."""
    found = (role for text in (agent, task) for role, words in _ROLES.items() if re.search(words, text.lower()))
    return next(found, _explore)


def _render_headline(search: FileSearch) -> str:
    if not search.ranked:
        return f"nothing found about {search.subject}"
    # Files without most of the terms are hardly about the task.
    is_doubtful = len(search.absent) * 2 > len(search.terms)
    match = "no good match; nearest" if is_doubtful else "best match"
    best = (search.files(*search.preferred) or search.files("source") or search.ranked)[0]
    if not (lines := search.evidence(best)):
        return f"{match}: `{best.path}`"
    place = f"`{lines[0].path}:{lines[0].line}`"
    name = lines[0].defined_name if best.kind == "source" else ""
    return f"{match}: `{name}` in {place}" if name else f"{match}: {place}"


def _subject_files(search: FileSearch, limit: int = 3) -> Sequence[RankedFile]:
    return search.files("source", limit=limit) or search.ranked[:limit]


def _best_lines(search: FileSearch, files: Iterable[RankedFile]) -> list[str]:
    lines = []
    for file in files:
        best = [_cite(line, _summary(search, line)) for line in search.evidence(file)[:_LINES_PER_FILE]]
        lines += best or [f"- `{file.path}`"]
    return lines


def _list_files(files: Iterable[RankedFile]) -> list[str]:
    return [f"- `{file.path}` — matching lines: {len(file.hits)}" for file in files]


def _summary(search: FileSearch, line: SourceLine) -> str:
    """Return the first line of the docstring beneath a definition that was read; empty without one."""
    below = search.contents.get(line.path, ())[line.line : line.line + 1]
    text = below[0].text.strip() if below and line.defined_name else ""
    return text.strip('"').strip() if text.startswith('"""') else ""


def _cite(line: SourceLine, note: str = "") -> str:
    text = _clip(line.text.strip())
    # A fence longer than any run of backticks inside keeps it one piece of code.
    quoted = f"`` {text} ``" if "`" in text else f"`{text}`"
    return f"- `{line.path}:{line.line}`" + (f" {quoted}" if text else "") + (f" — {_clip(note)}" if note else "")


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_QUOTE else text[: _MAX_QUOTE - 1].rstrip() + "…"


def _explore(search: FileSearch) -> Sections:
    files = search.files(*search.preferred) or _subject_files(search, 4)
    others = {"Tests:": _list_files(search.files("tests")), "Documents:": _list_files(search.files("docs"))}
    return {
        "Findings": _best_lines(search, files),
        "How it fits together": [line for title, lines in others.items() if lines for line in (title, *lines)],
        "Not found or uncertain": [],
    }


def _review(search: FileSearch) -> Sections:
    read = [file.path for file in _subject_files(search) if file.path in search.contents]
    marks = []
    for path, (mark, pattern) in product(read, _MARKS.items()):
        marked = (line for line in search.contents[path] if re.search(pattern, line.text[:500]))
        marks += [_cite(line, mark) for line in islice(marked, _MAX_MARKS)]
    return {
        "Verdict": [f"Read {len(read)} files about {search.subject}: {len(marks)} lines to check."],
        "Findings": marks or ["No suspicious lines found."],
        "Checked": [f"- `{path}`: {len(search.contents[path])} lines" for path in read],
        "Not checked": ["Rules find patterns, not meaning: whether the code is correct was not judged"],
    }


def _implement(search: FileSearch) -> Sections:
    sources, task = _subject_files(search), search.task.strip().split("\n")[0]
    steps = [f"Change `{file.path}`." for file in sources]
    steps += [f"Extend the tests in `{file.path}`." for file in search.files("tests", limit=2)]
    steps += [f"Update `{file.path}`." for file in search.files("docs", limit=2)]
    return {
        "Result": [f"Nothing was changed: rules write no code. Task: {task}"],
        "Findings": _best_lines(search, sources),
        "Changes": [f"{number}. {step}" for number, step in enumerate(steps, 1)],
        "Tests": _list_files(search.files("tests")),
        "Risks and open questions": ["The changes name files, not code: no patch was written"],
    }


def _test(search: FileSearch) -> Sections:
    tests = search.files("tests")
    sources = [f"- `{file.path}`" for file in search.files("source", limit=2)]
    return {
        "Findings": _best_lines(search, tests) or ["No test found that mentions the subject."],
        "Tests to write": [*sources, "Compare their definitions with the tests above."] if sources else [],
        "How to test here": _list_files(tests),
        "Not judged": ["A test that mentions a name may still test it badly: the assertions were not judged"],
    }


def _research(search: FileSearch) -> Sections:
    documents = search.files("docs")
    return {
        "Answer": [f"Documents that mention {search.subject}: {len(documents)}."],
        "Findings": _best_lines(search, documents or search.ranked[:4]),
        "Sources": _list_files(documents),
        "Open questions": ["Local files only: the web was not searched"],
    }


_ROLES = {
    _explore: r"explor|scout|navigat|^\W*(?:please\s+)?(?:where|which|find|locate|list|search|show)",
    _review: r"review|audit|critic|security|\brisks?\b|vulnerab|\bsmells?\b",
    _test: r"\btest|tester|untested|coverage|\bqa\b",
    _implement: r"implement|\bplan|architect|develop|cod(?:er|ing)|\badd\b|introduce|refactor|migrate",
    _research: r"research|\bdoc|librar|readme",
}
"""Names of agents, and words of tasks, that an answer of this kind belongs to."""
