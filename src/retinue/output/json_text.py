"""Encode values as JSON for terminals, files of results, HTTP and sockets."""

from __future__ import annotations

from typing import Any

import msgspec

from retinue.model.json_text import escape_json
from retinue.output.untrusted_text import map_strings, replace_surrogates

_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8 that any terminal can show; lone surrogates become U+FFFD.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    try:
        return escape_json(_encode(value))
    except UnicodeEncodeError:
        complete = map_strings(msgspec.to_builtins(value, builtin_types=(msgspec.Raw,)), replace_surrogates)
        return escape_json(_encode(complete))
