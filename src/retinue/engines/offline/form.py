"""An answer in the agent's own form: the headings of the template under `## Output` in its prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from retinue.engines.offline.answers import Section

_HEADING = re.compile(r"(#{1,6})[ ]+(\S.{0,200}?)\s*#*")
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})")
_OUTPUT = re.compile(r"(?:output|response|answer|report)\b.*", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\[[^\]]*\]|\{[^}]*\}|<[^>]*>")
_TOPICS = tuple(
    # What a heading speaks of; the first that fits counts.
    (re.compile(words, re.IGNORECASE), topic)
    for words, topic in (
        (r"\bnot\b|nothing|uncertain|open|limit|gap|missing|unknown|blocked|caveat|unverified", "limits"),
        (r"checked|reviewed|complete|correct", "checked"),
        (r"how to test|fixture|convention|requirement", "practice"),
        (r"tests? to|test plan|cases?\b", "write"),
        (r"test|coverage", "tests"),
        (r"plan|step|change|approach|suggest|next", "plan"),
        (r"source|reference|document|link", "sources"),
        (r"goal|verdict|answer|summary|overview|result|conclusion|status", "summary"),
        (r"fits|together|architecture|structure|\buse[ds]?\b|depend|impact", "fits"),
        (r"finding|issue|risk|problem|file|location|evidence|detail|match", "findings"),
    )
)


class Heading(Struct, frozen=True):
    level: int
    title: str


def template(prompt: str) -> tuple[Heading, ...]:
    """The headings of the output form a prompt asks for; none if it has no such section.

    They stand in the first fenced block of the section or, without one, right under its heading.
    """
    lines = prompt.split("\n")
    for number, line in enumerate(lines):
        found = _HEADING.fullmatch(line)
        if found and _OUTPUT.fullmatch(found[2]) and (headings := _headings(lines[number + 1 :], len(found[1]))):
            return headings
    return ()


def rendered(sections: Sequence[Section], form: Sequence[Heading], subject: str) -> str:
    """The sections under the headings of the form, and beneath them those it has no heading for.

    A heading for which there is nothing is left out, unless others stand under it.
    """
    left = {section.topic: section for section in sections if section.lines}
    blocks: list[str] = []
    for number, heading in enumerate(form):
        section = left.pop(_topic(heading.title) or "", None)
        is_parent = number + 1 < len(form) and form[number + 1].level > heading.level
        if section or is_parent:
            title = _PLACEHOLDER.sub(subject, heading.title)
            blocks.append(_block(heading.level, title, section.lines if section else ()))
    level = form[-1].level if form else 2
    blocks += [_block(level, section.title, section.lines) for section in left.values()]
    return "\n\n".join(blocks)


def _block(level: int, title: str, lines: Sequence[str]) -> str:
    return "\n".join((f"{'#' * level} {title}", *lines))


def _topic(title: str) -> str | None:
    return next((topic for words, topic in _TOPICS if words.search(title)), None)


def _headings(lines: list[str], outer: int) -> tuple[Heading, ...]:
    fences = [number for number, line in enumerate(lines) if _FENCE.match(line)]
    end = next((number for number, line in enumerate(lines) if _ends(line, outer)), len(lines))
    if fences and fences[0] < end:
        end = fences[1] if len(fences) > 1 else len(lines)
        lines = lines[fences[0] : end]
    else:
        lines = lines[:end]
    found = (_HEADING.fullmatch(line.strip()) for line in lines)
    return tuple(Heading(len(each[1]), each[2]) for each in found if each)


def _ends(line: str, outer: int) -> bool:
    found = _HEADING.fullmatch(line)
    return found is not None and len(found[1]) <= outer
