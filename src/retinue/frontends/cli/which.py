"""Which runs an id means, and what is said of those that do not run."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.app import Retinue
from retinue.frontends.wording import SHORT, digits
from retinue.sessions.owner import Owner
from retinue.types import Failure

NOTHING = "Nothing is running. `retinue watch --follow` waits for what begins."


def is_named(owner: Owner, names: Sequence[str]) -> bool:
    """Whether one of these is the id of the owner's run or session, from its first 8 digits on."""
    wanted = [found for name in names if len(found := digits(name)) >= SHORT]
    return any(known.startswith(name) for known in (owner.run, owner.session) for name in wanted)


async def why_not(retinue: Retinue, name: str) -> str:
    """Why nothing of this name runs."""
    if summary := await retinue.session(name):
        state = summary.latest.state
        return f"{name} is not running: its last run is {state}. `retinue sessions show {name}` shows it."
    return f'There is no run and no session "{name}". `retinue watch` shows what runs, `retinue sessions` the rest.'


def outcome(run: str, *, found: bool, failure: Failure | None) -> str:
    """What came of cancelling a run."""
    if not found:
        return f"Run {run[:SHORT]} had ended by then."
    if failure is None:
        return f"Run {run[:SHORT]} had answered before it could be stopped; its answer is kept."
    return f"Run {run[:SHORT]} has stopped; what it had is kept."
