"""`retinue events`: print the stored events of a root conversation."""

from __future__ import annotations

import anyio
import click

from retinue.cli.commands.completion import complete_sessions
from retinue.cli.options import TEXT, CommandRefusedError
from retinue.cli.printing import help_examples, print_error, print_json_line
from retinue.client import Retinue
from retinue.model.errors import ErrorCode, Failure
from retinue.model.event_codec import to_line, to_subagent_line
from retinue.sessions.store import SessionFilter

NO_RUNS = "There are no events yet. `retinue demo` creates some."


@click.command(
    epilog=help_examples(
        "retinue events | jq .type", "retinue events 1a2b3c4d", "retinue events --follow --toolset nested"
    )
)
@click.argument("root", type=TEXT, required=False, shell_complete=complete_sessions)
@click.option("--follow", "-f", is_flag=True, help="Wait for more events, until Ctrl-C.")
@click.option(
    "--toolset",
    type=click.Choice(["nested"]),
    help="Use the event format of the toolset nested: only subagentStart and subagentComplete.",
)
@click.option("--json", is_flag=True, expose_value=False, help="Has no effect: the output is always JSON lines.")
@click.pass_context
def events(ctx: click.Context, root: str | None, follow: bool, toolset: str | None) -> None:
    """Print the events of a conversation as JSON lines.

    ROOT is the id of a root conversation, or of any session or run in it; without ROOT, the latest conversation is
    used. Every line is one event, {v, type, seq, time, run, session, root, parentRun, parentToolUseId, depth, …}, in
    order of time.
    """
    retinue = Retinue()
    encode = to_subagent_line if toolset else to_line

    async def print_events() -> int:
        conversation = await _find_root(retinue, root)
        if conversation is None and root is not None:
            message = (
                f'Conversation or session "{root}" not found. `retinue sessions list` shows the existing sessions.'
            )
            raise CommandRefusedError(Failure(ErrorCode.SESSION_NOT_FOUND, message))
        if conversation is None:
            print_error(NO_RUNS)
            return 1
        async for record in retinue.root_history(conversation, follow=follow):
            if line := encode(record):
                print_json_line(line)
        return 0

    ctx.exit(anyio.run(print_events))


async def _find_root(retinue: Retinue, name: str | None) -> str | None:
    """Return the id of the root conversation of a name, by default the latest; None if there is none."""
    if name is not None:
        summary = await retinue.session(name)
        if summary:
            return summary.root
    latest = await retinue.sessions(SessionFilter(limit=1, root=name))
    return latest[0].root if latest else None
