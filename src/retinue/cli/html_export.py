"""Write a session as one HTML file that can be mailed: `retinue sessions show --html`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO

import anyio
import click

from retinue.cli.printing import is_interactive, print_hint, print_json
from retinue.cli.session_lookup import find_session
from retinue.client import Retinue
from retinue.output.truncate import format_size
from retinue.transcripts.html import HtmlTranscript, encode_with, make_file_name

STDOUT = "-"
NAMED_BY_SESSION = ""
"""Stands for a file name made from the agent and the id of the session."""


def export_html(retinue: Retinue, session: str, target: str, *, replaces: bool, as_json: bool) -> int:
    """Write all runs of a session to a file or to stdout, and return the exit status.

    Raises:
        CommandRefusedError: there is no such session.
        click.ClickException: the file exists and nobody can be asked, or it cannot be written.
    """
    summary = anyio.run(find_session, retinue, session)
    if target == STDOUT:
        anyio.run(_write, sys.stdout.buffer, retinue, summary.session)
        sys.stdout.buffer.flush()
        return 0
    path = Path(target or make_file_name(summary.agent, summary.session, "html"))
    if not replaces and os.path.lexists(path) and not _confirm_replacement(path):
        return 1
    try:
        size = _write_file(path, retinue, summary.session)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror or error}.") from None
    print_hint(f"Written to {path} ({format_size(size)}).")
    if as_json:
        print_json({"session": summary.session, "file": str(path)})
    return 0


def _write_file(path: Path, retinue: Retinue, session: str) -> int:
    """Write the file and return its size; an error leaves an old file as it is."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("xb") as file:
            anyio.run(_write, file, retinue, session)
            size = file.tell()
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return size


async def _write(file: BinaryIO, retinue: Retinue, session: str) -> None:
    encode = encode_with(HtmlTranscript())
    async for record in retinue.history(session):
        file.writelines(encode(record))


def _confirm_replacement(path: Path) -> bool:
    if not is_interactive():
        raise click.UsageError(f"{path} exists: pass --force to replace it, or name another file.")
    return click.confirm(f"{path} exists. Replace it?", default=False, err=True)
