"""The `retinue` command: what there is to type, and how it ends whatever happens.

Exit codes: 0 completed; 1 failed; 2 refused before anything ran; 124 the only failure was a timeout; 130 cancelled.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from retinue import __version__
from retinue.frontends.cli.lazy import Entry, LazyGroup

DEBUG = "RETINUE_DEBUG"
"""Set to show the traceback of an error that should not happen."""

SECTIONS = {
    "Dispatch agents": {
        "run": Entry("run:run", "Give one agent one task and print its answer."),
        "delegate": Entry("delegate:delegate", "Give many agents a task each, several at once."),
        "chain": Entry("chain:chain", "Give agents one task after another, passing answers on."),
        "demo": Entry("demo:demo", "See five agents at work here: no key, no network."),
    },
    "What there is": {
        "agents": Entry("agents:agents", "List, show, check, accept and begin agents."),
        "sessions": Entry("sessions:sessions", "List, read, continue and forget earlier runs."),
        "events": Entry("events:events", "Print what happened in a conversation, as JSON lines."),
        "doctor": Entry("doctor:doctor", "Show engines, settings and what is wrong, with what to do."),
    },
    "For programs": {
        "call": Entry("call:call", "Call a surface's tool with JSON and print its result."),
        "tools": Entry("tools:tools", "Show a surface's tools as a host would register them."),
        "completion": Entry("completion:completion", "Print the completion script of a shell."),
    },
}

SUBSTITUTES = {
    "→": ">", "•": "*", "✓": "+", "✗": "x", "…": ".", "○": "o", "—": "-", "“": '"', "”": '"',
    **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
}  # fmt: skip
"""For streams that cannot write these; one column each, as they have."""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Begin with `retinue demo`. Each command has its own help: `retinue run --help`.",
)
@click.version_option(__version__, message="retinue %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Dispatch agents: bounded, watched, remembered, on any engine."""
    if "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        ctx.color = False
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return
    try:
        os.getcwd()  # noqa: PTH109 - only whether there is one
    except OSError as error:
        raise click.UsageError(
            f"The current directory cannot be used ({error.strerror}). Change to another."
        ) from error


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command of the arguments, the process's own by default, and ends the process with its exit code."""
    _settle_streams()
    code = _status(arguments)
    sys.exit(_flushed(code))


def _status(arguments: Sequence[str] | None) -> int:
    try:
        return root.main(arguments, prog_name="retinue", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Cancelled.", err=True)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:  # noqa: BLE001 - the last place where anyone could say something useful
        _tell(error)
        return 1


def _tell(error: Exception) -> None:
    """One sentence about an error that should not happen; the whole of it for whoever asks."""
    if os.environ.get(DEBUG):
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True)
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    what = f"{type(cause).__name__}: {cause}".rstrip(": ")
    click.echo(
        f"Something unexpected went wrong ({what}). What ran was kept: see `retinue sessions list`. "
        f"Set {DEBUG}=1 to see where it happened.",
        err=True,
    )


def _settle_streams() -> None:
    """Makes every stream take every character: where its encoding lacks one, something like it is written."""
    codecs.register_error("retinue", _substitute)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="retinue")


def _substitute(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(SUBSTITUTES.get(character, "?") for character in missing), error.end


def _flushed(code: int) -> int:
    """The exit code once everything is written; a reader who left early is no reason to complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            # What could not be written now would be tried, and complained about, once more at exit.
            with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a device, not a path
                os.dup2(nowhere.fileno(), stream.fileno())
            if not isinstance(error, BrokenPipeError):
                click.echo(f"Not all could be written: {error.strerror}.", err=True)
                code = code or 1
    return code
