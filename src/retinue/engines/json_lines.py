"""JSON that a child wrote: read once, and never believed to be what it should be."""

from __future__ import annotations

import json
from typing import Any

import msgspec


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
