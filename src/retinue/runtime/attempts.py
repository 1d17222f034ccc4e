"""The attempts of one run: try, correct a missing finalization, take the next model, retry.

One watch covers all attempts, so they share one timeout. Retry and fallback begin afresh only while nothing but
read-only tools ran; after that they continue the engine's own session, or the run fails with what it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from msgspec import structs

from retinue.agents.tool_policy import READ_ONLY_TOOLS
from retinue.guards.guard_set import GuardSet
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.events import AttemptStarted, Event, ModelChanged, SteeringDelivered
from retinue.model.model_names import join_model, normalize_model, same_model
from retinue.model.results import AnswerStatus, Attempt, ExecutionReport, RunResult, Usage, compute_exit_code
from retinue.model.runs import Message, RunSpec
from retinue.output.answer import AnswerCollector
from retinue.output.provider_errors import is_transient, wants_other_model
from retinue.runtime.supervisor import ExecuteSpec, RecordEvent, RunControl, SteeringMessage, run_attempt

RETRY_DELAY = 1.0
"""Seconds before a retry, give or take a quarter, so that siblings do not return in step."""

FINALIZE_REMINDER = (
    "You ended without a valid call of subagent_finalize. Call it now as your only action: status SUCCESS with a "
    "non-empty result, or status ERROR with a non-empty error (and what you found so far as result)."
)
CONTINUE_PROMPT = "The previous attempt was cut off by a provider error. Go on from where you stopped."

LoadHistory = Callable[[], Awaitable[tuple[Message, ...]]]
"""The messages of the session so far, from its record."""


class AttemptLog:
    """What a run amounts to so far, over its attempts; a result can be made of it at any time."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.collectors: list[AnswerCollector] = []
        self.attempts: list[Attempt] = []
        self._current: Attempt | None = None
        self._started: float | None = None

    def start_clock(self) -> None:
        """The run has its slot: its time counts from now."""
        self._started = anyio.current_time()

    @property
    def elapsed(self) -> float:
        return 0.0 if self._started is None else anyio.current_time() - self._started

    @property
    def has_written(self) -> bool:
        """Whether anything but read-only tools ran."""
        return any(tool not in READ_ONLY_TOOLS for collector in self.collectors for tool in collector.tools_used)

    @property
    def native_session(self) -> str | None:
        return next((c.native_session for c in reversed(self.collectors) if c.native_session), None)

    def start_attempt(self, reason: str, model: str | None) -> tuple[Attempt, AnswerCollector]:
        self._current = Attempt(len(self.attempts) + 1, reason, model)
        self.collectors.append(AnswerCollector(self.spec.agent.fallback_models))
        return self._current, self.collectors[-1]

    def observe(self, event: Event) -> None:
        """Something is to be known of the run after its last attempt."""
        self.collectors[-1].observe(event)

    def extend_limits(self, timeout: float, seconds: float) -> None:
        """The limits in force of a run that was given so many seconds more."""
        limits = self.spec.limits
        longer = structs.replace(limits, timeout=timeout, ceiling=limits.ceiling + seconds)
        self.spec = structs.replace(self.spec, limits=longer)

    def end_attempt(self, failure: Failure | None) -> None:
        assert self._current is not None
        self.attempts.append(structs.replace(self._current, failure=failure))
        self._current = None

    def make_result(self, failure: Failure | None, child_usage: Usage = Usage()) -> RunResult:  # noqa: B008 - frozen
        """The result if the run ended now, with this failure; `nested` is what the runs below it consumed."""
        attempts = (
            [*self.attempts, structs.replace(self._current, failure=failure)] if self._current else self.attempts
        )
        answering = _best_attempt(self.collectors)
        last = self.collectors[-1] if self.collectors else AnswerCollector()
        text, status = answering.best_answer()
        return RunResult(
            spec=self.spec,
            text=text,
            answer=status,
            items=tuple(item for collector in self.collectors for item in collector.items),
            usage=sum((collector.usage for collector in self.collectors), Usage()),
            failure=failure,
            exit_code=compute_exit_code(failure, last.process),
            elapsed=self.elapsed,
            finalized=last.finalized,
            actual=ExecutionReport(
                engine=self.spec.engine,
                model=answering.model,
                declared_model=_declared_model(self.spec, answering.model),
                tools_granted=self.spec.grant.tools,
                tools_removed=self.spec.grant.removed,
                tools_missing=self.spec.grant.missing,
                tools_used=_sum_tool_counts(self.collectors),
                not_applied=self.spec.unsupported_preferences,
                limits=self.spec.limits,
                attempts=tuple(attempts),
                nested_usage=child_usage,
                dropped_bytes=sum(collector.dropped_bytes for collector in self.collectors),
                process=last.process,
                notices=(
                    *self.spec.notices,
                    *(notice for collector in self.collectors for notice in collector.notices),
                ),
            ),
        )


async def run_attempts(
    log: AttemptLog,
    execute: ExecuteSpec,
    record: RecordEvent,
    guards: GuardSet,
    control: RunControl,
    load_history: LoadHistory,
) -> Failure | None:
    """Makes attempts until one is good, or none is left that would help; returns the last one's failure."""
    retry_policy = _RetryPolicy(log, record, guards, control, load_history)
    reason, spec = "first", log.spec
    while True:
        current, collector = log.start_attempt(reason, spec.model)
        started = AttemptStarted(current.number, reason, spec.model)
        guards.observe(started, anyio.current_time())
        await record(started)
        for sent_before in control.undelivered:
            if sent_before.in_prompt:  # it stands in the prompt of this attempt
                sent_before.delivered = True
                await record(SteeringDelivered(sent_before.text))
        failure = await run_attempt(spec, execute, record, guards, control, collector)
        if spec.finalize:
            failure = _require_finalization(failure, collector)
        log.end_attempt(failure)
        next_attempt = None
        if failure and not control.failure:
            next_attempt = await retry_policy.next_attempt(failure, spec)
            failure = control.failure or failure
        if next_attempt is None:
            return failure
        reason, spec = next_attempt


class _RetryPolicy:
    """What may still be tried after an attempt has failed."""

    def __init__(
        self, log: AttemptLog, record: RecordEvent, guards: GuardSet, control: RunControl, load_history: LoadHistory
    ) -> None:
        self._log = log
        self._record = record
        self._guards = guards
        self._control = control
        self._load_history = load_history
        self._models = _other_models(log.spec)
        self._retries = log.spec.limits.retry_attempts - 1
        self._corrections = log.spec.limits.finalize_retries

    async def next_attempt(self, failure: Failure, spec: RunSpec) -> tuple[str, RunSpec] | None:
        """The next attempt, as its reason and its spec; None if the failure stands."""
        if failure.code is ErrorCode.NOT_FINALIZED and self._corrections:
            self._corrections -= 1
            return await self._continue_session("finalize", spec, FINALIZE_REMINDER)
        if failure.code is not ErrorCode.PROVIDER or (self._log.has_written and not self._log.native_session):
            return None
        if wants_other_model(failure.reason) and self._models:
            before, model = spec.model, self._models.pop(0)
            await self._record(ModelChanged(before, model, failure.reason or failure.message))
            return await self._restart("fallback", structs.replace(spec, model=model))
        if is_transient(failure.reason) and self._retries and await self._backoff():
            self._retries -= 1
            return await self._restart("retry", spec)
        return None

    async def _restart(self, reason: str, spec: RunSpec) -> tuple[str, RunSpec] | None:
        """Afresh where that is harmless, else from where the engine's session stands."""
        if self._log.has_written:
            return await self._continue_session(reason, spec, CONTINUE_PROMPT)
        return reason, structs.replace(spec, prompt=self._with_steering(spec.prompt, self._control.steering))

    async def _continue_session(self, reason: str, spec: RunSpec, prompt: str) -> tuple[str, RunSpec] | None:
        try:
            history = await self._load_history()
        except RefusedError:  # the record cannot be read: what stands is the failure that led here
            return None
        session = self._log.native_session or spec.native_session
        # What the agent has heard stands in its session.
        prompt = self._with_steering(prompt, self._control.undelivered)
        return reason, structs.replace(spec, prompt=prompt, native_session=session, history=history)

    def _with_steering(self, prompt: str, messages: list[SteeringMessage]) -> str:
        """The prompt with what was said to the agent of an attempt that failed, as far as none holds it yet."""
        missing = [told.text for told in messages if told.sent and not told.in_prompt]
        for message in self._control.steering:
            message.in_prompt = message.sent
        return "\n\n".join((prompt, *missing))

    async def _backoff(self) -> bool:
        """Waits before a retry; whether there is still time for one."""
        import random

        pause = RETRY_DELAY * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, not a secret
        if anyio.current_time() + pause >= self._guards.deadline:
            return False
        with self._control.cancellable() as scope:
            await anyio.sleep(pause)
        return not scope.cancelled_caught


def _other_models(spec: RunSpec) -> list[str]:
    """Return the fallback models in order, without the run's own and without repetitions."""
    provider = spec.agent.provider
    models = {normalize_model(join_model(provider, model)): model for model in reversed(spec.agent.fallback_models)}
    models.pop(normalize_model(join_model(provider, spec.model)), None)
    return [model for model in dict.fromkeys(spec.agent.fallback_models) if model in models.values()]


EMPTY_ANSWER_REASONS = frozenset({"empty_answer", "no_final_message"})
"""Reasons that do not count where the answer is the finalize call: an agent that said nothing can still be asked."""


def _require_finalization(failure: Failure | None, collector: AnswerCollector) -> Failure | None:
    """The failure of an attempt that should have ended with a finalize call."""
    if collector.finalized:
        return failure
    if failure and not (failure.reason in EMPTY_ANSWER_REASONS and collector.ended_normally):
        return failure
    return Failure(
        ErrorCode.NOT_FINALIZED,
        "The agent ended without a valid subagent_finalize call. What it did is kept: resume the session.",
    )


def _declared_model(spec: RunSpec, answered: str | None) -> str | None:
    """Return the model that was asked for, spelled as the engine spells it where that one answered."""
    declared = join_model(spec.agent.provider, spec.model)
    return answered if declared and same_model(declared, answered) else declared


def _best_attempt(collectors: list[AnswerCollector]) -> AnswerCollector:
    """The attempt whose text is the answer: the latest of the best kind."""
    order = [AnswerStatus.NONE, AnswerStatus.DIAGNOSIS, AnswerStatus.PARTIAL, AnswerStatus.FINAL]
    return max(reversed(collectors), key=lambda c: order.index(c.best_answer()[1]), default=AnswerCollector())


def _sum_tool_counts(collectors: list[AnswerCollector]) -> dict[str, int]:
    total: dict[str, int] = {}
    for collector in collectors:
        for tool, count in collector.tools_used.items():
            total[tool] = total.get(tool, 0) + count
    return total
