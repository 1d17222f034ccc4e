"""`retinue resume`: continue a session with another task."""

from __future__ import annotations

import re
from typing import Any

import anyio
import click

from retinue.cli.commands.completion import complete_sessions
from retinue.cli.group import SectionedCommand
from retinue.cli.options import EXIT_CODES, RunOptions, for_users_only, run_options
from retinue.cli.printing import help_examples
from retinue.cli.session_lookup import LAST, find_session, run_in_session
from retinue.client import Retinue
from retinue.support.formatting import normalize_id

_SESSION_ID = re.compile(r"[0-9a-f]{6,32}")


@click.command(
    cls=SectionedCommand,
    epilog=help_examples(
        'retinue resume "And which tests cover it?"',
        'retinue resume 1a2b3c4d "And which tests cover it?"',
        "git diff | retinue resume last",
        then=EXIT_CODES,
    ),
)
@click.argument("words", nargs=-1, metavar="[ID] [TASK]", shell_complete=complete_sessions)
@run_options
@click.pass_context
@for_users_only
def resume(ctx: click.Context, /, words: tuple[str, ...], **flags: Any) -> None:
    """Continue a session with another task.

    Without ID, or with the ID "last", the newest session of this directory that a person started is resumed. TASK is
    the text itself, @FILE, or - for stdin, which is also read if TASK is missing. The agent works in the directory of
    the session, unless --cwd is given.
    """
    options = RunOptions(**flags)
    session, task = _split_words(words)
    summary = anyio.run(find_session, Retinue(cwd=options.cwd), session)
    run_in_session(ctx, summary, task, options)


def _split_words(words: tuple[str, ...]) -> tuple[str, str | None]:
    """Return the session and the task; one word alone is a session if it looks like the id of one.

    Raises:
        click.UsageError: there are more than two.
    """
    match words:
        case ():
            return LAST, None
        case (only,):
            is_session = only == LAST or _SESSION_ID.fullmatch(normalize_id(only)) is not None
            return (only, None) if is_session else (LAST, only)
        case (session, task):
            return session, task
        case _:
            raise click.UsageError("Pass an ID and a TASK; quote a TASK of several words.")
