"""What the command line says, and where: answers on stdout, everything else on stderr.

Imports next to nothing by itself: the list of commands needs its words, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import click

from retinue.frontends.streams import give_up


class Unwritable(click.ClickException):
    """stdout takes nothing more; the message says why."""

    exit_code = 1


# -- answers ---------------------------------------------------------------------------------------


def answer(text: str) -> None:
    """Prints text of an agent's, for a person or the next program.

    Raises:
        Unwritable: stdout takes nothing more; so do those that follow.
    """
    from retinue.output.frame import plain

    lines([plain(text)])


def answer_json(value: Any) -> None:
    """Prints one line of JSON, in UTF-8 whatever the locale."""
    answer_line(json_line(value))


def answer_line(line: bytes) -> None:
    """Prints a line of JSON that is one already; waits for its reader, if need be, without holding any lock."""
    stdout = _stdout()
    try:
        stdout.flush()
        unbuffered = getattr(stdout.buffer, "raw", stdout.buffer)
        while line:
            line = line[unbuffered.write(line) or 0 :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(error) from error


def lines(told: Iterable[str]) -> None:
    """Prints lines of our own making; whatever they quote was made plain before."""
    stdout = _stdout()
    try:
        for line in told:
            click.echo(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up(stdout)
        raise _unwritable(error) from error


def json_line(value: Any) -> bytes:
    """The value as one line of JSON."""
    import msgspec

    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:  # a name or path that is no text: broken characters are better than no answer
        from retinue.output.texts import changed_texts, mended

        return msgspec.json.encode(changed_texts(msgspec.to_builtins(value), mended)) + b"\n"


def _stdout() -> TextIO:
    if sys.stdout is None:
        raise Unwritable("stdout is closed, so nothing could be printed.")
    return sys.stdout


def _unwritable(error: OSError) -> Unwritable:
    return Unwritable(f"stdout cannot be written: {error.strerror}.")


# -- everything else -------------------------------------------------------------------------------


def note(text: str, *, quiet: bool = False) -> None:
    """Says something worth knowing."""
    if not quiet:
        _say(text, "bright_black")


def warn(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        _say(text, "yellow")


def fault(text: str) -> None:
    """Says what went wrong; nothing silences it."""
    _say(text, "red")


def _say(text: str, color: str) -> None:
    click.secho(_broken(sayable(text)), err=True, fg=color, color=False if is_colorless() else None)


def _broken(text: str) -> str:
    """The text with its lines broken between words, where a terminal would break them anywhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    import shutil

    from retinue.frontends.cells import wrap

    columns = shutil.get_terminal_size().columns
    return "\n".join(piece for line in text.split("\n") for piece in wrap(line, columns, len(line)) or [""])


def is_colorless() -> bool:
    """Whether the user, or the terminal, wants no colors."""
    return "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"


def sayable(text: str) -> str:
    """The text as it may be shown: it may quote what was typed, with the secrets and the escapes in it."""
    from retinue.output.frame import plain
    from retinue.output.sanitise import Masker, known_secrets

    return plain(Masker(known_secrets(os.environ)).mask(text)[0])


# -- words that help -------------------------------------------------------------------------------


def examples(*typed: str, then: str = "") -> str:
    """The end of a command's help: how it is typed, and what else there is to say."""
    told = "\n".join(("\b", "Examples:", *(f"  {line}" for line in typed)))
    return f"{told}\n\n{then}" if then else told
