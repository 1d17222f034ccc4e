"""An answer: its sections, and its form, the headings of the template under `## Output` in the agent's prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from retinue.engines.offline.inquiry import SearchResults
from retinue.engines.offline.ranking import RankedFile
from retinue.engines.offline.sources import SourceLine, SymbolDefinition, opening_sentence

_MOST_TEXT = 160
"""Characters of a line that are quoted."""
_LINES_PER_FILE = 3
_NEARLY_AS_GOOD = 0.35
"""Of the best file's score: what a file must have to be shown beside it."""
_HEADING = re.compile(r"^ *(#{1,6}) +(\S.{0,200}?) *+#*+$", re.MULTILINE)
_OUTPUT = re.compile(r"^(#{1,6}) +(?:output|response|answer|report)\b.*$", re.MULTILINE | re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:`{3}|~{3}).*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\[[^\]]*\]|\{[^}]*\}|<[^>]*>")
_TOPICS = {
    # What a heading speaks of; the first that fits counts.
    "limits": r"\bnot\b|nothing|uncertain|open|limit|gap|missing|unknown|blocked|caveat|unverified",
    "checked": r"checked|reviewed|complete|correct",
    "practice": r"how to test|fixture|convention|requirement",
    "write": r"tests? to|test plan|cases?\b",
    "tests": r"test|coverage",
    "plan": r"plan|step|change|approach|suggest|next",
    "sources": r"source|reference|document|link",
    "summary": r"goal|verdict|answer|summary|overview|result|conclusion|status",
    "fits": r"fits|together|architecture|structure|\buse[ds]?\b|depend|impact",
    "findings": r"finding|issue|risk|problem|file|location|evidence|detail|match",
}


class ReportSection(Struct, frozen=True):
    """One part of an answer. Lines that repeat are shown once."""

    topic: str
    """What it is, for finding the heading it belongs under."""
    title: str
    """Its own heading, where the agent's form has none for it."""
    lines: Sequence[str]


class ReportHeading(Struct, frozen=True):
    level: int
    title: str


# -- what it is made of ----------------------------------------------------------------------------


def cite_hit(hit: SourceLine, note: str = "") -> str:
    """A line of evidence: where, what it says there, and what that is."""
    quoted = f" {format_code(hit.text)}" if hit.text.strip() else ""
    note = note or hit.note
    return f"- `{hit.path}:{hit.line}`{quoted}" + (f" — {clip_text(note)}" if note else "")


def format_code(text: str) -> str:
    short = clip_text(text.strip())
    # A fence longer than any run of backticks inside keeps it one piece of code.
    return f"`` {short} ``" if "`" in short else f"`{short}`"


def clip_text(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 1].rstrip() + "…"


def select_best_files(files: Sequence[RankedFile], most: int) -> list[RankedFile]:
    """The best files, without those that are much worse than the first."""
    return [file for file in files[:most] if file.score >= files[0].score * _NEARLY_AS_GOOD]


def list_best_lines(case: SearchResults, files: Sequence[RankedFile], *, most: int = 8) -> list[str]:
    """The lines that answer best in the best files: a few of each, the best file first, definitions before others."""
    few = (sorted(case.evidence_in(file)[:_LINES_PER_FILE], key=_defines_nothing) for file in files)
    return [cite_hit(hit) for hits in few for hit in hits][:most]


def list_files(case: SearchResults, files: Sequence[RankedFile]) -> list[str]:
    """Files with the reason they are named: what they say of themselves, if they were read."""
    return [f"- `{file.path}` — {_file_reason(case, file)}" for file in files]


def limits_section(case: SearchResults, *more: str) -> ReportSection:
    """What was searched, what was not found and what could not be done."""
    names = {
        "Searched for": [term.word for term in case.question.terms],
        "Looked for": case.question.paths,
        "Found nowhere": [term.word for term in case.absent],
    }
    lines = [f"{what}: {', '.join(f'`{name}`' for name in found)}" for what, found in names.items() if found]
    return ReportSection("limits", "Limits", [f"- {line}" for line in (*lines, *case.gaps, *more)])


def _defines_nothing(hit: SourceLine) -> bool:
    return not isinstance(hit, SymbolDefinition)


def _file_reason(case: SearchResults, file: RankedFile) -> str:
    read = case.sources.get(file.path)
    if read and (said := opening_sentence(read)):
        return clip_text(said)
    lines = len(file.hits)
    return f"{lines} line{'s' * (lines != 1)} about it" if lines else "by its name"


# -- its form --------------------------------------------------------------------------------------


def parse_template(prompt: str) -> tuple[ReportHeading, ...]:
    """The headings of the output form a prompt asks for; none if it has no such section.

    They stand in the first fenced block of the section or, without one, right under its heading.
    """
    for found in _OUTPUT.finditer(prompt):
        rest = prompt[found.end() :]
        end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
        section = rest[: end.start()] if end else rest
        fence = _FENCE.search(section)
        block = _FENCE.split(rest[fence.end() :], 1)[0] if fence else section
        if headings := tuple(ReportHeading(len(each[1]), each[2]) for each in _HEADING.finditer(block)):
            return headings
    return ()


def render_report(sections: Sequence[ReportSection], form: Sequence[ReportHeading], subject: str) -> str:
    """The sections under the headings of the form, and beneath them those it has no heading for.

    A heading for which there is nothing is left out, unless others stand under it.
    """
    left = {section.topic: section for section in sections if section.lines}
    blocks: list[str] = []
    for number, heading in enumerate(form, 1):
        section = left.pop(_classify_title(heading.title), None)
        is_parent = number < len(form) and form[number].level > heading.level
        if section or is_parent:
            title = _PLACEHOLDER.sub(subject, heading.title)
            blocks.append(_render_block(heading.level, title, section.lines if section else ()))
    level = form[-1].level if form else 2
    blocks += [_render_block(level, section.title, section.lines) for section in left.values()]
    return "\n\n".join(blocks)


def _render_block(level: int, title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"{'#' * level} {title}", *dict.fromkeys(lines)))


def _classify_title(title: str) -> str:
    return next((topic for topic, words in _TOPICS.items() if re.search(words, title, re.IGNORECASE)), "")
