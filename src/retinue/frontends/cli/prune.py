"""`retinue sessions prune`: forgetting."""

from __future__ import annotations

import time

import click

from retinue.app import Retinue
from retinue.frontends.cli import session_text
from retinue.frontends.cli.finding import within
from retinue.frontends.cli.helping import examples
from retinue.frontends.cli.options import Seconds, json_option
from retinue.frontends.cli.talk import answer_json, lines, note
from retinue.frontends.cli.trusting import is_interactive
from retinue.sessions.store import SessionSummary

A_CENTURY = 100 * 365 * 86400.0


@click.command(
    epilog=examples("retinue sessions prune --dry-run", "retinue sessions prune --older-than 12w --results --yes")
)
@click.option(
    "--older-than",
    type=Seconds(0, A_CENTURY),
    default="30d",
    show_default=True,
    metavar="TIME",
    help="Unchanged so long.",
)
@click.option("--results", is_flag=True, help="Forget the sessions whole, their results too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be forgotten.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def prune(ctx: click.Context, older_than: float, results: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget old sessions: their detail, or with --results all of them.

    Without --results, what remains lists them, shows their answers and continues them.
    """
    doomed = within(lambda retinue: _unchanged_for(retinue, older_than))
    _announce(doomed, whole=results)
    if dry_run:
        _list(doomed, as_json=as_json)
        return
    if not yes and not is_interactive():
        raise click.UsageError("There is nobody to ask here: give --yes, or --dry-run to only look.")
    if not yes and not click.confirm("Forget that?", default=False, err=True):
        ctx.exit(1)
    done = within(lambda retinue: retinue.prune(older_than=older_than, keep_results=not results))
    if as_json:
        answer_json(
            {
                "thinned": done.thinned,
                "removed": done.removed,
                "skipped": done.skipped,
                "logs": done.logs,
                "freedBytes": done.freed_bytes,
            }
        )
    freed = session_text.size(done.freed_bytes)
    note(f"{done.thinned} thinned, {done.removed} removed, {done.skipped} left alone, {freed} freed.")


async def _unchanged_for(retinue: Retinue, seconds: float) -> list[SessionSummary]:
    before = time.time() - seconds
    return [summary for summary in await retinue.sessions() if summary.updated < before]


def _announce(doomed: list[SessionSummary], *, whole: bool) -> None:
    sessions = f"{len(doomed)} {'session' if len(doomed) == 1 else 'sessions'}"
    size = session_text.size(sum(one.size_bytes for one in doomed))
    note(f"To forget: {sessions}, {size}, {'whole' if whole else 'but for their results'}.")


def _list(doomed: list[SessionSummary], *, as_json: bool) -> None:
    if as_json:
        answer_json({"sessions": [one.session for one in doomed]})
    elif doomed:
        lines(session_text.list_lines(doomed, time.time()))
