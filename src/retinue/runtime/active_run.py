"""One run in progress: its spec, control, budget, guards, record, attempts and, at the end, its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import structs

from retinue.agents.tool_policy import READ_ONLY_TOOLS
from retinue.guards.budget import RUN_NOT_STARTED, Budget
from retinue.guards.guard_set import GuardSet, create_guards
from retinue.guards.output import SCHEMA_REASON, schema_failure
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    Event,
    Finalized,
    Notice,
    RunEnded,
    RunQueued,
    RunStarted,
    SteeringDelivered,
    ToolCalled,
    ToolReturned,
)
from retinue.model.providers import join_model, same_model
from retinue.model.results import (
    AnswerStatus,
    Attempt,
    ExecutionReport,
    RunResult,
    Usage,
    WorktreeChanges,
    compute_exit_code,
    sum_process_usage,
)
from retinue.model.runs import Message, RunSpec
from retinue.model.tasks import CallContext
from retinue.model.tool_names import FINALIZE_TOOL, is_delegation
from retinue.output.answer import AnswerCollector, claims_work
from retinue.output.untrusted_text import to_one_line
from retinue.runtime.concurrency import RunShare
from retinue.runtime.file_changes import FileChanges
from retinue.runtime.isolation import WORKTREE, RunWorktree
from retinue.runtime.recorder import Recorder
from retinue.sessions.store import SessionStore
from retinue.worktrees.store import WorktreeError

if TYPE_CHECKING:
    from retinue.model.mcp import McpServer

FINAL_WRITE_TIMEOUT = 5.0
"""Seconds to store the end of a run whose caller is gone."""
STEERING_NOT_DELIVERED = "The run ended before the agent received this message: {}"
WORK_WITHOUT_TOOLS = (
    "The answer claims finished work, but the agent called no tool: nothing was changed. Check the result, or give "
    "the task to another model."
)
MAX_QUOTED_CHARS = 200
"""Characters of an undelivered steering message that its notice quotes."""

ABORTED = Failure(
    ErrorCode.ABORTED, "Cancelled before it completed; its partial output was kept. Resume the session to continue."
)

_ANSWER_ORDER = [AnswerStatus.NONE, AnswerStatus.DIAGNOSIS, AnswerStatus.PARTIAL, AnswerStatus.FINAL]


class RunControl:
    """Stops a run, or a whole call, wherever it waits or works."""

    def __init__(self, failure: Failure | None = None) -> None:
        self.failure = failure
        self.scope: anyio.CancelScope | None = None

    def stop(self, failure: Failure) -> None:
        """End the run with this failure, unless it was stopped before."""
        self.failure = self.failure or failure
        if self.scope is not None:
            self.scope.cancel()

    @contextmanager
    def cancellable(self) -> Iterator[anyio.CancelScope]:
        """Run a block that `stop` cancels."""
        with anyio.CancelScope() as scope:
            self.scope = scope
            if self.failure:
                scope.cancel()
            try:
                yield scope
            finally:
                self.scope = None


class SteeringMessage:
    """A text sent to an agent while it works, and how far it has come."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.accepted = False
        """The engine has it."""
        self.delivered = False
        """The agent has it, maybe before the engine has accepted it."""
        self.in_prompt = False
        """It is part of the prompt of an attempt, or of the session that an attempt continues."""

    @property
    def sent(self) -> bool:
        return self.accepted or self.delivered


class ActiveRun:
    """A run from its acceptance to its stored end."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        share: RunShare,
        budget: Budget,
        control: RunControl,
        recorder: Recorder,
        store: SessionStore,
        child_context: CallContext | None,
        worktree: RunWorktree,
        file_changes: FileChanges,
        servers: tuple[McpServer, ...] = (),
        server_environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.spec = spec
        self.servers = servers
        """The MCP servers that are started with it."""
        self.server_environment = server_environment
        self.share = share
        self.slot = share.slot()
        self.budget = budget
        self.control = control
        self.recorder = recorder
        self.child_context = child_context
        """The context of the calls its agent makes; None: it may not delegate."""
        self.worktree = worktree
        self.steering: list[SteeringMessage] = []
        """The messages sent to its agent, in any attempt."""
        self.collectors: list[AnswerCollector] = []
        """The answer of each attempt so far."""
        self.schema_failure: Failure | None = None
        """Why the last finalization of the current attempt was not accepted."""
        self.file_changes = file_changes
        self._store = store
        self._queued = recorder.redact(RunQueued.of(spec))
        self._attempts: list[Attempt] = []
        self._current: Attempt | None = None
        self._finalize_results: dict[str, Any] = {}
        """The results of finalize calls that have not returned yet."""
        self._started: float | None = None
        self._guards: GuardSet | None = None

    # -- queue and start ---------------------------------------------------------------------------

    @property
    def is_queued(self) -> bool:
        return self._guards is None

    @property
    def guards(self) -> GuardSet:
        """The guards of the run, once it has started."""
        assert self._guards is not None
        return self._guards

    async def refuse(self) -> None:
        """Record that the run was accepted, though it cannot start."""
        await self.recorder.record_redacted(self._queued)

    async def start(self) -> Failure | None:
        """Wait for a slot, record the start, and start the clock and the guards.

        Returns why the run must not start: it was stopped, or its budget is spent.
        """
        failure = self._cannot_start()
        if not failure and self.slot.try_acquire():
            await self.recorder.record_start(self._queued)
        else:
            await self.recorder.record_redacted(self._queued)
            if not failure:
                with self.control.cancellable():
                    await self.slot.acquire()
                failure = self._cannot_start()
            if not failure:
                await self.recorder.record(RunStarted())
        if failure := failure or self.control.failure:
            return failure
        self._started = anyio.current_time()
        self.file_changes.start(self.spec)
        for notice in self.spec.notices:
            await self.recorder.record(Notice("planning", notice))
        self._guards = create_guards(
            self.spec.limits, anyio.current_time(), self.budget, has_output_schema=self.spec.output_schema is not None
        )
        return None

    def _cannot_start(self) -> Failure | None:
        return self.control.failure or self.budget.exceeded_failure(RUN_NOT_STARTED)

    # -- steering and time -------------------------------------------------------------------------

    @property
    def undelivered(self) -> list[SteeringMessage]:
        """The messages that the engine has accepted and the agent has not seen yet."""
        return [message for message in self.steering if message.accepted and not message.delivered]

    def mark_delivered(self, text: str) -> None:
        """Note that the agent saw a text: the first such message, or the first of all if the engine reworded it."""
        waiting = [message for message in self.steering if not message.delivered]
        if waiting:
            min(waiting, key=lambda message: (message.text != text, not message.accepted)).delivered = True

    def extend(self, seconds: float) -> float | None:
        """Move the deadline and return the new timeout; None if the run is queued or being stopped."""
        scope = self.control.scope
        if self._guards is None or self.control.failure or (scope and scope.cancel_called):
            return None
        limits, timeout = self.spec.limits, self._guards.extend(seconds)
        longer = structs.replace(limits, timeout=timeout, ceiling=limits.ceiling + seconds)
        self.spec = structs.replace(self.spec, limits=longer)
        return timeout

    # -- attempts ----------------------------------------------------------------------------------

    def start_attempt(self, reason: str, model: str | None) -> Attempt:
        self.schema_failure = None
        self._current = Attempt(len(self._attempts) + 1, reason, model)
        self.collectors.append(AnswerCollector(self.spec.agent.fallback_models))
        return self._current

    def end_attempt(self, failure: Failure | None) -> None:
        assert self._current is not None
        self._attempts.append(structs.replace(self._current, failure=failure))
        self._current = None

    async def record(self, event: Event) -> None:
        """Store and publish an event, and collect it for the result."""
        self.collectors[-1].observe(await self.recorder.record(event))

    def check_finalization(self, event: Finalized) -> Finalized | Notice:
        """Return a finalization with its JSON value; a notice if the value does not match the output schema."""
        schema, final = self.spec.output_schema, event.finalization
        if schema is None or final.status == "ERROR":
            return event
        from retinue.output.schemas import match_result

        given = final.result if final.structured is None else final.structured
        value, violations = match_result(schema, given)
        if violations is None:
            return Finalized(structs.replace(final, structured=value))
        self.schema_failure = schema_failure(violations, value)
        return Notice(SCHEMA_REASON, f"The result did not match its output schema: {violations}")

    def observe_finalize_call(self, event: ToolCalled | ToolReturned) -> None:
        """Note why a finalize call was rejected, with its result: no later call may come."""
        if self.spec.output_schema is None or event.name != FINALIZE_TOOL:
            return
        if isinstance(event, ToolCalled):
            self._finalize_results[event.call] = event.args.get("result")
        elif event.call in self._finalize_results:
            result = self._finalize_results.pop(event.call)
            if event.is_error:
                self.schema_failure = schema_failure(event.text, result)

    async def load_history(self) -> tuple[Message, ...]:
        """Return the messages of the session so far, from its record.

        Raises:
            RefusedError: `storage`.
        """
        from retinue.sessions.messages import load_messages

        return await load_messages(self._store, self.spec.session)

    @property
    def has_written(self) -> bool:
        """True if anything but read-only tools ran."""
        return any(tool not in READ_ONLY_TOOLS for collector in self.collectors for tool in collector.tools_used)

    @property
    def native_session(self) -> str | None:
        """The engine's own session of the latest attempt that has one."""
        return next((c.native_session for c in reversed(self.collectors) if c.native_session), None)

    # -- end ---------------------------------------------------------------------------------------

    async def finish(self, failure: Failure | None) -> RunResult:
        """Store the end of the run, release its session, and return the result as callers may see it."""
        self.file_changes.end(self.spec.run)
        for message in self.undelivered:
            # Redacted first: a secret that is shortened or joined to one line is not recognized any more.
            quoted = to_one_line(self.recorder.redact(SteeringDelivered(message.text)).text, MAX_QUOTED_CHARS)
            await self.record(Notice("steer_missed", STEERING_NOT_DELIVERED.format(quoted)))
        if not failure and self._claims_work_without_tools():
            await self.record(Notice("suspicious_result", WORK_WITHOUT_TOOLS))
        changes = await self._close_worktree()
        result = self.recorder.redact_result(self._make_result(failure, changes), self._queued)
        with anyio.move_on_after(FINAL_WRITE_TIMEOUT, shield=True):
            try:
                await self.recorder.record_redacted(RunEnded.of(result))
            finally:
                await self.recorder.release()
        return self.recorder.with_storage_status(result)

    def _claims_work_without_tools(self) -> bool:
        """Return whether an agent that may change something claims so at once, though it called no tool."""
        may_change = any(tool not in READ_ONLY_TOOLS and not is_delegation(tool) for tool in self.spec.grant.tools)
        used = {tool for collector in self.collectors for tool in collector.tools_used}
        if not may_change or self.spec.resumes or used - {FINALIZE_TOOL} or len(self.collectors) > 1:
            return False
        final = self.collectors[-1].finalized
        answer = final.result if final and isinstance(final.result, str) else self.collectors[-1].best_answer()[0]
        return claims_work(answer)

    async def _close_worktree(self) -> WorktreeChanges | None:
        """Commit the changes in the worktree and return them; a failure of that is a notice."""
        try:
            return await self.worktree.close()
        except WorktreeError as error:
            record = self.record if self.collectors else self.recorder.record
            await record(Notice(WORKTREE, str(error)))
            return None

    def _make_result(self, failure: Failure | None, changes: WorktreeChanges | None) -> RunResult:
        spec, collectors, attempts = self.spec, self.collectors, self._attempts
        if self._current:  # the run was cancelled in the middle of an attempt
            attempts = [*attempts, structs.replace(self._current, failure=failure)]
        # The answer is the text of the latest attempt with the best kind of answer.
        answering = max(
            reversed(collectors), key=lambda c: _ANSWER_ORDER.index(c.best_answer()[1]), default=AnswerCollector()
        )
        last = collectors[-1] if collectors else AnswerCollector()
        text, status = answering.best_answer()
        tools_used: dict[str, int] = {}
        for collector in collectors:
            for tool, count in collector.tools_used.items():
                tools_used[tool] = tools_used.get(tool, 0) + count
        return RunResult(
            spec=spec,
            text=text,
            answer=status,
            items=tuple(item for collector in collectors for item in collector.items),
            usage=sum((collector.usage for collector in collectors), Usage()),
            failure=failure,
            exit_code=compute_exit_code(failure, last.process),
            elapsed=0.0 if self._started is None else anyio.current_time() - self._started,
            finalized=last.finalized,
            actual=ExecutionReport(
                engine=spec.engine,
                model=answering.model,
                declared_model=_declared_model(spec, answering.model),
                tools_granted=spec.grant.tools,
                tools_removed=spec.grant.removed,
                tools_missing=spec.grant.missing,
                tools_used=tools_used,
                not_applied=tuple(
                    dict.fromkeys(
                        (*spec.unsupported_preferences, *(each for c in collectors for each in c.not_applied))
                    )
                ),
                limits=spec.limits,
                attempts=tuple(attempts),
                nested_usage=self.budget.child_usage,
                dropped_bytes=sum(collector.dropped_bytes for collector in collectors),
                process=last.process,
                process_usage=sum_process_usage(collector.process_usage for collector in collectors),
                sandbox=spec.sandbox.report,
                worktree=changes,
                notices=(*spec.notices, *(notice for collector in collectors for notice in collector.notices)),
            ),
        )


def _declared_model(spec: RunSpec, answered: str | None) -> str | None:
    """Return the requested model, spelled as the engine spells it if that model answered."""
    declared = join_model(spec.agent.provider, spec.model)
    return answered if declared and same_model(declared, answered) else declared
