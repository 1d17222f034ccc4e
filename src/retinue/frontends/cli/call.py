"""`retinue call`: one tool of a surface, for programs. Prints its result as one JSON object whatever happens."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from retinue.app import Retinue
from retinue.frontends.cli.helping import did_you_mean, examples
from retinue.frontends.cli.inputs import MAX_JSON_BYTES, Unreadable, text_of
from retinue.frontends.cli.options import EXIT_CODES, Options, run_options
from retinue.frontends.cli.talk import answer_json
from retinue.frontends.cli.work import at_work, opened
from retinue.output.frame import plain
from retinue.surfaces.base import REFUSED, ToolResult


@click.command(
    epilog=examples(
        """retinue call subagent '{"agent": "explorer", "task": "Where is main?"}'""",
        "retinue call subagent @input.json --surface single --stream",
        then=EXIT_CODES,
    )
)
@click.argument("tool")
@click.argument("json", required=False, default="")
@click.option("--surface", default="single", show_default=True, help="Whose tool it is.")
@click.option("--stream", is_flag=True, help="Print each partial result as a line first.")
@run_options
@click.pass_context
def call(ctx: click.Context, tool: str, json: str, surface: str, stream: bool, options: Options) -> None:
    """Call a surface's tool with JSON and print its result.

    JSON is the object itself, - for stdin, or @FILE. On stdout stands exactly the tool's result, as one JSON object:
    content, details, and isError where the surface's own system throws.
    """
    retinue = opened(options)
    arguments = _decoded(json)  # here, not at work: Ctrl-C must reach whoever waits for stdin

    async def answered() -> ToolResult:
        return await _answer(retinue, surface, tool, arguments, stream=stream)

    result = at_work(
        retinue, answered, options, surface=surface if surface in retinue.surfaces else "single", shows_progress=False
    )
    answer_json(result.as_json())
    ctx.exit(result.exit_code)


async def _answer(retinue: Retinue, surface: str, tool: str, arguments: Any, *, stream: bool) -> ToolResult:
    if surface not in retinue.surfaces:
        return _nobody(f"Unknown surface: {surface}.", surface, "Surfaces", retinue.surfaces)
    family = retinue.surface(surface)
    run = family.calls.get(tool)
    if run is None:
        return _nobody(f"Unknown tool: {tool}.", tool, f"Tools of {surface}", tuple(family.calls))
    if isinstance(arguments, Unreadable):
        return family.unreadable(tool, str(arguments))
    return await run(arguments, retinue.call(surface), _print_partial if stream else None)


def _decoded(given: str) -> Any:
    """The input, or why there is none."""
    try:
        return msgspec.json.decode(text_of(given, limit=MAX_JSON_BYTES))
    except Unreadable as problem:
        return problem
    except (msgspec.DecodeError, RecursionError) as error:
        return Unreadable(str(error))


def _print_partial(partial: ToolResult) -> None:
    answer_json(partial.as_json())


def _nobody(sentence: str, asked: str, title: str, known: tuple[str, ...]) -> ToolResult:
    """The answer where there is no tool to give one."""
    message = f"{sentence}{did_you_mean(asked, known)} {title}: {', '.join(known)}"
    return ToolResult(text=plain(message), details={}, is_error=True, exit_code=REFUSED)
