"""Retinue as the flags of a command want it, not yet open."""

from __future__ import annotations

from typing import Any

import click

from retinue.app import Retinue
from retinue.frontends.cli.inputs import Unreadable
from retinue.frontends.cli.options import Options
from retinue.frontends.wording import unknown


def opened(options: Options, *, root: str | None = None) -> Retinue:
    """For a command whose answer a person reads, for a conversation of its own or the one of this id.

    Raises:
        Unreadable: a flag cannot have its value.
    """
    return _made(options, root=root, offline_may_answer=True, owns_process=True)


def opened_to_serve(
    options: Options, *, root: str | None = None, client: str | None = None, owns_process: bool = True
) -> Retinue:
    """For a server, whose callers must not take rules for an agent.

    Raises:
        Unreadable: a flag cannot have its value.
        click.UsageError: there is no such engine, which nobody would see before the first call.
    """
    retinue = _made(options, root=root, client=client, owns_process=owns_process)
    engines = ("auto", *retinue.engines)
    if options.engine and options.engine not in engines:
        raise click.UsageError(unknown("engine", options.engine, engines))
    return retinue


def _made(options: Options, **how: Any) -> Retinue:
    try:
        return Retinue(cwd=options.cwd, settings=options.settings(), **how)
    except ValueError as error:
        raise Unreadable(f"{error}. Nothing was started.") from error
