"""The tables `[providers.NAME]` of the user's settings file: servers for models that the api engine calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from retinue.model.providers import ProviderSettings

PROVIDERS_KEY = "providers"
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Names that can stand before the slash of a model."""


def parse_providers(value: Any) -> tuple[Mapping[str, ProviderSettings], tuple[str, ...]]:
    """Return the valid tables by name, and a message for each that is ignored."""
    if not isinstance(value, Mapping):
        return {}, (f"{PROVIDERS_KEY} ignored: expected tables such as [{PROVIDERS_KEY}.vllm]",)
    found: dict[str, ProviderSettings] = {}
    problems: list[str] = []
    for name, table in value.items():
        if not PROVIDER_NAME.fullmatch(name):
            problems.append(f"{PROVIDERS_KEY}.{name} ignored: a name has lowercase letters, digits, '-' and '_'")
            continue
        try:
            found[name] = msgspec.convert(table, ProviderSettings)
        except msgspec.ValidationError as error:
            problems.append(f"{PROVIDERS_KEY}.{name} ignored: {error}")
    return found, tuple(problems)
