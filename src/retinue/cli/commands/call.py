"""`retinue call`: call one tool of a toolset and always print its result as one JSON object."""

from __future__ import annotations

from threading import Lock, Thread
from typing import Any

import anyio
import anyio.to_thread
import click
import msgspec

from retinue.cli.exit import refused_call_result
from retinue.cli.group import SectionedCommand
from retinue.cli.main import EXIT_CANCELLED
from retinue.cli.options import (
    EXIT_CODES,
    HOST_ID,
    MAX_JSON_BYTES,
    InvalidInputError,
    RunOptions,
    decode_json,
    for_users_only,
    read_text_argument,
    run_options,
)
from retinue.cli.printing import OutputError, encode_json_line, help_examples, print_json_line
from retinue.cli.run_output import hint_stored_answers
from retinue.cli.runner import live_view, make_retinue, restore_signal_handlers, run_watched
from retinue.client import Retinue
from retinue.support.formatting import unknown_name_message
from retinue.toolsets.base import ToolResult

PRINT_TIMEOUT = 2.0
"""Seconds a reader has for the result of a cancelled call: the caller that cancelled it waits."""


@click.command(
    cls=SectionedCommand,
    epilog=help_examples(
        """retinue call subagent '{"agent": "explorer", "task": "Where is main?"}'""",
        "retinue call subagent @input.json --toolset single --stream",
        then=EXIT_CODES,
    ),
)
@click.argument("tool")
@click.argument("json", required=False, default="")
@click.option("--toolset", default="single", show_default=True, metavar="NAME", help="Toolset of the tool.")
@click.option("--stream", is_flag=True, help="Print each partial result as a line first.")
@click.option(
    "--root",
    type=HOST_ID,
    metavar="ID",
    help="The host's conversation that the runs belong to.  [default: a new one]",
)
@click.option("--tool-call", type=HOST_ID, metavar="ID", help="The host's id of this call.")
@run_options
@click.pass_context
@for_users_only
def call(
    ctx: click.Context,
    /,
    tool: str,
    json: str,
    toolset: str,
    stream: bool,
    root: str | None,
    tool_call: str | None,
    **flags: Any,
) -> None:
    """Call a toolset's tool with JSON and print its result.

    JSON is the object itself, - for stdin, or @FILE. The tool's result is printed on stdout as one JSON object:
    content, details, and isError if the original tool would throw. Events contain the ids passed with --root and
    --tool-call.
    """
    options = RunOptions(**flags)
    retinue = make_retinue(options, root=root)
    arguments = _decode_arguments(json)  # before the event loop: Ctrl-C must interrupt reading stdin
    printer = ResultPrinter()

    async def call_tool() -> ToolResult:
        return await _call_tool(retinue, toolset, tool, arguments, tool_call, printer if stream else None)

    known_toolset = toolset if toolset in retinue.toolsets else "single"
    with live_view(retinue, known_toolset, options, shows_progress=False) as view, restore_signal_handlers():
        result = anyio.run(run_watched, retinue, call_tool, view, known_toolset, options)
    with hint_stored_answers(_find_session_ids(result)):
        printer.print_final(result)
    ctx.exit(result.exit_code)


def _find_session_ids(result: ToolResult) -> list[str]:
    """Return the session ids in the details of a result, under the keys of all toolsets."""
    details = (result.details, *result.details.get("results", ()))
    ids = (one.get(name) for one in details for name in ("runId", "sessionId", "subagentId"))
    return [str(found) for found in (*ids, *result.details.get("sessionIds", ())) if found]


async def _call_tool(
    retinue: Retinue, toolset: str, tool: str, arguments: Any, tool_call: str | None, printer: ResultPrinter | None
) -> ToolResult:
    if toolset not in retinue.toolsets:
        return refused_call_result(unknown_name_message("toolset", toolset, retinue.toolsets))
    family, caller = retinue.toolset(toolset), retinue.call(toolset, parent_call=tool_call)
    run = family.handlers.get(tool)
    if run is None:
        return refused_call_result(unknown_name_message("tool", tool, family.handlers, f"Tools of {toolset}"))
    if isinstance(arguments, InvalidInputError):
        return family.invalid_json_result(tool, arguments.message, caller)
    return await run(arguments, caller, printer.print_partial if printer else None)


def _decode_arguments(argument: str) -> Any:
    """Return the decoded arguments, or the error if they are invalid."""
    try:
        text = read_text_argument(argument, limit=MAX_JSON_BYTES)
        return decode_json(text) if text.strip() else InvalidInputError("no input: pass {…}, - or @FILE")
    except InvalidInputError as problem:
        return problem
    except (msgspec.DecodeError, RecursionError) as error:
        return InvalidInputError(str(error))


class ResultPrinter:
    """Prints results as whole lines; a reader that does not read delays the final one, never the run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_closed = False

    async def print_partial(self, result: ToolResult) -> None:
        """Print a partial result, in a thread that is abandoned when the call is cancelled.

        Raises:
            OSError: stdout is closed or cannot be written.
        """
        await anyio.to_thread.run_sync(self._print, encode_json_line(result.as_json()), abandon_on_cancel=True)

    def _print(self, line: bytes) -> None:
        with self._lock:
            if self._is_closed:
                return
            try:
                print_json_line(line)
            except OutputError as error:
                raise OSError(error.message) from error

    def print_final(self, result: ToolResult) -> None:
        """Print the final result; nothing is printed after it.

        Raises:
            OutputError: stdout cannot be written.
        """
        self._is_closed = True
        faults: list[Exception] = []
        writing = Thread(target=self._print_last, args=(encode_json_line(result.as_json()), faults), daemon=True)
        writing.start()
        try:
            writing.join(PRINT_TIMEOUT if result.exit_code == EXIT_CANCELLED else None)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_CANCELLED) from None
        for fault in faults:
            raise fault

    def _print_last(self, line: bytes, faults: list[Exception]) -> None:
        with self._lock:
            try:
                print_json_line(line)
            except (OSError, OutputError) as error:
                faults.append(error)
