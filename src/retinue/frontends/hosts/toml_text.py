"""TOML that people wrote: read as a whole, changed as text, so that comments and order stay."""

from __future__ import annotations

from typing import Any

from retinue.frontends.hosts.forms import Unfit


def parsed(text: str) -> dict[str, Any]:
    """What the text says.

    Raises:
        Unfit: it is no TOML.
    """
    import tomllib

    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise Unfit(f"it is no TOML: {error}") from error


def checked(text: str, wanted: Any) -> str:
    """The text, if it says what was wanted: a mistake of ours must not reach anyone's file.

    Raises:
        Unfit: it does not.
    """
    try:
        found = parsed(text)
    except Unfit:
        found = None
    if found != wanted:
        raise Unfit("it could not be changed safely, as it is written in an unusual way")
    return text
