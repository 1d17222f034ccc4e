"""Values as JSON, whatever a model made of a text."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue.output.texts import changed_texts, mended

_encode = msgspec.json.Encoder().encode


def encoded(value: Any) -> bytes:
    """The value as JSON; half characters, which no JSON can say, are replaced."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(changed_texts(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,)), mended))
