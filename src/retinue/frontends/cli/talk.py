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
    try:
        line = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a name or path that is no text: broken characters are better than no answer
        line = msgspec.json.encode(_mended(msgspec.to_builtins(value)))
    click.echo(line)


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


def _mended(value: Any) -> Any:
    """The same with a sign in the place of every character that is half of one."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_mended(name): _mended(member) for name, member in value.items()}
        case list():
            return [_mended(member) for member in value]
        case _:
            return value
