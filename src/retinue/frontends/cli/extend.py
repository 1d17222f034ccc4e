"""`retinue extend`: more time for a run, in whatever process."""

from __future__ import annotations

import anyio
import click

from retinue.app import Retinue
from retinue.frontends.cli.completion import run_ids
from retinue.frontends.cli.options import WORD, Seconds, json_option
from retinue.frontends.cli.talk import answer_json, examples, note
from retinue.frontends.cli.which import ordered
from retinue.frontends.elsewhere import extended
from retinue.frontends.wording import SHORT

LEAST, MOST = 1.0, 24 * 3600.0
"""Seconds that are given at once."""


@click.command(
    epilog=examples(
        "retinue extend 1a2b3c4d 5m",
        "retinue extend 1a2b3c4d 90 --json",
        then="Exit codes: 0 it has the time, 1 its process could not be reached, 2 its time is as it was: the run is "
        "not at work.",
    )
)
@click.argument("run", metavar="ID", type=WORD, shell_complete=run_ids)
@click.argument("time", metavar="TIME", type=Seconds(LEAST, MOST))
@json_option
def extend(run: str, time: float, as_json: bool) -> None:
    """Give a run more time.

    ID is that of a run or a session, from its first 8 digits on. TIME is added to its timeout, and to the end that no
    work of its own can put off: 90, 15m, 2h, at most a day at once.
    """
    owner, done = anyio.run(ordered, Retinue(), run, lambda owner: extended(owner, time))
    message = f"Run {owner.run[:SHORT]} was given {time:g}s more: its timeout is {done.timeout:g}s."
    note(message)
    if as_json:
        facts = {"run": owner.run, "session": owner.session, "pid": owner.pid}
        answer_json({**facts, "seconds": time, "timeout": done.timeout, "message": message})
