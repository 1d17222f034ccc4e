"""`retinue cancel`: runs stopped, in whatever process they are."""

from __future__ import annotations

import anyio
import click
from msgspec import Struct

from retinue.app import Retinue
from retinue.control.client import Unreachable
from retinue.frontends.cli.completion import run_ids
from retinue.frontends.cli.options import WORD, json_option
from retinue.frontends.cli.talk import answer_json, examples, fault, note
from retinue.frontends.cli.which import NOTHING, is_named, outcome, why_not
from retinue.frontends.elsewhere import cancelled, unreachable
from retinue.sessions.owner import Owner
from retinue.surfaces.base import REFUSED


class Stopped(Struct, frozen=True, rename="camel"):
    """What came of one of them."""

    run: str
    message: str
    exit_code: int = 0
    session: str | None = None
    pid: int | None = None


@click.command(
    epilog=examples(
        "retinue cancel 1a2b3c4d",
        "retinue cancel --all",
        then="Exit codes: 0 all were found and have stopped, 1 one could not be reached, 2 one is not running.",
    )
)
@click.argument("ids", type=WORD, nargs=-1, metavar="[ID]...", shell_complete=run_ids)
@click.option("--all", "everything", is_flag=True, help="Every run, in whatever process.")
@json_option
@click.pass_context
def cancel(ctx: click.Context, ids: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Stop runs, in whatever process they are.

    An ID is that of a run or a session, from its first 8 digits on. It returns when they have stopped; what they had
    is kept.
    """
    if bool(ids) == everything:
        raise click.UsageError("Say which: one ID or more, or --all.")
    told = anyio.run(_stopped, Retinue(), ids)
    for one in told:
        (fault if one.exit_code else note)(one.message)
    if as_json:
        answer_json({"runs": told})
    if not told:
        note(NOTHING)
    ctx.exit(max((one.exit_code for one in told), default=0))


async def _stopped(retinue: Retinue, ids: tuple[str, ...]) -> list[Stopped]:
    """Stops the runs of these ids, or all, side by side; what came of each."""
    owners = await retinue.owners()
    told: list[Stopped] = []

    async def stop(owner: Owner) -> None:
        told.append(await _stop(owner))

    async with anyio.create_task_group() as group:
        for owner in owners:
            if not ids or is_named(owner, ids):
                group.start_soon(stop, owner)
    others = [name for name in dict.fromkeys(ids) if not any(is_named(owner, (name,)) for owner in owners)]
    return [*told, *[Stopped(name, await why_not(retinue, name), REFUSED) for name in others]]


async def _stop(owner: Owner) -> Stopped:
    try:
        done = await cancelled(owner)
    except Unreachable as problem:
        message, code = unreachable(owner, str(problem)), 1
    else:
        message = outcome(owner.run, found=done.found, failure=done.failure)
        code = 0 if done.found else REFUSED
    return Stopped(owner.run, message, code, owner.session, owner.pid)
