"""`retinue steer`: something said to an agent while it works, in whatever process."""

from __future__ import annotations

import anyio
import click

from retinue.app import Retinue
from retinue.frontends.cli.completion import run_ids
from retinue.frontends.cli.dispatching import task_text
from retinue.frontends.cli.options import WORD, json_option
from retinue.frontends.cli.talk import answer_json, examples, note
from retinue.frontends.cli.which import ordered
from retinue.frontends.elsewhere import steered
from retinue.frontends.wording import SHORT

SURFACE = "single"
"""Whose settings say how long a text may be."""


@click.command(
    epilog=examples(
        'retinue steer 1a2b3c4d "Leave the tests alone."',
        "retinue steer 1a2b3c4d @notes.md",
        "git diff | retinue steer 1a2b3c4d -",
        then="Exit codes: 0 its engine has the text, 1 its process could not be reached, 2 nothing was said: the run "
        "is not at work, or its engine cannot.",
    )
)
@click.argument("run", metavar="ID", type=WORD, shell_complete=run_ids)
@click.argument("text")
@json_option
def steer(run: str, text: str, as_json: bool) -> None:
    """Say something to an agent while it works.

    ID is that of its run or session, from its first 8 digits on. The agent goes on with its step; then its model
    reads TEXT before it is asked again. TEXT may be - for stdin or @FILE.
    """
    retinue = Retinue()
    said = task_text(text, retinue, SURFACE)
    owner, _ = anyio.run(ordered, retinue, run, lambda owner: steered(owner, said))
    message = f"Run {owner.run[:SHORT]} has been told; its agent reads it before it asks its model again."
    note(message)
    if as_json:
        answer_json({"run": owner.run, "session": owner.session, "pid": owner.pid, "message": message})
