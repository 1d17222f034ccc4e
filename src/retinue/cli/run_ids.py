"""Find the active runs of an id, send commands to them, and explain why a run is not active."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from retinue.cli.commands.sessions import describe_state
from retinue.cli.options import CommandRefusedError
from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError
from retinue.ipc.federation import describe_unreachable
from retinue.ipc.messages import ExtendReply, SteerReply
from retinue.model.errors import ErrorCode, Failure
from retinue.sessions.store import LeaseOwner
from retinue.support.formatting import SHORT_ID_LENGTH, format_limit, normalize_id, suggest_spelling

CommandReply = TypeVar("CommandReply", SteerReply, ExtendReply)

AMBIGUOUS_ID = "Several runs have ids that start with these digits: use more digits."
NOTHING_RUNNING = "Nothing is running. `retinue watch --follow` waits for new runs."


def matches_id(owner: LeaseOwner, names: Sequence[str]) -> bool:
    """Return true if one of the names is a prefix of the owner's run or session id, at least 8 digits long."""
    wanted = [found for name in names if len(found := normalize_id(name)) >= SHORT_ID_LENGTH]
    return any(known.startswith(name) for known in (owner.run, owner.session) for name in wanted)


async def send_command(
    retinue: Retinue, name: str, command: Callable[[LeaseOwner], Awaitable[CommandReply]]
) -> tuple[LeaseOwner, CommandReply]:
    """Send a command to the process of the run with this id, and return the owner of the run and the reply.

    Raises:
        CommandRefusedError: no such run is active, its process cannot be reached, or it refuses the command.
    """
    owners = await retinue.owners()
    matching = [owner for owner in owners if matches_id(owner, (name,))]
    if len(matching) != 1:
        raise CommandRefusedError(
            Failure(
                ErrorCode.SESSION_NOT_FOUND, AMBIGUOUS_ID if matching else await explain_not_running(retinue, name)
            )
        )
    try:
        reply = await command(matching[0])
    except ProcessUnreachableError as problem:
        raise RunUnreachableError(
            Failure(ErrorCode.SESSION_BUSY, describe_unreachable(matching[0], str(problem)))
        ) from problem
    if reply.failure:
        raise CommandRefusedError(reply.failure)
    return matching[0], reply


class RunUnreachableError(CommandRefusedError):
    """The process of the run cannot be reached."""

    exit_code = 1


async def explain_not_running(retinue: Retinue, name: str) -> str:
    """Return the sentence that explains why no active run has this id."""
    if summary := await retinue.session(name):
        state = describe_state(summary)
        return f"{name} is not running; its last run: {state}. `retinue sessions show {name}` shows it."
    near = suggest_spelling(
        normalize_id(name)[:SHORT_ID_LENGTH], [owner.run[:SHORT_ID_LENGTH] for owner in await retinue.owners()]
    )
    shown = "`retinue watch` shows active runs, `retinue sessions` the others."
    return f'Run or session "{name}" not found.{near} {shown}'


def describe_steering(owner: LeaseOwner) -> str:
    """Return the sentence that reports that a message was sent."""
    return f"Message sent to {owner.run[:SHORT_ID_LENGTH]}; the agent will see it before its next model call."


def describe_extension(owner: LeaseOwner, seconds: float, timeout: float | None) -> str:
    """Return the sentence that reports the new timeout of a run."""
    run = owner.run[:SHORT_ID_LENGTH]
    return f"Run {run} has {format_limit(seconds)} more; its timeout is now {format_limit(timeout or 0.0)}."


def describe_cancel(run: str, *, found: bool, failure: Failure | None) -> str:
    """Return the sentence that reports the outcome of cancelling a run."""
    if not found:
        return f"Run {run[:SHORT_ID_LENGTH]} had already ended."
    if failure is None:
        return f"Run {run[:SHORT_ID_LENGTH]} had answered before it could be cancelled; its answer was kept."
    return f"Run {run[:SHORT_ID_LENGTH]} was cancelled; its partial output was kept."
