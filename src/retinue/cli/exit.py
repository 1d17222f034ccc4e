"""Report the error of a command in one sentence on stderr and, for programs, as JSON on stdout.

After `--json` stdout gets `{status: "refused", …}`; `retinue call` prints the one object it always prints.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
from click.exceptions import NoArgsIsHelpError
from msgspec import Struct

from retinue.cli.json_output import refusal_json, refused_run_json
from retinue.cli.main import is_call_command, is_one_run
from retinue.cli.options import CommandRefusedError
from retinue.cli.printing import OutputError, make_printable, print_error, print_json, print_tip
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.results import REFUSED_EXIT_CODE
from retinue.support.formatting import find_similar_word
from retinue.support.own_process import DEBUG_VARIABLE
from retinue.toolsets.base import ToolResult

COLOR_OPTION = "--color"
"""An option of `retinue` that is often written after the command."""

EXIT_FAILED = 1


class _CommandExit(Struct, frozen=True):
    exit_code: int
    sentence: str
    failure: Failure | None = None
    """The reason why nothing was done; None if something may have run."""


def report_error(error: Exception, typed: Sequence[str], color: bool | None = None) -> int:
    """Report why a command failed, with or without `color`, and return its exit code."""
    # The context of the command is closed: one of its own carries the choice of colors.
    with click.Context(click.Command("retinue"), color=color):
        return _report(error, typed)


def _report(error: Exception, typed: Sequence[str]) -> int:
    if isinstance(error, BrokenPipeError):
        return EXIT_FAILED  # nobody reads
    if isinstance(error, NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return error.exit_code
    if isinstance(error, OutputError):
        print_error(error.message)
        return error.exit_code
    command_exit = _classify_error(error)
    if is_call_command(typed):
        print_json(refused_call_result(command_exit.sentence).as_json())
    elif command_exit.failure and "--json" in typed:
        if is_one_run(typed):
            print_json(refused_run_json(command_exit.failure, getattr(error, "task", None)))
        else:
            print_json(refusal_json(command_exit.failure, command_exit.exit_code))
    _print_error(error, command_exit.sentence)
    return command_exit.exit_code


def refused_call_result(sentence: str) -> ToolResult:
    """Return the result of a call that reached no tool."""
    return ToolResult(text=make_printable(sentence), details={}, is_error=True, exit_code=REFUSED_EXIT_CODE)


def _classify_error(error: Exception) -> _CommandExit:
    match error:
        case CommandRefusedError():
            return _CommandExit(error.exit_code, error.message, error.failure)
        case RefusedError():
            return _CommandExit(REFUSED_EXIT_CODE, error.failure.message, error.failure)
        case click.NoSuchOption():
            near = find_similar_word(error.option_name, error.possibilities or ())
            sentence = f"No such option '{error.option_name}'." + (f" Did you mean `{near}`?" if near else "")
            return _CommandExit(error.exit_code, sentence, Failure(ErrorCode.INVALID_INPUT, sentence))
        case click.MissingParameter():
            sentence = " ".join(error.format_message().split())
            return _CommandExit(error.exit_code, sentence, Failure(ErrorCode.INVALID_INPUT, sentence))
        case click.ClickException():
            sentence = error.format_message()
            return _CommandExit(error.exit_code, sentence, Failure(ErrorCode.INVALID_INPUT, sentence))
        case _:
            return _CommandExit(EXIT_FAILED, _describe_unexpected(error))


def _describe_unexpected(error: Exception) -> str:
    """Return the sentence for an unexpected error."""
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    what = f"{type(cause).__name__}: {cause}".rstrip(": ")
    return (
        f"Internal error ({what}). Sessions were kept: `retinue sessions list`. Set {DEBUG_VARIABLE}=1 for a "
        "traceback."
    )


def _print_error(error: Exception, sentence: str) -> None:
    if os.environ.get(DEBUG_VARIABLE) and not isinstance(error, click.ClickException):
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    print_error(sentence)
    for hint in getattr(error, "hints", ()):
        print_tip(hint)
    if isinstance(error, click.NoSuchOption) and error.option_name == COLOR_OPTION:
        print_tip(f"Write {COLOR_OPTION} before the command: `retinue {COLOR_OPTION} never sessions`.")
