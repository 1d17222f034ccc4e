r"""Escape JSON so that any terminal, log and page can show it.

In JSON most characters may stand for themselves, also those that a terminal executes (DEL and the C1 controls) and
those that hide or reorder text (bidirectional controls, zero-width and tag characters). Here they become escapes such
as `\u009b`, which every parser reads as the same value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

INVISIBLE_CHARACTERS = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
"""Characters without a shape of their own, as the inside of a class of a pattern."""
JOINERS = "\u200c\u200d"
VARIATION_SELECTORS = "\ufe00-\ufe0e\U000e0100-\U000e01ef"
"""Variation selectors except the one for emoji, U+FE0F."""

_DEL = b"\x7f"


def escape_json(encoded: bytes) -> bytes:
    """Return JSON with escapes for the characters a terminal executes or hides; the same object if it has none.

    Raises:
        UnicodeDecodeError: the JSON is not in UTF-8.
    """
    if encoded.isascii() and _DEL not in encoded:
        return encoded
    return _find_unsafe()(_escape_match, encoded.decode()).encode()


@cache
def _find_unsafe() -> Callable[[Callable[[re.Match[str]], str], str], str]:
    unsafe = f"[\x7f-\x9f\u2028\u2029\ufe0f{JOINERS}{VARIATION_SELECTORS}{INVISIBLE_CHARACTERS}]"
    return re.compile(unsafe).sub


def _escape_match(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
