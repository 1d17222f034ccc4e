"""`retinue models`: list the providers that the api engine can call, or the known models of one."""

from __future__ import annotations

from collections.abc import Sequence

import click

from retinue.cli.commands.completion import complete_providers
from retinue.cli.json_output import to_json
from retinue.cli.options import TEXT, cwd_option, json_option
from retinue.cli.printing import (
    Cell,
    StyledCell,
    help_examples,
    print_hint,
    print_json,
    print_lines,
    render_table,
    stdout_columns,
)
from retinue.client import Retinue
from retinue.engines.base import EngineInfo
from retinue.model.providers import KnownModel, ProviderStatus
from retinue.support.formatting import unknown_name_message

UNKNOWN = "-"
NONE_READY = (
    "No provider can be used yet. Set the key of a provider, e.g. `export ANTHROPIC_API_KEY=…`, then run "
    "`retinue models` again."
)


@click.command(
    epilog=help_examples(
        "retinue models",
        "retinue models anthropic",
        'retinue run explorer "Where is …?" --model openai/gpt-6.1-terra',
        then="Exit codes: 0 listed, 2 unknown provider.",
    )
)
@click.argument("provider", required=False, type=TEXT, shell_complete=complete_providers)
@json_option
@cwd_option
def models(provider: str | None, as_json: bool, cwd: str | None) -> None:
    """List the providers and models of the api engine.

    Without PROVIDER: every provider with its default model, whether it can be used here or which variable to set;
    (default) is the one that a run without --model uses. A wide terminal also shows prices. With PROVIDER: its
    models in the price lists of genai-prices, or those that a server without a key lists; others can be named, too.
    Prices are in dollars per million tokens.
    """
    retinue = Retinue(cwd=cwd)
    engines = [kind for kind in retinue.engines.values() if kind.list_providers]
    setting = retinue.settings("single").settings.model
    found = [each for kind in engines if kind.list_providers for each in kind.list_providers(setting)]
    if provider is not None:
        _print_models(provider, engines, found, as_json=as_json)
    elif as_json:
        print_json({"providers": to_json(found)})
    else:
        print_lines(_render_providers(found))
        for kind in engines:
            if kind.describe_other_providers:
                print_hint(kind.describe_other_providers())
        if all(each.missing for each in found):
            print_hint(NONE_READY)
        elif setting:
            print_hint(f"A run without --model uses {setting}, the setting model.")


def _print_models(
    provider: str, engines: list[EngineInfo], providers: list[ProviderStatus], *, as_json: bool
) -> None:
    listings = (kind.list_models(provider) for kind in engines)
    found = next((listing for listing in listings if listing is not None), None)
    if found is None:
        raise click.UsageError(unknown_name_message("provider", provider, [each.name for each in providers]))
    if as_json:
        print_json({"provider": provider, "models": to_json(found)})
    elif found:
        rows: Sequence[Sequence[Cell]] = [["MODEL", *FACTS, ""], *([*_model_cells(each), ""] for each in found)]
        print_lines(render_table(rows, has_headings=True))
    else:
        missing = next((f"; {each.missing}" for each in providers if each.name == provider and each.missing), "")
        advice = f"choose one with --model {provider}/MODEL{missing}"
        print_hint(f"The models of {provider} are not in the price lists: {advice}.")


FACTS = ("CONTEXT", "INPUT", "OUTPUT")
HEADINGS = ["", "PROVIDER", "DEFAULT MODEL", *FACTS, "USABLE"]
MIN_FACTS_COLUMNS = 110
"""Width of a terminal from which the list of providers has the facts of their default models."""


def _render_providers(providers: Sequence[ProviderStatus]) -> list[str]:
    """Render one line per provider."""
    is_wide = stdout_columns() >= MIN_FACTS_COLUMNS
    rows: list[list[Cell]] = [[*HEADINGS], *(_provider_row(each, is_wide=is_wide) for each in providers)]
    return render_table(rows if is_wide else [[*row[:3], row[-1]] for row in rows], has_headings=True)


def _provider_row(provider: ProviderStatus, *, is_wide: bool) -> list[Cell]:
    missing = provider.missing or ""
    chosen = " (default)" if provider.is_chosen else ""
    return [
        StyledCell("✗", "red") if missing else StyledCell("✓", "green"),
        StyledCell(provider.name, "cyan"),
        *(_model_cells(provider.model) if provider.model else [UNKNOWN] * 4),
        StyledCell(missing if is_wide else missing.partition(" or ")[0], "bright_black")
        if missing
        else StyledCell(f"by {provider.configured_by}{chosen}", "green"),
    ]


def _model_cells(model: KnownModel) -> list[str]:
    window = f"{model.context_window:,}" if model.context_window else UNKNOWN
    return [model.name, window, _format_price(model.input_price), _format_price(model.output_price)]


def _format_price(dollars: float | None) -> str:
    return UNKNOWN if dollars is None else f"${dollars:g}"
