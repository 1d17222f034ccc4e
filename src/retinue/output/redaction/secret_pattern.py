"""One row of the table of secrets: how a kind of secret is recognized, and when it is worth trying."""

from __future__ import annotations

from msgspec import Struct

REDACTION_MARK = "[REDACTED]"
WORD_RUN = r"[A-Za-z0-9_-]*+"
"""Every run matches at least these, so that the text after a mark never looks like the middle of a token."""


class SecretPattern(Struct, frozen=True, kw_only=True):
    """One kind of secret.

    A row has anchors, or a prefix, or a shape: it is tried only in a text that has one of them.
    """

    name: str
    anchors: tuple[str, ...] = ()
    """In lower case; a text without any of them has no such secret."""
    needs: str = ""
    """One or two characters of which one must occur: cheaper to search for than the anchors."""
    prefix: str = ""
    """In lower case; a long word (`words.py`) must have it."""
    is_bounded: bool = True
    """Whether the prefix must not follow a letter or digit."""
    shape: str = ""
    """A pattern that must occur in or right before a long word, in lower case."""
    head: str
    """Recognizes the secret; its group `value` starts where the mark starts."""
    run: str = WORD_RUN
    mark: str = REDACTION_MARK
    folded: bool = False
    """Whether head and run match the text in lower case."""
    line_start: str = ""
    """A prefix that each line within the run may have although the run does not match its characters."""
    start: str = ""
    """The word that the head starts with, if it is not an anchor."""
    spaced: bool = False
    """Whether the head may contain blanks (never a line break), so that it may start in an earlier word."""
