"""The active runs of this process, and the commands for them: stop, steer, extend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retinue.engines.base import RUN_NOT_ACTIVE
from retinue.model.errors import ErrorCode, Failure, RefusedError, refuse
from retinue.model.events import DeadlineExtended
from retinue.output.untrusted_text import strip_control_characters
from retinue.runtime.active_run import ActiveRun, SteeringMessage
from retinue.runtime.executor import Executor
from retinue.sessions.store import SessionState, SessionStore
from retinue.support.formatting import SHORT_ID_LENGTH

MAX_EXTENSION = 24 * 3600.0
"""Seconds by which a run may be extended at once."""
MAX_STEERING_MESSAGES = 1000
MAX_STEERING_CHARS = 16 * 2**20
"""Steering messages of one run, and the characters of all of them: they are kept until the run ends."""


class ActiveRuns:
    """The runs that have not ended, by id, in the order they started; the first 8 digits of an id name a run, too."""

    def __init__(self, executor: Executor, store: SessionStore) -> None:
        self._executor = executor
        self._store = store
        self._runs: dict[str, ActiveRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    @contextmanager
    def register(self, run: ActiveRun) -> Iterator[None]:
        """Keep the run registered during the block."""
        self._runs[run.spec.run] = run
        try:
            yield
        finally:
            del self._runs[run.spec.run]

    def stop(self, run: str, failure: Failure) -> bool:
        """Stop a run; return whether there was one of this id."""
        active = self._runs.get(run)
        if active:
            active.control.stop(failure)
        return active is not None

    def stop_all(self, failure: Failure) -> int:
        """Stop all runs; return how many there were."""
        for active in self._runs.values():
            active.control.stop(failure)
        return len(self._runs)

    async def steer(self, run: str, text: str) -> None:
        """Send a text to the agent of a run while it works; return once its engine has accepted it.

        Raises:
            RefusedError: nothing was sent: `invalid_input`, `unsupported`, or the run does not work now.
        """
        active = self._runs.get(run) or await self._resolve_prefix(run)
        content = _validate_steering(text, active.spec.limits.max_task_bytes)
        if active.is_queued:
            raise refuse(ErrorCode.CONFLICT, f"{_run_label(run)} {STEER_WHILE_QUEUED}", "queued")
        messages = active.steering
        if (
            len(messages) >= MAX_STEERING_MESSAGES
            or sum(len(each.text) for each in messages) + len(content) > MAX_STEERING_CHARS
        ):
            raise refuse(ErrorCode.CONFLICT, f"{_run_label(run)} {STEERING_QUOTA}", "told_enough")
        message = SteeringMessage(content)
        messages.append(message)  # it stays if the caller is cancelled meanwhile: the agent may see it all the same
        failure = await self._executor.steer(active.spec, content)
        if not failure and not message.delivered and active.spec.run not in self._runs:
            failure = RUN_NOT_ACTIVE  # the end reported the undelivered messages, without this one
        if failure:
            messages.remove(message)
            raise RefusedError(failure)
        message.accepted = True

    async def extend(self, run: str, seconds: float) -> float:
        """Extend the timeout and the ceiling of a working run; return its new timeout.

        Raises:
            RefusedError: nothing changed: `invalid_input`, or the run does not work now.
        """
        if not 0 < seconds <= MAX_EXTENSION:
            raise refuse(
                ErrorCode.INVALID_INPUT, f"An extension must be more than 0 and at most {MAX_EXTENSION:g} seconds"
            )
        active = self._runs.get(run) or await self._resolve_prefix(run)
        if active.is_queued:
            raise refuse(ErrorCode.CONFLICT, f"{_run_label(run)} {EXTEND_WHILE_QUEUED}", "queued")
        timeout = active.extend(float(seconds))
        if timeout is None:
            raise refuse(ErrorCode.CONFLICT, f"{_run_label(run)} {RUN_STOPPING}", "ending")
        await active.recorder.record(DeadlineExtended(float(seconds), timeout))
        return timeout

    async def _resolve_prefix(self, run: str) -> ActiveRun:
        """Return the run that these first digits name.

        Raises:
            RefusedError: it has ended, belongs to another process, or does not exist.
        """
        session = await self._store.find(run)
        summary = await self._store.summary(session) if session else None
        if summary is None:
            raise refuse(
                ErrorCode.SESSION_NOT_FOUND, f'Run "{run}" not found. `retinue watch` shows the runs that are active.'
            )
        latest = summary.latest
        if latest.state in {SessionState.QUEUED, SessionState.RUNNING} and latest.run.startswith(run):
            if active := self._runs.get(latest.run):
                return active
            raise refuse(ErrorCode.SESSION_BUSY, f"{_run_label(run)} {RUN_IN_OTHER_PROCESS}")
        raise refuse(ErrorCode.CONFLICT, f"{_run_label(run)} has ended. Resume its session to continue.", "ended")


STEER_WHILE_QUEUED = (
    "is queued: its agent has not started, and the message was not sent. Try again when the run has started."
)
EXTEND_WHILE_QUEUED = "is queued, and its timeout has not started to count. Try again when the run has started."
STEERING_QUOTA = (
    "already has as many messages as one run can keep. Put the message into the next task of its session."
)
RUN_STOPPING = "is being stopped and cannot be extended. Resume its session to continue."
RUN_IN_OTHER_PROCESS = "belongs to another process; use `retinue steer` and `retinue extend` to reach it."


def _run_label(run: str) -> str:
    return f"Run {run[:SHORT_ID_LENGTH]}"


def _validate_steering(text: str, max_bytes: int) -> str:
    """Return the text without control characters and outer whitespace."""
    message = strip_control_characters(text).strip()
    if not message:
        raise refuse(ErrorCode.INVALID_INPUT, "The message is empty: write what the agent should know")
    if (size := len(message.encode())) > max_bytes:
        raise refuse(
            ErrorCode.INVALID_INPUT,
            f"The text has {size} bytes; the limit is {max_bytes} (max_task_bytes). Put long texts into a file and "
            "name the file.",
        )
    return message
