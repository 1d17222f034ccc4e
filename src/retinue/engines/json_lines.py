"""JSON that a child wrote: read once, and never believed to be what it should be.

What is missing or of another kind counts as nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from retinue.results import Finalization


def decoded(line: bytes) -> Any:
    """The value; None for what is no JSON, or too deep to be meant seriously."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:  # Half a character, which msgspec refuses, is mended further on; invalid UTF-8 here.
        return json.loads(line.decode(errors="replace"), parse_constant=_refused)
    except (ValueError, RecursionError):
        return None


def _refused(name: str) -> Any:
    raise ValueError(name)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def number_of(value: Any) -> int:
    try:
        return int(value) if isinstance(value, int | float) else 0
    except (OverflowError, ValueError):  # infinite, or no number
        return 0


def blocks_of(content: Any) -> Iterable[Mapping[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else ()


def text_of_blocks(content: Any) -> str:
    """What the blocks of a tool's result say."""
    return "\n".join(text for block in blocks_of(content) if (text := text_of(block.get("text"))))


def finalization_of(value: Any) -> Finalization | None:
    """What a finalize call says; None unless it keeps the rules, which the tool has checked before."""
    try:
        said = msgspec.convert(value, Finalization)
    except msgspec.ValidationError:
        return None
    return said if said.is_valid else None
