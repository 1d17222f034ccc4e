"""`retinue extend`: extend the timeout of a run of any process."""

from __future__ import annotations

import anyio
import click

from retinue.cli.commands.completion import complete_runs
from retinue.cli.options import TEXT, DurationType, for_users_only, json_option
from retinue.cli.printing import help_examples, print_hint, print_json
from retinue.cli.run_ids import describe_extension, send_command
from retinue.client import Retinue
from retinue.ipc.federation import extend_remote

EXTENSION = DurationType(1.0, 24 * 3600.0)
"""The time of one extension."""


@click.command(
    epilog=help_examples(
        "retinue extend 1a2b3c4d 5m",
        "retinue extend 1a2b3c4d 90 --json",
        then="Exit codes: 0 extended, 1 the run's process could not be reached, 2 the run is not active; "
        "nothing changed.",
    )
)
@click.argument("run", metavar="ID", type=TEXT, shell_complete=complete_runs)
@click.argument("time", metavar="TIME", type=EXTENSION)
@json_option
@for_users_only
def extend(run: str, time: float, as_json: bool) -> None:
    """Extend the timeout of a run.

    ID is the id of a run or a session, or at least its first 8 digits. TIME is added to the run's timeout and to its
    hard limit: 90, 15m, 2h; at most 24h at once.
    """
    owner, done = anyio.run(send_command, Retinue(), run, lambda owner: extend_remote(owner, time))
    message = describe_extension(owner, time, done.timeout)
    print_hint(message)
    if as_json:
        facts = {"run": owner.run, "session": owner.session, "pid": owner.pid}
        print_json({**facts, "seconds": time, "timeout": done.timeout, "message": message})
