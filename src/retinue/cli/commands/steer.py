"""`retinue steer`: send a message to an agent while it works, in any process."""

from __future__ import annotations

import anyio
import click

from retinue.cli.commands.completion import complete_runs
from retinue.cli.options import TEXT, for_users_only, json_option, read_task
from retinue.cli.printing import help_examples, print_hint, print_json
from retinue.cli.run_ids import describe_steering, send_command
from retinue.client import Retinue
from retinue.ipc.federation import steer_remote

TOOLSET = "single"
"""The toolset whose settings limit the length of a text."""


@click.command(
    epilog=help_examples(
        'retinue steer 1a2b3c4d "Leave the tests alone."',
        "retinue steer 1a2b3c4d @notes.md",
        "git diff | retinue steer 1a2b3c4d -",
        then="Exit codes: 0 sent, 1 the run's process could not be reached, 2 not sent: the run is not active, or "
        "its engine does not support steering.",
    )
)
@click.argument("run", metavar="ID", type=TEXT, shell_complete=complete_runs)
@click.argument("text")
@json_option
@for_users_only
def steer(run: str, text: str, as_json: bool) -> None:
    """Send a message to a running agent.

    ID is the id of the run or its session, or at least its first 8 digits. The agent finishes its current step, then
    sees TEXT before its next model call. TEXT may be - for stdin or @FILE.
    """
    retinue = Retinue()
    content = read_task(text, retinue, TOOLSET)
    owner, _ = anyio.run(send_command, retinue, run, lambda owner: steer_remote(owner, content))
    message = describe_steering(owner)
    print_hint(message)
    if as_json:
        print_json({"run": owner.run, "session": owner.session, "pid": owner.pid, "message": message})
