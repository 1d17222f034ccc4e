"""The attempts of one run: try, correct a missing finalization, take the next model, retry.

One watch covers all attempts, so they share one timeout. Retry and fallback begin afresh only while nothing but
read-only tools ran; after that they continue the engine's own session, or the run fails with what it has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from msgspec import structs

from retinue.agents.policy import READ_ONLY
from retinue.events import AttemptStarted, Event, ModelChanged, Steered
from retinue.guards.watch import Watch
from retinue.models import join_model, normalize_model, same_model
from retinue.output.collect import Collector
from retinue.output.provider_errors import is_transient, wants_other_model
from retinue.results import Actual, AnswerKind, Attempt, RunResult, exit_code
from retinue.supervise import Carry, Record, Reins, Told, supervise
from retinue.types import Code, Failure, Message, Refused, RunSpec, Usage

RETRY_PAUSE = 1.0
"""Seconds before a retry, give or take a quarter, so that siblings do not return in step."""

CORRECTION = (
    "You ended without a valid call of subagent_finalize. Call it now as your only action: status SUCCESS with a "
    "non-empty result, or status ERROR with a non-empty error (and what you found so far as result)."
)
CONTINUE = "The previous attempt was cut off by a provider error. Go on from where you stopped."

Recall = Callable[[], Awaitable[tuple[Message, ...]]]
"""The messages of the session so far, from its record."""


class Tally:
    """What a run amounts to so far, over its attempts; a result can be made of it at any time."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.collectors: list[Collector] = []
        self.attempts: list[Attempt] = []
        self._open: Attempt | None = None
        self._started: float | None = None

    def start(self) -> None:
        """The run has its slot: its time counts from now."""
        self._started = anyio.current_time()

    @property
    def elapsed(self) -> float:
        return 0.0 if self._started is None else anyio.current_time() - self._started

    @property
    def wrote(self) -> bool:
        """Whether anything but read-only tools ran."""
        return any(tool not in READ_ONLY for collector in self.collectors for tool in collector.tools_used)

    @property
    def native_session(self) -> str | None:
        return next((c.native_session for c in reversed(self.collectors) if c.native_session), None)

    def begin(self, reason: str, model: str | None) -> tuple[Attempt, Collector]:
        self._open = Attempt(len(self.attempts) + 1, reason, model)
        self.collectors.append(Collector(self.spec.agent.fallback_models))
        return self._open, self.collectors[-1]

    def note(self, event: Event) -> None:
        """Something is to be known of the run after its last attempt."""
        self.collectors[-1].observe(event)

    def extend(self, timeout: float, seconds: float) -> None:
        """The limits in force of a run that was given so many seconds more."""
        limits = self.spec.limits
        longer = structs.replace(limits, timeout=timeout, ceiling=limits.ceiling + seconds)
        self.spec = structs.replace(self.spec, limits=longer)

    def end(self, failure: Failure | None) -> None:
        assert self._open is not None
        self.attempts.append(structs.replace(self._open, failure=failure))
        self._open = None

    def result(self, failure: Failure | None, nested: Usage = Usage()) -> RunResult:  # noqa: B008 - frozen
        """The result if the run ended now, with this failure; `nested` is what the runs below it consumed."""
        attempts = [*self.attempts, structs.replace(self._open, failure=failure)] if self._open else self.attempts
        answering = _best(self.collectors)
        last = self.collectors[-1] if self.collectors else Collector()
        text, kind = answering.answer()
        return RunResult(
            spec=self.spec,
            text=text,
            answer=kind,
            items=tuple(item for collector in self.collectors for item in collector.items),
            usage=sum((collector.usage for collector in self.collectors), Usage()),
            failure=failure,
            exit_code=exit_code(failure, last.process),
            elapsed=self.elapsed,
            finalized=last.finalized,
            actual=Actual(
                engine=self.spec.engine,
                model=answering.model,
                declared_model=_declared_model(self.spec, answering.model),
                tools_granted=self.spec.grant.tools,
                tools_removed=self.spec.grant.removed,
                tools_missing=self.spec.grant.missing,
                tools_used=_summed(self.collectors),
                not_applied=self.spec.not_applied,
                limits=self.spec.limits,
                attempts=tuple(attempts),
                nested_usage=nested,
                dropped_bytes=sum(collector.dropped_bytes for collector in self.collectors),
                process=last.process,
                notices=(
                    *self.spec.notices,
                    *(notice for collector in self.collectors for notice in collector.notices),
                ),
            ),
        )


async def attempt(
    tally: Tally, carry: Carry, record: Record, watch: Watch, reins: Reins, recall: Recall
) -> Failure | None:
    """Makes attempts until one is good, or none is left that would help; returns the last one's failure."""
    chances = _Chances(tally, record, watch, reins, recall)
    reason, spec = "first", tally.spec
    while True:
        begun, collector = tally.begin(reason, spec.model)
        started = AttemptStarted(begun.number, reason, spec.model)
        watch.observe(started, anyio.current_time())
        await record(started)
        for told in reins.unheard:
            if told.is_kept:  # it stands in the prompt of this attempt
                told.is_heard = True
                await record(Steered(told.text))
        failure = await supervise(spec, carry, record, watch, reins, collector)
        if spec.finalize:
            failure = _unfinalized(failure, collector)
        tally.end(failure)
        following = None
        if failure and not reins.failure:
            following = await chances.after(failure, spec)
            failure = reins.failure or failure
        if following is None:
            return failure
        reason, spec = following


class _Chances:
    """What may still be tried after an attempt has failed."""

    def __init__(self, tally: Tally, record: Record, watch: Watch, reins: Reins, recall: Recall) -> None:
        self._tally = tally
        self._record = record
        self._watch = watch
        self._reins = reins
        self._recall = recall
        self._models = _other_models(tally.spec)
        self._retries = tally.spec.limits.retry_attempts - 1
        self._corrections = tally.spec.limits.finalize_retries

    async def after(self, failure: Failure, spec: RunSpec) -> tuple[str, RunSpec] | None:
        """The next attempt, as its reason and its spec; None if the failure stands."""
        if failure.code is Code.NOT_FINALIZED and self._corrections:
            self._corrections -= 1
            return await self._continued("finalize", spec, CORRECTION)
        if failure.code is not Code.PROVIDER or (self._tally.wrote and not self._tally.native_session):
            return None
        if wants_other_model(failure.reason) and self._models:
            before, model = spec.model, self._models.pop(0)
            await self._record(ModelChanged(before, model, failure.reason or failure.message))
            return await self._again("fallback", structs.replace(spec, model=model))
        if is_transient(failure.reason) and self._retries and await self._pause():
            self._retries -= 1
            return await self._again("retry", spec)
        return None

    async def _again(self, reason: str, spec: RunSpec) -> tuple[str, RunSpec] | None:
        """Afresh where that is harmless, else from where the engine's session stands."""
        if self._tally.wrote:
            return await self._continued(reason, spec, CONTINUE)
        return reason, structs.replace(spec, prompt=self._with_told(spec.prompt, self._reins.told))

    async def _continued(self, reason: str, spec: RunSpec, prompt: str) -> tuple[str, RunSpec] | None:
        try:
            history = await self._recall()
        except Refused:  # the record cannot be read: what stands is the failure that led here
            return None
        session = self._tally.native_session or spec.native_session
        # What the agent has heard stands in its session.
        prompt = self._with_told(prompt, self._reins.unheard)
        return reason, structs.replace(spec, prompt=prompt, native_session=session, history=history)

    def _with_told(self, prompt: str, among: list[Told]) -> str:
        """The prompt with what was said to the agent of an attempt that failed, as far as none holds it yet."""
        missing = [told.text for told in among if told.was_said and not told.is_kept]
        for told in self._reins.told:
            told.is_kept = told.was_said
        return "\n\n".join((prompt, *missing))

    async def _pause(self) -> bool:
        """Waits before a retry; whether there is still time for one."""
        import random

        pause = RETRY_PAUSE * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, not a secret
        if anyio.current_time() + pause >= self._watch.deadline:
            return False
        with self._reins.hold() as scope:
            await anyio.sleep(pause)
        return not scope.cancelled_caught


def _other_models(spec: RunSpec) -> list[str]:
    """Return the fallback models in order, without the run's own and without repetitions."""
    provider = spec.agent.provider
    models = {normalize_model(join_model(provider, model)): model for model in reversed(spec.agent.fallback_models)}
    models.pop(normalize_model(join_model(provider, spec.model)), None)
    return [model for model in dict.fromkeys(spec.agent.fallback_models) if model in models.values()]


SAID_NOTHING = frozenset({"empty_answer", "no_final_message"})
"""Reasons that do not count where the answer is the finalize call: an agent that said nothing can still be asked."""


def _unfinalized(failure: Failure | None, collector: Collector) -> Failure | None:
    """The failure of an attempt that should have ended with a finalize call."""
    if collector.finalized:
        return failure
    if failure and not (failure.reason in SAID_NOTHING and collector.ended_by_itself):
        return failure
    return Failure(
        Code.NOT_FINALIZED,
        "The agent ended without a valid subagent_finalize call. What it did is kept: resume the session.",
    )


def _declared_model(spec: RunSpec, answered: str | None) -> str | None:
    """Return the model that was asked for, spelled as the engine spells it where that one answered."""
    declared = join_model(spec.agent.provider, spec.model)
    return answered if declared and same_model(declared, answered) else declared


def _best(collectors: list[Collector]) -> Collector:
    """The attempt whose text is the answer: the latest of the best kind."""
    order = [AnswerKind.NONE, AnswerKind.DIAGNOSIS, AnswerKind.PARTIAL, AnswerKind.FINAL]
    return max(reversed(collectors), key=lambda c: order.index(c.answer()[1]), default=Collector())


def _summed(collectors: list[Collector]) -> dict[str, int]:
    total: dict[str, int] = {}
    for collector in collectors:
        for tool, count in collector.tools_used.items():
            total[tool] = total.get(tool, 0) + count
    return total
