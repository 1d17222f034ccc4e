"""`retinue events`: the stored stream of a root conversation."""

from __future__ import annotations

import anyio
import click

from retinue.app import Retinue
from retinue.events import to_line
from retinue.frontends.cli.completion import session_ids
from retinue.frontends.cli.endings import Declined
from retinue.frontends.cli.options import WORD
from retinue.frontends.cli.talk import answer_line, examples, fault
from retinue.sessions.store import Wanted
from retinue.subagent_events import subagent_line
from retinue.types import Code, Failure

NO_RUNS = "Nothing has run yet. `retinue demo` makes something to see."


@click.command(
    epilog=examples(
        "retinue events | jq .type",
        "retinue events 1a2b3c4d",
        "retinue events --follow --surface nested",
    )
)
@click.argument("root", type=WORD, required=False, shell_complete=session_ids)
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until Ctrl-C.")
@click.option(
    "--surface",
    type=click.Choice(["nested"]),
    help="In the words of nested: subagentStart and subagentComplete, nothing else.",
)
@click.option("--json", is_flag=True, expose_value=False, help="JSON lines: what it prints in any case.")
@click.pass_context
def events(ctx: click.Context, root: str | None, follow: bool, surface: str | None) -> None:
    """Print what happened in a conversation, as JSON lines.

    ROOT is a root conversation's id, or the id of any session or run in it; without it, the latest. Every line is one
    event, {v, type, seq, time, run, session, root, parentRun, parentToolUseId, depth, …}, in the order they happened.
    """
    retinue = Retinue()
    spelled = subagent_line if surface else to_line

    async def told() -> int:
        conversation = await _root(retinue, root)
        if conversation is None and root is not None:
            raise Declined(
                Failure(
                    Code.SESSION_NOT_FOUND,
                    f'There is no conversation and no session "{root}". `retinue sessions list` shows them.',
                )
            )
        if conversation is None:
            fault(NO_RUNS)
            return 1
        async for stamped in retinue.root_history(conversation, follow=follow):
            if line := spelled(stamped):
                answer_line(line)
        return 0

    ctx.exit(anyio.run(told))


async def _root(retinue: Retinue, name: str | None) -> str | None:
    """The id of the root conversation that is meant; None if there is none."""
    if name is not None:
        summary = await retinue.session(name)
        if summary:
            return summary.root
    latest = await retinue.sessions(Wanted(limit=1, root=name))
    return latest[0].root if latest else None
