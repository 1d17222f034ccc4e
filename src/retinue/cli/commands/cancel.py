"""`retinue cancel`: stop runs of any process."""

from __future__ import annotations

import anyio
import click
from msgspec import Struct

from retinue.cli.commands.completion import complete_runs
from retinue.cli.options import TEXT, for_users_only, json_option
from retinue.cli.printing import help_examples, print_error, print_hint, print_json
from retinue.cli.run_ids import NOTHING_RUNNING, describe_cancel, explain_not_running, matches_id
from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError
from retinue.ipc.federation import cancel_remote, describe_unreachable
from retinue.model.results import REFUSED_EXIT_CODE
from retinue.sessions.store import LeaseOwner


class CancelOutcome(Struct, frozen=True, rename="camel"):
    """The outcome of cancelling one run."""

    run: str
    message: str
    exit_code: int = 0
    session: str | None = None
    pid: int | None = None


@click.command(
    epilog=help_examples(
        "retinue cancel 1a2b3c4d",
        "retinue cancel --all",
        then="Exit codes: 0 all were cancelled, 1 a run's process could not be reached, 2 a run is not active.",
    )
)
@click.argument("ids", type=TEXT, nargs=-1, metavar="[ID]...", shell_complete=complete_runs)
@click.option("--all", "everything", is_flag=True, help="Cancel every run, including those of other processes.")
@json_option
@click.pass_context
@for_users_only
def cancel(ctx: click.Context, ids: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Cancel runs, including those of other processes.

    ID is the id of a run or a session, or at least its first 8 digits. The command waits until the runs have ended;
    their partial output is kept.
    """
    if bool(ids) == everything:
        raise click.UsageError("Missing ID: pass one or more IDs, or --all.")
    outcomes = anyio.run(_cancel_runs, Retinue(), ids)
    for one in outcomes:
        (print_error if one.exit_code else print_hint)(one.message)
    if as_json:
        print_json({"runs": outcomes})
    if not outcomes:
        print_hint(NOTHING_RUNNING)
    ctx.exit(max((one.exit_code for one in outcomes), default=0))


async def _cancel_runs(retinue: Retinue, ids: tuple[str, ...]) -> list[CancelOutcome]:
    """Stop the runs of these ids, or all runs, at the same time, and return the outcome of each."""
    owners = await retinue.owners()
    outcomes: list[CancelOutcome] = []

    async def stop(owner: LeaseOwner) -> None:
        outcomes.append(await _cancel_run(owner))

    async with anyio.create_task_group() as group:
        for owner in owners:
            if not ids or matches_id(owner, ids):
                group.start_soon(stop, owner)
    others = [name for name in dict.fromkeys(ids) if not any(matches_id(owner, (name,)) for owner in owners)]
    refused = [CancelOutcome(name, await explain_not_running(retinue, name), REFUSED_EXIT_CODE) for name in others]
    return [*outcomes, *refused]


async def _cancel_run(owner: LeaseOwner) -> CancelOutcome:
    try:
        done = await cancel_remote(owner)
    except ProcessUnreachableError as problem:
        message, code = describe_unreachable(owner, str(problem)), 1
    else:
        message = describe_cancel(owner.run, found=done.found, failure=done.failure)
        code = 0 if done.found else REFUSED_EXIT_CODE
    return CancelOutcome(owner.run, message, code, owner.session, owner.pid)
