"""Splits a markdown file into its header and its body.

The header stands between two `---` lines at the top; everything after them is the body.
"""

from __future__ import annotations

import re

from msgspec import Struct

from retinue.agents.files import Broken
from retinue.agents.header import EMPTY, Header, parse

HEADER_BYTES = 64 * 2**10
"""Headers are a screenful; more is an attack or an accident."""

_AGENT_KEY = re.compile(
    r"^[\"']?(?:name|description|readonly|[a-z_-]*tools)[\"']?[ \t]*:", re.MULTILINE | re.IGNORECASE
)
_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)


class Document(Struct, frozen=True):
    """A markdown file: what its header says, and its text."""

    header: Header
    body: str


def split(text: str) -> Document:
    """The header and the body of a file; a file without a header is all body.

    Raises:
        Broken: its header is not closed, too large, or nothing that can be read.
    """
    start = len(text) - len(text.lstrip("\n"))
    opening = _FENCE.match(text, start)
    if not opening:
        return Document(EMPTY, text.strip())
    line = start + 1
    closing = _FENCE.search(text, opening.end() + 1)
    if not closing:
        if _AGENT_KEY.search(text, opening.end()):
            # Read as body, it would be an agent whose restrictions are lost.
            raise Broken("the header is not closed by a --- line", line)
        return Document(EMPTY, text.strip())
    source = text[opening.end() + 1 : closing.start()]
    if len(source.encode()) > HEADER_BYTES:
        raise Broken(f"the header is too large (at most {HEADER_BYTES} bytes)", line)
    return Document(parse(source, first_line=line + 1), text[closing.end() :].strip())
