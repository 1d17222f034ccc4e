"""How a command ends that cannot go on: one sentence, in the form that was asked for.

On stderr for a person. On stdout, too, where a program reads: `{status: "refused", …}` after `--json`, and for
`retinue call` the one object it always prints.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import click
from msgspec import Struct

from retinue.frontends.cli.main import is_call, is_one_run
from retinue.frontends.cli.results import refusal_json, refused_run_json
from retinue.frontends.cli.talk import Unwritable, answer_json, fault, note, sayable
from retinue.surfaces.base import REFUSED, ToolResult
from retinue.types import Code, Failure, Refused, Task

DEBUG = "RETINUE_DEBUG"
"""Set to show the traceback of an error that should not happen."""
FAILED = 1


class Declined(click.ClickException):
    """Nothing was done: the failure says why, the hints what may help."""

    exit_code = REFUSED

    def __init__(self, failure: Failure, *hints: str, task: Task | None = None) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.hints = hints
        self.task = task
        """What the one run of the command was to do."""


class _Ending(Struct, frozen=True):
    exit_code: int
    sentence: str
    failure: Failure | None = None
    """Why nothing was done; None if something may have been."""


def told(error: Exception, typed: Sequence[str]) -> int:
    """Tells why a command could not go on; the exit code of it."""
    if isinstance(error, BrokenPipeError):
        return FAILED  # whom to tell?
    if isinstance(error, Unwritable):
        fault(error.message)
        return error.exit_code
    ending = _ending(error)
    if is_call(typed):
        answer_json(no_answer(ending.sentence).as_json())
    elif ending.failure and "--json" in typed:
        if is_one_run(typed):
            answer_json(refused_run_json(ending.failure, getattr(error, "task", None)))
        else:
            answer_json(refusal_json(ending.failure, ending.exit_code))
    _show(error, ending.sentence)
    return ending.exit_code


def no_answer(sentence: str) -> ToolResult:
    """The result of a call that reached no tool."""
    return ToolResult(text=sayable(sentence), details={}, is_error=True, exit_code=REFUSED)


def _ending(error: Exception) -> _Ending:
    match error:
        case Declined():
            return _Ending(error.exit_code, error.message, error.failure)
        case Refused():
            return _Ending(REFUSED, error.failure.message, error.failure)
        case click.ClickException():
            sentence = error.format_message()
            return _Ending(error.exit_code, sentence, Failure(Code.INVALID_INPUT, sentence))
        case _:
            return _Ending(FAILED, _unexpected(error))


def _unexpected(error: Exception) -> str:
    """A sentence about an error that should not happen."""
    cause: BaseException = error
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    what = f"{type(cause).__name__}: {cause}".rstrip(": ")
    return (
        f"Something unexpected went wrong ({what}). What ran was kept: see `retinue sessions list`. "
        f"Set {DEBUG}=1 to see where it happened."
    )


def _show(error: Exception, sentence: str) -> None:
    if isinstance(error, click.UsageError):
        # Click's own form, with how the command is used before the sentence.
        click.UsageError(sayable(sentence), error.ctx).show()
        return
    if os.environ.get(DEBUG):
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True)
    fault(sentence)
    for hint in getattr(error, "hints", ()):
        note(hint)
