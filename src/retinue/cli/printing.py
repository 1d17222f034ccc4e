"""Print answers, errors, hints and tables for commands."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TextIO

import click

from retinue.output.untrusted_text import to_one_line
from retinue.support.own_process import detach
from retinue.tui.widths import pad_text, text_width, wrap_text

COLUMN_GAP = "  "
INDENT = "    "
"""Indentation of cells that do not fit beside the rest of their row."""
MIN_COLUMN_WIDTH = 12
"""Minimum width of the last cell."""
MAX_COLUMNS = 1_000
"""Characters of a cell that are used; also the width of a stdout that is not a terminal."""


class StyledCell(NamedTuple):
    """A text that is sanitized, and drawn in a color or in bold. No struct: the list of commands imports this."""

    text: str
    color: str | None = None
    bold: bool = False
    prefix: str = ""
    """Trusted text before it, in no color."""


Cell = str | tuple[str, str] | StyledCell
"""A text that is sanitized, a pair of trusted prefix and such a text, or such a text in a color."""


def render_table(
    rows: Sequence[Sequence[Cell]], *, columns: int | None = None, has_headings: bool = False, lines: int = 1
) -> list[str]:
    """Render rows as aligned lines of sanitized cells; the last cell takes the remaining width.

    Cells that do not fit on a narrow terminal are put on a line below. Only the last cell is cut, to so many lines.
    """
    if not rows:
        return []
    room = columns or stdout_columns()
    cells = [[_format_cell(cell) for cell in row] for row in rows]
    if has_headings:
        cells[0] = [cell._replace(bold=True) for cell in cells[0]]
    widths = [max(text_width(_cell_text(row[index])) for row in cells) for index in range(len(cells[0]) - 1)]
    shape = _group_columns([*widths, MIN_COLUMN_WIDTH], room)
    return [line for row in cells for line in _render_row(row, widths, shape, room, lines)]


def _group_columns(widths: Sequence[int], room: int) -> list[range]:
    """Return the groups of cells that share a line."""
    starts, used = [0], widths[0]
    for index, size in enumerate(widths[1:], 1):
        used += len(COLUMN_GAP) + size
        if used > room:
            starts.append(index)
            used = len(INDENT) + size
    return [range(*ends) for ends in pairwise([*starts, len(widths)])]


def _render_row(
    row: Sequence[StyledCell], widths: Sequence[int], shape: Sequence[range], room: int, lines: int
) -> Iterator[str]:
    for beside in shape:
        others = [index for index in beside if index < len(widths)]
        line, used = (INDENT, len(INDENT)) if beside.start else ("", 0)
        for index in others:
            line += _paint(row[index], pad_text(_cell_text(row[index]), widths[index])) + COLUMN_GAP
            used += widths[index] + len(COLUMN_GAP)
        if len(widths) not in beside:
            yield line.rstrip()
            continue
        text, left = _cell_text(row[-1]), max(room - used, 1)
        first, *more = wrap_text(text, left, lines) or [""]
        yield (line + _paint(row[-1], first)).rstrip()
        yield from (" " * used + _paint(row[-1], piece) for piece in more)


def _format_cell(cell: Cell) -> StyledCell:
    match cell:
        case StyledCell():
            return cell._replace(text=to_one_line(cell.text, MAX_COLUMNS))
        case (prefix, text):
            return StyledCell(to_one_line(text, MAX_COLUMNS), prefix=prefix)
        case _:
            return StyledCell(to_one_line(cell, MAX_COLUMNS))


def _cell_text(cell: StyledCell) -> str:
    return cell.prefix + cell.text


def _paint(cell: StyledCell, drawn: str) -> str:
    """Return the drawn cell with its color around the text; neither its prefix nor the padding is painted."""
    prefix = cell.prefix if drawn.startswith(cell.prefix) else ""
    text = drawn[len(prefix) :].rstrip()
    if not text or not (cell.color or cell.bold):
        return drawn
    painted = click.style(text, fg=cell.color, bold=cell.bold or None)
    return f"{prefix}{painted}{drawn[len(prefix) + len(text) :]}"


def stdout_columns() -> int:
    """Return the width of stdout; `MAX_COLUMNS` for a pipe or a file."""
    is_screen = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if is_screen or "COLUMNS" in os.environ else MAX_COLUMNS


def stderr_columns() -> int:
    """Return the width of stderr; `MAX_COLUMNS` for a pipe or a file."""
    is_screen = sys.stderr is not None and sys.stderr.isatty()
    return shutil.get_terminal_size().columns if is_screen else MAX_COLUMNS


class OutputError(click.ClickException):
    """stdout cannot be written; the message has the reason."""

    exit_code = 1


# -- stdout ----------------------------------------------------------------------------------------


def print_answer(text: str) -> None:
    """Print text of an agent without control characters.

    Raises:
        OutputError: stdout cannot be written; the same holds for the functions below.
    """
    from retinue.output.untrusted_text import strip_control_characters

    print_lines([strip_control_characters(text)])


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, in UTF-8 in every locale."""
    print_json_line(encode_json_line(value))


def print_json_line(line: bytes) -> None:
    """Print an encoded line of JSON; may wait for its reader, and holds no lock meanwhile."""
    stdout = _stdout()
    try:
        stdout.flush()
        unbuffered = getattr(stdout.buffer, "raw", stdout.buffer)
        while line:
            line = line[unbuffered.write(line) or 0 :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _output_error(error) from error


def print_lines(lines_to_print: Iterable[str]) -> None:
    """Print lines whose quoted parts are already sanitized."""
    stdout = _stdout()
    try:
        for line in lines_to_print:
            click.echo(line)
    except BrokenPipeError:
        raise
    except OSError as error:
        detach(stdout)
        raise _output_error(error) from error


def encode_json_line(value: Any) -> bytes:
    """Encode a value as one line of JSON."""
    from retinue.output.json_text import encode_json

    return encode_json(value) + b"\n"


def _stdout() -> TextIO:
    if sys.stdout is None:
        raise OutputError("stdout is closed, so nothing could be printed.")
    return sys.stdout


def _output_error(error: OSError) -> OutputError:
    return OutputError(f"stdout cannot be written: {error.strerror}.")


# -- stderr ----------------------------------------------------------------------------------------


def print_hint(text: str, *, quiet: bool = False) -> None:
    """Print information that is not an error."""
    if not quiet:
        _print_stderr(click.style(_wrap_lines(make_printable(text)), fg="bright_black"))


def print_tip(text: str) -> None:
    """Print what to do about an error, below it."""
    _print_labelled("tip", "cyan", text)


def print_warning(text: str, *, quiet: bool = False) -> None:
    if not quiet:
        _print_labelled("warning", "yellow", text)


def print_error(text: str) -> None:
    """Print an error, also with --quiet."""
    _print_labelled("error", "red", text)


def print_progress(text: str) -> None:
    """Replace the last line of progress on a terminal; with an empty text remove it. Elsewhere nothing is printed."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return
    sys.stderr.write(f"\r\x1b[K{text[: stderr_columns() - 1]}")
    sys.stderr.flush()


def _print_labelled(label: str, color: str, text: str) -> None:
    first, *others = _wrap_lines(f"{label}: {make_printable(text)}").split("\n")
    head = click.style(f"{label}:", fg=color, bold=True)
    _print_stderr("\n".join((head + first.removeprefix(f"{label}:"), *others)))


def _print_stderr(text: str) -> None:
    click.echo(text, err=True, color=choose_color(os.environ) if _current_color() is None else _current_color())


def _current_color() -> bool | None:
    """Return what `--color` says in the command that runs now; None if nothing."""
    context = click.get_current_context(silent=True)
    return context.color if context else None


def choose_color(environ: Mapping[str, str], choice: str = "auto") -> bool | None:
    """Return whether to print colors: by `--color`, NO_COLOR, FORCE_COLOR and TERM; None: on terminals only."""
    if choice != "auto":
        return choice == "always"
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "0") not in {"", "0"}:
        return True
    return False if environ.get("TERM") == "dumb" else None


def _wrap_lines(text: str) -> str:
    """Break lines between words on a terminal, which would break them anywhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        return text
    columns = stderr_columns()
    return "\n".join(piece for line in text.split("\n") for piece in wrap_text(line, columns, len(line)) or [""])


def is_interactive() -> bool:
    """Return whether a person can be asked: stdin and stderr are terminals."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def make_printable(text: str) -> str:
    """Redact secrets and remove control characters: the text may quote what was typed."""
    from retinue.output.redaction.redactor import Redactor, find_secrets
    from retinue.output.untrusted_text import strip_control_characters

    return strip_control_characters(Redactor(find_secrets(os.environ)).redact(text)[0])


# -- help ------------------------------------------------------------------------------------------


def help_examples(*typed: str, then: str = "") -> str:
    """Return the end of a command's help: examples, then a further paragraph."""
    lines = "\n".join(("\b", "Examples:", *(f"  {line}" for line in typed)))
    return f"{lines}\n\n{then}" if then else lines
