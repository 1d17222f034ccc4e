"""Treat variables that a host failed to fill in as unset: `ANTHROPIC_API_KEY='$ANTHROPIC_API_KEY'`."""

from __future__ import annotations

from collections.abc import Mapping


def is_placeholder(name: str, value: str) -> bool:
    """Return whether the value is only a reference to the variable itself, as hosts leave it if it is not set."""
    return value.startswith("$") and value in {f"${name}", f"${{{name}}}", f"${{env:{name}}}"}


def drop_placeholders(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the environment without variables that a host failed to fill in."""
    return {name: value for name, value in environ.items() if not is_placeholder(name, value)}
