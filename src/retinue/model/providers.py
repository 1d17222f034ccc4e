"""Providers of language models and their models: as configured, as listed, and how their names are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
TokenCount = Annotated[int, Meta(ge=1)]


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table `[providers.NAME]` of the user's settings."""

    base_url: Annotated[str, Meta(pattern=r"^https?://[^/@\s]+(/\S*)?$")] | None = None
    """Without a user name or password: it is printed."""
    key_variable: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Environment variable with the key; a provider of the user's own needs none without it."""
    wire: Literal["openai-chat", "openai-responses", "anthropic", "gemini"] | None = None
    """The API it speaks; `openai-chat` if absent."""
    default_model: NonEmpty | None = None
    context_window: TokenCount | dict[str, TokenCount] | None = None
    """Tokens its models take, all or each by name, where the price lists do not know them."""


THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
"""How much a model thinks before it answers; every engine maps them to its own names."""
CLAUDE_ALIASES = ("sonnet", "opus", "haiku")
"""Names that Claude Code's agent files use for Anthropic's models."""
MAX_MODEL_CHARS = 200
MODEL_FAMILIES: Mapping[str, tuple[str, ...]] = {
    r"(?:claude|sonnet|opus|haiku)\b.*": ("anthropic",),
    r"(?:gpt|chatgpt|codex|o\d)\b.*": ("openai", "openai-codex", "github-copilot"),
    r"gemini\b.*": ("google", "google-vertex"),
    r"grok\b.*": ("xai",),
    r"deepseek\b.*": ("deepseek",),
    r"(?:mistral|codestral|devstral|magistral)\b.*": ("mistral",),
}
"""Models by the start of their names, and the providers that have them."""

_SEPARATOR = re.compile("[/:]")
_THINKING_SUFFIX = re.compile(f":(?:{'|'.join(THINKING_LEVELS)})$")
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


def find_family(model: str) -> tuple[str, ...]:
    """Return the providers that have the models with such a name; empty if the name does not tell."""
    families = (names for start, names in MODEL_FAMILIES.items() if re.fullmatch(start, model, re.IGNORECASE))
    return next(families, ())


def same_model(one: str | None, other: str | None) -> bool:
    """Return whether two spellings name one model.

    `local/scripted-1` and `local:scripted-1` are equal. A name without a provider equals that name of any provider.
    The case of letters and a thinking level at the end (`scripted-1:low`) do not count.
    """
    if not one or not other:
        return not one and not other
    first, second = _plain(one), _plain(other)
    return normalize_model(one) == normalize_model(other) or first == _bare(second) or second == _bare(first)


def find_listed_model(model: str, patterns: Sequence[str]) -> str | None:
    """Return the model as an engine takes it if a pattern such as `anthropic/*` covers it; None if none does.

    A name without a provider is not one of any provider's: only the aliases of Claude files are, of Anthropic's.
    """
    spellings = (model, f"anthropic/{model}") if model in CLAUDE_ALIASES else (model,)
    return next((name for name in spellings if any(covers_model(each, name) for each in patterns)), None)


def covers_model(pattern: str, model: str) -> bool:
    """Return whether a pattern covers a model, or all that another pattern covers; `*` stands for any text.

    A pattern without a provider covers the models of this name of every provider.
    """
    wanted, name = normalize_model(pattern), normalize_model(model)
    return _matches(wanted, name) or ("/" not in wanted and _matches(f"*/{wanted}", name))


def normalize_model(model: str | None) -> str:
    """Return one spelling for all spellings of a model with its provider; empty without a model."""
    return _SEPARATOR.sub("/", _plain(model or ""), count=1)


def _matches(pattern: str, text: str) -> bool:
    """Return whether the text matches; no regular expression, since both may come from a project or a model."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *middle, last = others
    position, end = len(first), len(text) - len(last)
    if position > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        found = text.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


def _plain(model: str) -> str:
    return _THINKING_SUFFIX.sub("", model.strip().casefold())


def _bare(plain: str) -> str | None:
    """Return the name without its provider; None where it still contains one, as `openrouter/qwen/qwen3` does."""
    name = normalize_model(plain).partition("/")[2]
    return name if name and "/" not in name else None
