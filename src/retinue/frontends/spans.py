"""Lines in styles, as every picture is made of them, and how they are made to fit."""

from __future__ import annotations

from msgspec import Struct

from retinue.frontends.cells import fit, width


class Span(Struct, frozen=True):
    """Text in one style: `name`, `muted`, `running`, `good`, `error`, `warning`, or none."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def fitted(line: Line, columns: int) -> Line:
    """The line in at most so many columns."""
    spans: list[Span] = []
    for span in line:
        text = fit(span.text, columns)
        spans.append(Span(text, span.style))
        columns -= width(text)
    return tuple(spans)


def text_of(line: Line) -> str:
    return "".join(span.text for span in line)
