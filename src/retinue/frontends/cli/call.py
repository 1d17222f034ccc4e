"""`retinue call`: one tool of a surface, for programs. Prints its result as one JSON object whatever happens."""

from __future__ import annotations

from threading import Lock, Thread
from typing import Any

import anyio.to_thread
import click
import msgspec

from retinue.app import Retinue
from retinue.frontends.cli.endings import no_answer
from retinue.frontends.cli.inputs import MAX_JSON_BYTES, Unreadable, decode_json, text_of
from retinue.frontends.cli.main import CANCELLED
from retinue.frontends.cli.opening import opened
from retinue.frontends.cli.options import EXIT_CODES, HOST_ID, Options, run_options
from retinue.frontends.cli.outcome import kept
from retinue.frontends.cli.talk import Unwritable, answer_line, examples, json_line
from retinue.frontends.cli.work import at_work
from retinue.frontends.wording import unknown
from retinue.surfaces.base import ToolResult

PATIENCE = 2.0
"""Seconds a reader has for the result of a call that was cancelled: whoever cancelled it waits."""


@click.command(
    epilog=examples(
        """retinue call subagent '{"agent": "explorer", "task": "Where is main?"}'""",
        "retinue call subagent @input.json --surface single --stream",
        then=EXIT_CODES,
    )
)
@click.argument("tool")
@click.argument("json", required=False, default="")
@click.option("--surface", default="single", show_default=True, metavar="NAME", help="Whose tool it is.")
@click.option("--stream", is_flag=True, help="Print each partial result as a line first.")
@click.option(
    "--root", type=HOST_ID, metavar="ID", help="The host's conversation it belongs to; a new one if not given."
)
@click.option("--tool-call", type=HOST_ID, metavar="ID", help="The host's own id of this call.")
@run_options
@click.pass_context
def call(
    ctx: click.Context,
    tool: str,
    json: str,
    surface: str,
    stream: bool,
    root: str | None,
    tool_call: str | None,
    options: Options,
) -> None:
    """Call a surface's tool with JSON and print its result.

    JSON is the object itself, - for stdin, or @FILE. On stdout stands exactly the tool's result, as one JSON object:
    content, details, and isError where the surface's own system throws. Events carry the ids that are given.
    """
    retinue = opened(options, root=root)
    arguments = _decoded(json)  # here, not at work: Ctrl-C must reach whoever waits for stdin
    printer = Printer()

    async def answered() -> ToolResult:
        return await _answer(retinue, surface, tool, arguments, tool_call, printer if stream else None)

    result = at_work(
        retinue, answered, options, surface=surface if surface in retinue.surfaces else "single", shows_progress=False
    )
    with kept(_sessions(result)):
        printer.end(result)
    ctx.exit(result.exit_code)


def _sessions(result: ToolResult) -> list[str]:
    """The sessions of which a result tells, as its surface spells them."""
    told = (result.details, *result.details.get("results", ()))
    ids = (one.get(name) for one in told for name in ("runId", "sessionId", "subagentId"))
    return [str(found) for found in (*ids, *result.details.get("sessionIds", ())) if found]


async def _answer(
    retinue: Retinue, surface: str, tool: str, arguments: Any, tool_call: str | None, printer: Printer | None
) -> ToolResult:
    if surface not in retinue.surfaces:
        return no_answer(unknown("surface", surface, retinue.surfaces))
    family, caller = retinue.surface(surface), retinue.call(surface, parent_call=tool_call)
    run = family.calls.get(tool)
    if run is None:
        return no_answer(unknown("tool", tool, family.calls, f"Tools of {surface}"))
    if isinstance(arguments, Unreadable):
        return family.unreadable(tool, arguments.message, caller)
    return await run(arguments, caller, printer.partial if printer else None)


def _decoded(given: str) -> Any:
    """The input, or why there is none."""
    try:
        text = text_of(given, limit=MAX_JSON_BYTES)
        return decode_json(text) if text.strip() else Unreadable("nothing was given: write {…}, - or @FILE")
    except Unreadable as problem:
        return problem
    except (msgspec.DecodeError, RecursionError) as error:
        return Unreadable(str(error))


class Printer:
    """Prints results as whole lines. A reader who does not read holds up the last of them, never the run."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._is_over = False

    async def partial(self, result: ToolResult) -> None:
        """Prints a partial result, in a thread that is left behind if it has to wait too long.

        Raises:
            OSError: nobody reads any more, or nothing can be written.
        """
        await anyio.to_thread.run_sync(self._print, json_line(result.as_json()), abandon_on_cancel=True)

    def _print(self, line: bytes) -> None:
        with self._turn:
            if self._is_over:
                return
            try:
                answer_line(line)
            except Unwritable as error:
                raise OSError(error.message) from error

    def end(self, result: ToolResult) -> None:
        """Prints the result, after which there is nothing more to print.

        Raises:
            Unwritable: it could not be.
        """
        self._is_over = True
        faults: list[Exception] = []
        writing = Thread(target=self._print_last, args=(json_line(result.as_json()), faults), daemon=True)
        writing.start()
        try:
            writing.join(PATIENCE if result.exit_code == CANCELLED else None)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(CANCELLED) from None
        for fault in faults:
            raise fault

    def _print_last(self, line: bytes, faults: list[Exception]) -> None:
        with self._turn:
            try:
                answer_line(line)
            except (OSError, Unwritable) as error:
                faults.append(error)
