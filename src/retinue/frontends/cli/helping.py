"""What helps a person who types: examples, and the word that may have been meant."""

from __future__ import annotations

from collections.abc import Iterable


def examples(*lines: str, then: str = "") -> str:
    """The end of a command's help: how it is typed, and what else there is to say."""
    told = "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
    return f"{told}\n\n{then}" if then else told


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to append to a sentence about a word nobody knows; empty if none is like it."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""
