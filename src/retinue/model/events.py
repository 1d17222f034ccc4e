"""The events of a run: one typed stream from every engine, in this order.

    run_queued                      accepted, durable
    └─ run_started                  has a slot
       ├─ attempt_started           first | retry | fallback | finalize
       │  ├─ thinking_delta, text_delta, tool_delta      live only, never stored
       │  ├─ thinking, text                              whole blocks
       │  ├─ tool_called → tool_returned
       │  ├─ message_ended                               usage, stop reason
       │  ├─ steered                                     what others said to the agent while it worked
       │  ├─ model_changed, notice, finalized, deadline_extended
       │  └─ process_ended                               engines with a process
       └─ run_ended                 always, once, last, over all attempts

Engines emit bare events; `Stamped` adds whose they are. On the wire a stamped event is one JSON object per
line: `{v, type, seq, time, run, session, root, parentRun, parentToolUseId, depth, …}`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field, structs

from retinue.model.errors import Failure
from retinue.model.results import (
    AnswerStatus,
    ExecutionReport,
    Finalization,
    ProcessEnd,
    ProcessUsage,
    RunResult,
    Usage,
)
from retinue.model.runs import Compaction, RunSpec, ToolArguments
from retinue.model.sandbox import SandboxReport, describe_sandbox

StopReason = Literal["stop", "tool_use", "length", "error", "aborted"]


class RunQueued(Struct, frozen=True, kw_only=True, tag="run_queued", rename="camel", omit_defaults=True):
    """A run was accepted. Contains what is needed to list and to continue it."""

    name: str
    agent: str
    task: str
    cwd: str
    surface: str
    engine: str = ""
    model: str | None = None
    timeout: float = 0.0
    tools: tuple[str, ...] = ()
    resumes: bool = False
    layer: str = ""
    digest: str = ""
    provider: str | None = None
    thinking: str | None = None
    vault: str | None = None
    """The vault, in which its start and end are also logged."""
    sandbox: SandboxReport | None = None
    """How far the run is confined, by what, and what is left open; None without a sandbox."""
    repository: str = ""
    """The repository from which the worktree of the run is made; empty if it works in the files of the user."""

    @classmethod
    def of(cls, spec: RunSpec) -> RunQueued:
        return cls(
            name=spec.name,
            agent=spec.agent.name,
            task=spec.task,
            cwd=spec.cwd,
            surface=spec.toolset,
            engine=spec.engine,
            model=spec.model,
            timeout=spec.limits.timeout,
            tools=spec.grant.tools,
            resumes=spec.resumes,
            layer=spec.agent.layer,
            digest=spec.agent.digest,
            provider=spec.agent.provider,
            thinking=spec.agent.thinking,
            vault=spec.vault_path,
            sandbox=spec.sandbox.report if spec.sandbox.is_on else None,
            repository=spec.worktree.repository if spec.worktree else "",
        )

    def describe_confinement(self) -> tuple[str, ...]:
        """Return the sandbox and the worktree of the run, each in a line; nothing of what it does not have."""
        sandbox = f"Sandbox: {describe_sandbox(self.sandbox)}" if self.sandbox else ""
        worktree = f"Worktree: {self.cwd}, of {self.repository}" if self.repository else ""
        return tuple(filter(None, (sandbox, worktree)))


class RunStarted(Struct, frozen=True, tag="run_started", rename="camel"):
    """The run has a slot; its time counts from here."""


class AttemptStarted(Struct, frozen=True, tag="attempt_started", rename="camel", omit_defaults=True):
    number: int
    reason: str
    model: str | None = None


class TextDelta(Struct, frozen=True, tag="text_delta", rename="camel"):
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta", rename="camel"):
    text: str


class ToolDelta(Struct, frozen=True, tag="tool_delta", rename="camel"):
    """Output of a running tool since the last event."""

    call: str
    text: str


class OutputBytesCounted(Struct, frozen=True, tag="output_counted", rename="camel", omit_defaults=True):
    """Bytes that a child process wrote since the last count; only the output guard receives them."""

    stdout: int = 0
    """Bytes of lines that are kept."""
    stderr: int = 0
    raw: int = 0
    dropped: int = 0
    """Bytes of lines that were replaced by a stub."""


class ProcessUsageCounted(Struct, frozen=True, tag="process_usage_counted", rename="camel"):
    """What a process of the run used since the last count; only the result of the run receives it."""

    usage: ProcessUsage


class Thinking(Struct, frozen=True, tag="thinking", rename="camel"):
    text: str


class Text(Struct, frozen=True, tag="text", rename="camel"):
    """One whole text block of an assistant message."""

    text: str


class ToolCalled(Struct, frozen=True, tag="tool_called", rename="camel"):
    call: str
    name: str
    args: ToolArguments


class ToolReturned(Struct, frozen=True, tag="tool_returned", rename="camel", omit_defaults=True):
    call: str
    name: str
    text: str = ""
    is_error: bool = False


class MessageEnded(Struct, frozen=True, kw_only=True, tag="message_ended", rename="camel", omit_defaults=True):
    """An assistant message is complete; its blocks came before."""

    role: Literal["assistant"] = "assistant"
    stop_reason: StopReason
    model: str | None = None
    usage: Usage = Usage()
    error: str | None = None
    """The provider's error, if the stop reason is `error`."""

    @property
    def turn(self) -> Usage:
        """Return its usage as that of one turn; a request that the provider failed is none."""
        return structs.replace(self.usage, turns=0 if self.stop_reason == "error" else 1)


class ModelChanged(Struct, frozen=True, tag="model_changed", rename="camel"):
    """The next model of `fallback_models` takes over."""

    before: str | None
    after: str
    reason: str


CONTINUED_NOTICE_CODE = "continued"
"""The code of the notice that the next message goes on where the last one was cut off: both are one answer."""


class Notice(Struct, frozen=True, tag="notice", rename="camel", omit_defaults=True):
    """Something a person should know that did not end the run."""

    code: str
    message: str
    compaction: Compaction | None = None
    """The summary that replaces earlier messages, if the notice reports a compaction."""
    preference: str | None = None
    """The preference that is not applied, by its name in an agent's file."""


BUDGET_WAIT_NOTICE_CODE = "budget_wait"
"""The code of the notice that a request waits until other runs give back what they did not spend."""
BUDGET_WAIT_END_NOTICE_CODE = "budget_wait_end"


class SteeringDelivered(Struct, frozen=True, tag="steered", rename="camel"):
    """A steering message was delivered: the agent's model reads it next."""

    text: str


class DeadlineExtended(Struct, frozen=True, tag="deadline_extended", rename="camel"):
    """The timeout of the run was extended."""

    seconds: float
    timeout: float
    """The new timeout in seconds."""


class Finalized(Struct, frozen=True, tag="finalized", rename="camel"):
    """The agent called its finalize tool with valid arguments."""

    finalization: Finalization


class ProcessEnded(Struct, frozen=True, tag="process_ended", rename="camel"):
    end: ProcessEnd


class EngineSessionStarted(Struct, frozen=True, tag="native_session", rename="camel"):
    """The engine's own session, for continuing it."""

    session: str = field(name="nativeSession")
    """The id or path of the engine's session; `session` is Retinue's own."""


class RunEnded(Struct, frozen=True, kw_only=True, tag="run_ended", rename="camel", omit_defaults=True):
    """The last event of a run, over all its attempts."""

    text: str = ""
    answer: AnswerStatus = AnswerStatus.NONE
    failure: Failure | None = None
    exit_code: int = 0
    usage: Usage = Usage()
    elapsed: float = 0.0
    finalized: Finalization | None = None
    actual: ExecutionReport = ExecutionReport()

    @classmethod
    def of(cls, result: RunResult) -> RunEnded:
        return cls(
            text=result.text,
            answer=result.answer,
            failure=result.failure,
            exit_code=result.exit_code,
            usage=result.usage,
            elapsed=result.elapsed,
            finalized=result.finalized,
            actual=result.actual,
        )


EphemeralEvent = TextDelta | ThinkingDelta | ToolDelta | OutputBytesCounted | ProcessUsageCounted
"""Events that are shown or counted and never stored."""

PersistedEvent = (
    RunQueued
    | RunStarted
    | AttemptStarted
    | Thinking
    | Text
    | ToolCalled
    | ToolReturned
    | MessageEnded
    | ModelChanged
    | Notice
    | SteeringDelivered
    | DeadlineExtended
    | Finalized
    | ProcessEnded
    | EngineSessionStarted
    | RunEnded
)
Event = EphemeralEvent | PersistedEvent

COUNTED_EVENTS = (OutputBytesCounted, ProcessUsageCounted)
"""Events that are not even shown."""
EPHEMERAL_EVENTS = (TextDelta, ThinkingDelta, ToolDelta, *COUNTED_EVENTS)
HIDDEN_NOTICE_CODES = frozenset({"missing_tools", BUDGET_WAIT_END_NOTICE_CODE})
"""Codes of notices that belong in the report of a run, not on a live screen."""
SYNCED_EVENTS = (RunQueued, RunStarted, Finalized, RunEnded)
"""Events synced to disk before they are published."""
