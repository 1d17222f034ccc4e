"""Which runs an id means, what is said of those that do not run, and orders given to one that does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from retinue.app import Retinue
from retinue.control.client import Unreachable
from retinue.control.protocol import Extended, Steered
from retinue.frontends.cli.endings import Declined
from retinue.frontends.cli.session_text import state_text
from retinue.frontends.elsewhere import unreachable
from retinue.frontends.wording import SHORT, did_you_mean, digits
from retinue.sessions.owner import Owner
from retinue.types import Code, Failure

Done = TypeVar("Done", Steered, Extended)

SEVERAL = "Several runs have ids that begin like this: give more of its digits."
NOTHING = "Nothing is running. `retinue watch --follow` waits for what begins."


def is_named(owner: Owner, names: Sequence[str]) -> bool:
    """Whether one of these is the id of the owner's run or session, from its first 8 digits on."""
    wanted = [found for name in names if len(found := digits(name)) >= SHORT]
    return any(known.startswith(name) for known in (owner.run, owner.session) for name in wanted)


async def ordered(retinue: Retinue, name: str, order: Callable[[Owner], Awaitable[Done]]) -> tuple[Owner, Done]:
    """Gives an order to the process that carries out the run of this name; whose it is, and what came of it.

    Raises:
        Declined: no such run is at work, it cannot be reached, or it refuses.
    """
    owners = await retinue.owners()
    named = [owner for owner in owners if is_named(owner, (name,))]
    if len(named) != 1:
        raise Declined(Failure(Code.SESSION_NOT_FOUND, SEVERAL if named else await why_not(retinue, name)))
    try:
        done = await order(named[0])
    except Unreachable as problem:
        raise Unreached(Failure(Code.SESSION_BUSY, unreachable(named[0], str(problem)))) from problem
    if done.failure:
        raise Declined(done.failure)
    return named[0], done


class Unreached(Declined):
    """The process cannot be spoken to."""

    exit_code = 1


async def why_not(retinue: Retinue, name: str) -> str:
    """Why nothing of this name runs."""
    if summary := await retinue.session(name):
        return f"{name} is not running; its last run: {state_text(summary)}. `retinue sessions show {name}` shows it."
    near = did_you_mean(digits(name)[:SHORT], [owner.run[:SHORT] for owner in await retinue.owners()])
    shown = "`retinue watch` shows what runs, `retinue sessions` the rest."
    return f'There is no run and no session "{name}".{near} {shown}'


def outcome(run: str, *, found: bool, failure: Failure | None) -> str:
    """What came of cancelling a run."""
    if not found:
        return f"Run {run[:SHORT]} had ended by then."
    if failure is None:
        return f"Run {run[:SHORT]} had answered before it could be stopped; its answer is kept."
    return f"Run {run[:SHORT]} has stopped; what it had is kept."
