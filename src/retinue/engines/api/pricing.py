"""Prices and context windows of models, from genai-prices; it is imported on first use, in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from msgspec import structs

from retinue.model.providers import KnownModel
from retinue.model.results import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, TieredPrices

PRICE_LISTS: Mapping[str, str] = {
    "xai": "x-ai",
    "bedrock": "aws",
    "bedrock-mantle": "aws",
    "google-cloud": "google",
    "azure-responses": "azure",
}
"""Names of providers in the price lists, where they differ from ours."""
PRICED_OUTPUT = 1000
"""Tokens of a reply from which the price of one is computed."""
FREE_PROVIDERS = frozenset({"ollama"})
"""Providers on the user's own machine."""


class PriceList:
    """The price lists of an engine; they are imported in a thread while the first reply is streamed."""

    def __init__(self, group: TaskGroup) -> None:
        self._group = group
        self._is_loading = False
        self._loaded = anyio.Event()

    async def find_window(self, provider: str, model: str, *, wait: bool) -> int | None:
        """Return the context window of a model, or None if it is unknown, or not loaded and not to be waited for."""
        if wait:
            self.start_loading()
            await self._loaded.wait()
        return find_context_window(provider, model) if self._loaded.is_set() else None

    def start_loading(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            self._group.start_soon(self._load)

    async def _load(self) -> None:
        await anyio.to_thread.run_sync(_import_prices, abandon_on_cancel=True)
        self._loaded.set()

    async def add_cost(self, usage: Usage, provider: str, model: str) -> Usage:
        """Return the usage with its cost in dollars, unless it is stated or cannot be known."""
        if usage.cost is not None:
            return usage
        if provider in FREE_PROVIDERS:
            return structs.replace(usage, cost=0.0)
        if not (usage.input or usage.output or usage.cache_read or usage.cache_write):
            return usage  # the provider gave no counts, or invalid ones: a reply without tokens does not exist
        self.start_loading()
        await self._loaded.wait()
        cost = compute_cost(usage, provider, model)
        return usage if cost is None else structs.replace(usage, cost=cost)

    async def find_token_prices(self, provider: str, model: str, input_tokens: int) -> tuple[float, float]:
        """Return the dollars for a token of a request of this size and of its reply; 0 if free or unknown."""
        if provider in FREE_PROVIDERS:
            return 0.0, 0.0
        self.start_loading()
        await self._loaded.wait()
        plain = compute_cost(Usage(input=input_tokens), provider, model)
        with_output = compute_cost(Usage(input=input_tokens, output=PRICED_OUTPUT), provider, model)
        if plain is None or with_output is None:
            return 0.0, 0.0
        # A provider may take more for tokens that it writes to its cache.
        cached = compute_cost(Usage(cache_write=input_tokens), provider, model) or 0.0
        return max(plain, cached) / max(input_tokens, 1), (with_output - plain) / PRICED_OUTPUT


def _import_prices() -> None:
    import genai_prices  # noqa: F401 - the import is what takes time


def compute_cost(usage: Usage, provider: str, model: str) -> float | None:
    """Return the price of the tokens in dollars, or None if it is unknown."""
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    priced = PricedUsage(
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read or None,
        cache_write_tokens=usage.cache_write or None,
    )
    try:
        return float(calc_price(priced, model, provider_id=PRICE_LISTS.get(provider, provider)).total_price)
    except (LookupError, ValueError):
        return None


def find_context_window(provider: str, model: str) -> int | None:
    """Return the number of tokens the model takes, or None if it is unknown."""
    found = _find_model(provider, model)
    return found.context_window if found else None


def describe_model(provider: str, model: str, context_window: int | None = None) -> KnownModel:
    """Return the model with its context window, else the given one, and prices, as far as they are known."""
    found = _find_model(provider, model)
    known = _to_known_model(found, model) if found else KnownModel(name=model)
    return structs.replace(known, context_window=known.context_window or context_window)


def list_known_models(provider: str) -> tuple[KnownModel, ...]:
    """Return the models in the provider's price list, by name, without those it has deprecated."""
    from genai_prices.data_snapshot import get_snapshot

    name = PRICE_LISTS.get(provider, provider)
    listed = next((each.models for each in get_snapshot().providers if each.id == name), [])
    models = (_to_known_model(each, each.id) for each in listed if not each.deprecated)
    return tuple(sorted(models, key=lambda model: model.name))


def _to_known_model(found: ModelInfo, name: str) -> KnownModel:
    prices = found.get_prices(datetime.now(UTC))
    return KnownModel(
        name=name,
        context_window=found.context_window,
        input_price=_to_dollars(prices.input_mtok),
        output_price=_to_dollars(prices.output_mtok),
    )


def _to_dollars(price: Decimal | TieredPrices | None) -> float | None:
    """Return a price as a number; of a price with tiers, that of the first one."""
    if price is None:
        return None
    return float(price if isinstance(price, Decimal) else price.base)


@lru_cache(maxsize=256)
def _find_model(provider: str, model: str) -> ModelInfo | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, PRICE_LISTS.get(provider, provider), None)[1]
    except LookupError:
        return None
