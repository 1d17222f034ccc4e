"""Names of models: one spelling for a provider and a model, whether they were written apart or joined."""

from __future__ import annotations

import re

_SEPARATOR = re.compile("[/:]")
_THINKING_SUFFIX = re.compile(":(?:off|minimal|low|medium|high|xhigh|max)$")
"""pi accepts a thinking level at the end of a model's name."""


def join_model(provider: str | None, model: str | None) -> str | None:
    """Return `provider/model`, with the provider once; None without a model."""
    if not provider or not model:
        return model or None
    return f"{provider}/{strip_provider(provider, model)}"


def strip_provider(provider: str | None, model: str) -> str:
    """Return the model without the provider it starts with, joined by `/` or `:`."""
    if not provider:
        return model
    start, rest = model[: len(provider)], model[len(provider) :]
    is_joined = start.casefold() == provider.casefold() and rest[:1] in {"/", ":"} and len(rest) > 1
    return rest[1:] if is_joined else model


def same_model(one: str | None, other: str | None) -> bool:
    """Return whether two spellings name one model.

    `local/scripted-1` and `local:scripted-1` are equal. A name without a provider equals that name of any provider.
    The case of letters and a thinking level at the end (`scripted-1:low`) do not count.
    """
    if not one or not other:
        return not one and not other
    first, second = _plain(one), _plain(other)
    return normalize_model(one) == normalize_model(other) or first == _bare(second) or second == _bare(first)


def normalize_model(model: str | None) -> str:
    """Return one spelling for all spellings of a model with its provider; empty without a model."""
    return _SEPARATOR.sub("/", _plain(model or ""), count=1)


def _plain(model: str) -> str:
    return _THINKING_SUFFIX.sub("", model.strip().casefold())


def _bare(plain: str) -> str | None:
    """Return the name without its provider; None where it still contains one, as `openrouter/qwen/qwen3` does."""
    name = normalize_model(plain).partition("/")[2]
    return name if name and "/" not in name else None
