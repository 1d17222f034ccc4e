"""Providers of language models and their models, as they are listed to users."""

from __future__ import annotations

from msgspec import Struct


class KnownModel(Struct, frozen=True, kw_only=True, rename="camel"):
    """A model with what is known about it; None where a fact is unknown."""

    name: str
    """As the provider spells it."""
    context_window: int | None = None
    """Tokens the model takes."""
    input_price: float | None = None
    """Dollars per million input tokens."""
    output_price: float | None = None
    """Dollars per million output tokens."""


class ProviderStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """A provider, its default model, and whether it can be used."""

    name: str
    model: KnownModel | None
    """The model that is used if only the provider is named; None if a model must be named, too."""
    configured_by: str | None
    """The variable that makes it usable; None if none of them is set."""
    missing: str | None
    """The reason why it cannot be used, with what to do; None if it can."""
    is_chosen: bool
    """Whether a run that names no model uses it."""
