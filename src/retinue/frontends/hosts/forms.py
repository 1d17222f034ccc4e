"""What a host's configuration is written in, and the one entry in it that is ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Entry = Mapping[str, Any]


class Unfit(Exception):  # noqa: N818 - it says what is wrong with the file
    """The text cannot be changed without harm; the message says why."""


class Form(Protocol):
    def entry(self, text: str) -> Entry | None:
        """Our entry; None if there is none.

        Raises:
            Unfit: the text cannot be read; so do those that follow.
        """

    def with_entry(self, text: str, entry: Entry) -> str:
        """The text with this entry in it, new or in the place of an earlier one; the rest as it was."""

    def without_entry(self, text: str) -> str:
        """The text without our entry; empty if all of it was ours."""

    def by_hand(self, entry: Entry) -> str:
        """What a person has to add."""
