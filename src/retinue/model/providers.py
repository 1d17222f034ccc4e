"""Providers of language models and their models, as users configure them and as they are listed."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


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
    """The variable that makes it usable, or the address of a server without a key; None if it cannot be used."""
    missing: str | None
    """The reason why it cannot be used, with what to do; None if it can."""
    is_chosen: bool
    """Whether a run that names no model uses it."""


NonEmpty = Annotated[str, Meta(min_length=1)]


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[providers.NAME]` of the user's settings."""

    base_url: Annotated[str, Meta(pattern=r"^https?://[^/@\s]+(/\S*)?$")] | None = None
    """Without a user name or password: it is printed."""
    key_variable: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable with the key; a provider of the user's own needs none without it."""
    wire: Literal["openai-chat", "openai-responses", "anthropic", "gemini"] | None = None
    """The API it speaks; `openai-chat` if absent."""
    default_model: NonEmpty | None = None
    context_window: Annotated[int, Meta(ge=1)] | None = None
    """Tokens its models take, where the price lists do not know them."""
