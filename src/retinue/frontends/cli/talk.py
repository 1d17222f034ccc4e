"""What the command line says, and where: answers on stdout, everything else on stderr."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec

from retinue.output.frame import plain


def answer(text: str) -> None:
    """Prints text of an agent's, for a person or the next program."""
    click.echo(plain(text))


def answer_json(value: Any) -> None:
    """Prints one line of JSON, in UTF-8 whatever the locale."""
    click.echo(msgspec.json.encode(value))


def lines(told: Iterable[str]) -> None:
    """Prints lines of our own making to stdout; whatever they quote was made plain before."""
    for line in told:
        click.echo(line)


def note(text: str, *, quiet: bool = False) -> None:
    """Says something worth knowing."""
    if not quiet:
        click.secho(plain(text), err=True, fg="bright_black")


def warn(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        click.secho(plain(text), err=True, fg="yellow")


def fault(text: str) -> None:
    """Says what went wrong; nothing silences it."""
    click.secho(plain(text), err=True, fg="red")
