"""Parts of Claude Code's messages, read leniently: what is missing or of another kind counts as nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retinue.engines.json_lines import number_of, text_of_blocks
from retinue.types import Usage


def usage_of(value: Any, before: Usage = Usage()) -> Usage:  # noqa: B008 - it is frozen
    """What one message used. A later count replaces an earlier one, as far as it says anything."""
    said = value if isinstance(value, dict) else {}
    return Usage(
        input=number_of(said.get("input_tokens")) or before.input,
        output=number_of(said.get("output_tokens")) or before.output,
        cache_read=number_of(said.get("cache_read_input_tokens")) or before.cache_read,
        cache_write=number_of(said.get("cache_creation_input_tokens")) or before.cache_write,
        turns=1,
    ).credible()


def cost_of(result: Mapping[str, Any]) -> float | None:
    """What a run cost in dollars; None where Claude Code does not know the price of a model it used.

    Not its total, which goes on counting when a session is resumed.
    """
    used = result.get("model_usage_since_last_result")
    models = list(used.values()) if isinstance(used, dict) else []
    costs = [_cost(model) for model in models]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def _cost(model: Any) -> float | None:
    if not isinstance(model, dict) or model.get("costBasis") == "unknown":
        return None
    cost = model.get("costUSD")
    return float(cost) if isinstance(cost, int | float) else None


def content_of(content: Any) -> str:
    """The text of a result."""
    if isinstance(content, str):
        return content
    return text_of_blocks(content)
