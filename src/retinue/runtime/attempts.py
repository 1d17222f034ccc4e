"""The attempts of one run: try, correct a missing finalization, take the next model, retry.

One guard set covers all attempts, so they share one timeout. Retry and fallback start afresh only while nothing but
read-only tools ran; after that they continue the engine's own session, or the run fails with what it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from retinue.guards.output import SCHEMA_REASON
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.events import AttemptStarted, ModelChanged, SteeringDelivered
from retinue.model.providers import join_model, normalize_model
from retinue.model.runs import RunSpec
from retinue.output.provider_errors import is_transient, wants_other_model
from retinue.runtime.active_run import ActiveRun, SteeringMessage
from retinue.runtime.model_choice import name_model_line
from retinue.runtime.supervisor import ExecuteSpec, run_attempt

if TYPE_CHECKING:
    from retinue.runtime.hooks import RunHooks

RETRY_DELAY = 1.0
"""Seconds before a retry, plus or minus a quarter, so that sibling runs do not retry in step."""

FINALIZE_REMINDER = (
    "You ended without a valid call of subagent_finalize. Call it now as your only action: status SUCCESS with a "
    "non-empty result, or status ERROR with a non-empty error (and what you found so far as result)."
)
SCHEMA_REMINDER = (
    "The result of your subagent_finalize call does not match its schema:\n{violations}\nCall it again now as your "
    "only action, with a result that matches, or with status ERROR and a non-empty error."
)
CONTINUE_PROMPT = "The previous attempt was cut off by a provider error. Continue from where you stopped."

END_BLOCKED_REASON = "stop_hook"
"""Reason of the failure of a run whose hooks accept no answer."""
MAX_END_BLOCKS = 5
"""Times that hooks may make an agent go on after its answer."""
END_BLOCKED = (
    "The answer was not accepted after {count} further attempts: {reason} It was kept. Resume the session to "
    "continue."
)

RESULT_KEPT = "The last result did not match its output schema; it was kept in the details of this failure."

EMPTY_ANSWER_REASONS = frozenset({"empty_answer", "no_final_message"})
"""Failures that a finalize reminder may still correct, because the answer is the finalize call."""


async def run_attempts(run: ActiveRun, execute: ExecuteSpec, hooks: RunHooks | None = None) -> Failure | None:
    """Make attempts until one succeeds or no further one would help; return the failure of the last.

    The hooks of the run decide about each answer.
    """
    retry_policy = _RetryPolicy(run)
    reason, spec = "first", run.spec
    while True:
        attempt = run.start_attempt(reason, spec.model)
        started = AttemptStarted(attempt.number, reason, spec.model)
        run.guards.observe(started, anyio.current_time())
        await run.recorder.record(started)
        for message in run.undelivered:
            if message.in_prompt:
                message.delivered = True
                await run.recorder.record(SteeringDelivered(message.text))
        failure = await run_attempt(run, spec, execute)
        if spec.finalize:
            failure = _require_finalization(failure, run)
        if hooks and not failure:
            failure = await _check_answer(run, hooks, retry_policy.end_blocks)
        run.end_attempt(failure)
        next_attempt = None
        if failure and not run.control.failure:
            next_attempt = await retry_policy.next_attempt(failure, spec)
            failure = run.control.failure or failure
        if next_attempt is None:
            has_answered = run.collectors[-1].stop_reason not in {None, "error"}
            return failure if has_answered or not failure else name_model_line(failure, spec.model, spec.model_file)
        reason, spec = next_attempt


class _RetryPolicy:
    """The attempts a run has left after one has failed."""

    def __init__(self, run: ActiveRun) -> None:
        self._run = run
        self._models = _other_models(run.spec)
        self._retries = run.spec.limits.retry_attempts - 1
        self._reminders = 0
        self.end_blocks = 0
        """Answers that hooks did not accept."""

    async def next_attempt(self, failure: Failure, spec: RunSpec) -> tuple[str, RunSpec] | None:
        """Return the reason and the spec of the next attempt; None if the failure is final."""
        run = self._run
        if failure.reason == END_BLOCKED_REASON:
            self.end_blocks += 1
            if self.end_blocks > MAX_END_BLOCKS or run.budget.exceeded_failure():
                return None
            return await self._continue_session("hook", spec, str(failure.detail["reason"]))
        if failure.code is ErrorCode.NOT_FINALIZED and self._has_corrections and not run.budget.exceeded_failure():
            self._reminders += 1
            return await self._continue_session("finalize", spec, _finalize_reminder(failure))
        if failure.code is not ErrorCode.PROVIDER or (run.has_written and not run.native_session):
            return None
        if wants_other_model(failure.reason) and self._models:
            before, model = spec.model, self._models.pop(0)
            await run.recorder.record(ModelChanged(before, model, failure.reason or failure.message))
            return await self._restart("fallback", structs.replace(spec, model=model))
        if is_transient(failure.reason) and self._retries and await self._backoff():
            self._retries -= 1
            return await self._restart("retry", spec)
        return None

    @property
    def _has_corrections(self) -> bool:
        """Whether another reminder may be sent; finalize calls that a schema rejected count, too."""
        rejected = sum(collector.rejected_finalizations for collector in self._run.collectors)
        used = self._reminders + (rejected if self._run.spec.output_schema is not None else 0)
        return used < self._run.spec.limits.finalize_retries

    async def _restart(self, reason: str, spec: RunSpec) -> tuple[str, RunSpec] | None:
        """Start afresh where that is harmless, else continue the engine's session."""
        if self._run.has_written:
            return await self._continue_session(reason, spec, CONTINUE_PROMPT)
        return reason, structs.replace(spec, prompt=self._with_steering(spec.prompt, self._run.steering))

    async def _continue_session(self, reason: str, spec: RunSpec, prompt: str) -> tuple[str, RunSpec] | None:
        try:
            history = await self._run.load_history()
        except RefusedError:  # the record cannot be read: the failure so far is final
            return None
        session = self._run.native_session or spec.native_session
        # Messages that the agent has seen are part of its session.
        prompt = self._with_steering(prompt, self._run.undelivered)
        return reason, structs.replace(spec, prompt=prompt, native_session=session, history=history)

    def _with_steering(self, prompt: str, messages: list[SteeringMessage]) -> str:
        """Return the prompt with the steering messages of failed attempts that no prompt contains yet."""
        missing = [message.text for message in messages if message.sent and not message.in_prompt]
        for message in self._run.steering:
            message.in_prompt = message.sent
        return "\n\n".join((prompt, *missing))

    async def _backoff(self) -> bool:
        """Wait before a retry; return whether there is still time for one."""
        import random

        pause = RETRY_DELAY * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, not a secret
        if anyio.current_time() + pause >= self._run.guards.deadline:
            return False
        with self._run.control.cancellable() as scope:
            await anyio.sleep(pause)
        return not scope.cancelled_caught


async def _check_answer(run: ActiveRun, hooks: RunHooks, blocked: int) -> Failure | None:
    """Return the failure of an answer that the hooks of the run do not accept; None if they do."""
    answer, _ = run.collectors[-1].best_answer()
    final = run.collectors[-1].finalized
    reason: str | None = None
    with run.control.cancellable() as scope:
        scope.deadline = run.guards.deadline
        reason = await hooks.check_end((final and final.result) or answer, is_repeated=blocked > 0)
    if scope.cancelled_caught:
        return run.control.failure or run.guards.expire()
    if reason is None:
        return None
    message = END_BLOCKED.format(count=blocked, reason=reason.rstrip(".") + ".")
    return Failure(ErrorCode.NOT_FINALIZED, message, END_BLOCKED_REASON, {"reason": reason})


def _finalize_reminder(failure: Failure) -> str:
    if failure.reason == SCHEMA_REASON:
        return SCHEMA_REMINDER.format(violations=failure.detail["violations"])
    return FINALIZE_REMINDER


def _other_models(spec: RunSpec) -> list[str]:
    """Return the fallback models in order, without the run's own and without repetitions."""
    provider = spec.agent.provider
    models = {normalize_model(join_model(provider, model)): model for model in reversed(spec.agent.fallback_models)}
    models.pop(normalize_model(join_model(provider, spec.model)), None)
    return [model for model in dict.fromkeys(spec.agent.fallback_models) if model in models.values()]


def _require_finalization(failure: Failure | None, run: ActiveRun) -> Failure | None:
    """Return the failure of an attempt that had to end with a finalize call."""
    collector = run.collectors[-1]
    if collector.finalized:
        return failure
    if failure and not (failure.reason in EMPTY_ANSWER_REASONS and collector.ended_normally):
        return _with_last_result(failure, run.schema_failure)
    return run.schema_failure or Failure(
        ErrorCode.NOT_FINALIZED,
        "The agent ended without a valid subagent_finalize call. Its work was kept: resume the session to continue.",
    )


def _with_last_result(failure: Failure, rejected: Failure | None) -> Failure:
    """Return a failure with the last result of the agent, which did not match its schema."""
    if rejected is None or failure.reason == SCHEMA_REASON:
        return failure
    message = f"{failure.message} {RESULT_KEPT}"
    return structs.replace(failure, message=message, detail={**failure.detail, **rejected.detail})
