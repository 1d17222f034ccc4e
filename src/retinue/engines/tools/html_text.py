"""Extract the readable text of an HTML page, within a time limit whatever the page contains.

The parser is Python's own, fed in small slices: `html.parser` needs no memory per level of nesting, and a deadline
can be checked between slices. selectolax and lxml are faster on ordinary pages, but a page of a few megabytes keeps
them busy for minutes (nested blocks, or attributes of one tag), and neither can be interrupted.
"""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from urllib.parse import urljoin

from msgspec import Struct

EXTRACT_TIMEOUT = 5.0
"""Seconds of one extraction; an ordinary page takes a tenth of a second."""
SLICE_CHARS = 16 * 2**10
MAX_TEXT_CHARS = 2**20
"""Characters of text that are extracted."""
MAX_LINK_CHARS = 500
"""Characters of a link that is shown; longer ones are data."""
_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "head"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "dd", "details", "dialog", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li",
    "main", "nav", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_SPACE = re.compile(r"[ \t\r\f\v\n\u00a0]+")


class PageText(Struct, frozen=True):
    """The text of a page."""

    title: str
    text: str
    is_complete: bool = True
    """False if the page was too large or too slow to read to its end."""


def extract_text(html: str, url: str) -> PageText:
    """Return the text of a page: headings, list items and links as in Markdown, one block a line."""
    parser = _TextParser(url)
    deadline = time.monotonic() + EXTRACT_TIMEOUT
    for start in range(0, len(html), SLICE_CHARS):
        if time.monotonic() > deadline or parser.size > MAX_TEXT_CHARS:
            return parser.page(is_complete=False)
        parser.feed(html[start : start + SLICE_CHARS])
    # Not closed: that would parse the rest after a tag without an end once more, character by character.
    return parser.page(is_complete=True)


class _TextParser(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.size = 0
        self._url = url
        self._lines: list[str] = []
        self._line: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._skipped: list[str] = []
        """Open elements whose content is not shown."""
        self._pre_depth = 0
        self._links: list[str] = []
        """Targets of the open links; empty for those that are not shown."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if tag == "body":
            self._skipped.clear()
        elif tag in _SKIPPED:
            self._skipped.append(tag)
        if self._skipped:
            return
        if tag in _BLOCKS:
            self._end_line()
            self._line += filter(None, (_HEADINGS.get(tag) or ("- " if tag == "li" else ""),))
        elif tag in ("td", "th") and self._line:
            self._line.append(" | ")
        elif tag == "a":
            self._links.append(self._link_target(dict(attrs).get("href")))
            self._line += ["["] if self._links[-1] else []
        elif tag == "img" and (description := dict(attrs).get("alt")):
            self._add(f"[image: {description}]")
        self._pre_depth += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # `<script/>` is a start tag in HTML; inside `<svg>`, which is skipped, elements do end so.
        if not self._skipped or tag not in _SKIPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipped:
            if tag in self._skipped:
                del self._skipped[self._skipped.index(tag) :]
            return
        if tag in _BLOCKS:
            self._end_line()
        elif tag == "a" and self._links and (target := self._links.pop()):
            self._add(f"]({target})")
        self._pre_depth -= tag == "pre" and self._pre_depth > 0

    def handle_data(self, data: str) -> None:
        if self._in_title and "svg" not in self._skipped:
            self._title.append(data)
        elif not self._skipped:
            self._add(data)

    def page(self, *, is_complete: bool) -> PageText:
        self._end_line()
        title = _SPACE.sub(" ", "".join(self._title)).strip()
        return PageText(title, "\n".join(self._lines).strip("\n"), is_complete)

    def _add(self, text: str) -> None:
        self.size += len(text)
        if not self._pre_depth:
            self._line.append(text)
            return
        first, *more = text.split("\n")
        self._line.append(first)
        for line in more:
            self._end_line()
            self._line.append(line)

    def _end_line(self) -> None:
        text = "".join(self._line)
        self._line = []
        text = text.rstrip() if self._pre_depth else _SPACE.sub(" ", text).strip()
        if text and text not in _EMPTY_LINES:
            self._lines.append(text)
            self.size += 1

    def _link_target(self, href: str | None) -> str:
        """Return the absolute URL of a link to a page; empty for others."""
        if not href or href.startswith("#") or len(href) > MAX_LINK_CHARS:
            return ""
        try:
            target = urljoin(self._url, href.strip())
        except ValueError:
            return ""
        return target if target.startswith(("http://", "https://")) else ""


_EMPTY_LINES = frozenset({"-", "|", *(prefix.strip() for prefix in _HEADINGS.values())})
"""Lines of elements without text."""
