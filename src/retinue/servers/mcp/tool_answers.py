"""What a call comes to, and what is told of it meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

WORKING, COMPLETED, FAILED, CANCELLED = "working", "completed", "failed", "cancelled"
"""The states of work that outlasts its call, in the words of the protocol's tasks."""
START_TIMEOUT = 0.2
"""Seconds in which what cannot even begin, or is soon done, is told at once: it needs no asking after."""

ReportProgress = Callable[[float, str], Awaitable[None]]
"""Takes how far a call has come, a number that grows, and what its runs are doing."""


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """What a call came to."""

    text: str
    structured: Mapping[str, Any]
    is_error: bool = False
    meta: Mapping[str, Any] | None = None
