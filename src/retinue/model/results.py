"""The result of a run: its answer, its end, and a report of its execution."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, Literal, Self, TypeVar

import msgspec
from msgspec import Struct, field

from retinue.model.errors import ErrorCode, Failure
from retinue.model.runs import Limits, RemovedTool, RunSpec, ToolUse
from retinue.model.sandbox import SandboxReport, describe_sandbox

MAX_USAGE_VALUE = 10**15
"""Largest usage that is believed from a provider."""

REFUSED_EXIT_CODE = 2
"""Exit status of a call that was refused before anything ran."""
CANCELLED_EXIT_CODE = 130
"""Exit status of a call that was cancelled."""

REFUSAL_CODES = frozenset(
    {
        ErrorCode.INVALID_INPUT,
        ErrorCode.UNKNOWN_AGENT,
        ErrorCode.AGENT_DISABLED,
        ErrorCode.AGENT_UNTRUSTED,
        ErrorCode.UNKNOWN_ENGINE,
        ErrorCode.UNKNOWN_SKILL,
        ErrorCode.CONFLICT,
        ErrorCode.UNSUPPORTED,
        ErrorCode.SPAWN_FAILED,
        ErrorCode.SESSION_NOT_FOUND,
        ErrorCode.SESSION_BUSY,
        ErrorCode.STORAGE,
    }
)
"""Failures of a run that never started: a call with only that task was refused."""


class Usage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Usage of the models behind a run, summed over its assistant messages."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: float | None = None
    """In dollars; None if unknown."""
    turns: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def clamped(self) -> Usage:
        """Return the usage with impossible values, such as negative numbers, clamped."""
        counts = ("input", "output", "cache_read", "cache_write", "turns")
        found = {name: min(max(getattr(self, name), 0), MAX_USAGE_VALUE) for name in counts}
        cost = (
            None
            if self.cost is None or not math.isfinite(self.cost)
            else min(max(self.cost, 0.0), float(MAX_USAGE_VALUE))
        )
        return Usage(**found, cost=cost)

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        # A free part does not make the sum known if the price of the other part is unknown.
        is_unknown = not any(costs) and any(part.cost is None and part.tokens for part in (self, other))
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cost=sum(costs) if costs and not is_unknown else None,
            turns=self.turns + other.turns,
        )


class ProcessUsage(Struct, frozen=True, rename="camel"):
    """CPU time and memory of processes, each with the descendants it waited for, as Linux counts them.

    Not included: descendants that lost their parent, or that were ended after it.
    """

    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    """The most memory that one of the processes had at once, with the pages of files in it. At least that of the
    watchdog, which starts them, about 10 MB."""

    def __add__(self, other: ProcessUsage) -> ProcessUsage:
        return ProcessUsage(
            self.cpu_seconds + other.cpu_seconds, max(self.peak_memory_bytes, other.peak_memory_bytes)
        )


def sum_process_usage(usages: Iterable[ProcessUsage | None]) -> ProcessUsage | None:
    """Return what all processes used; None if nothing is known of any."""
    known = [usage for usage in usages if usage is not None]
    return sum(known, ProcessUsage()) if known else None


class ProcessEnd(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How a child process ended."""

    code: int | None = None
    signal: int | None = None
    stderr: str = ""
    """The end of its stderr, if it failed or ended before its agent was done."""
    out_of_memory: bool = False
    """It was killed while the kernel killed a process for lack of memory."""

    @property
    def signal_reason(self) -> str:
        """Why a signal that Retinue did not send ended it, as far as that is known."""
        return "out_of_memory" if self.out_of_memory else "child_signal"

    def describe(self) -> str:
        """Return how it ended, as a predicate: "ended with exit code 3"."""
        if self.out_of_memory:
            return (
                f"was ended by signal {self.signal} when the kernel killed a process for lack of memory (run fewer "
                "agents at once, or give this machine or container more memory)"
            )
        if self.signal:
            return f"was ended by signal {self.signal}"
        return "closed its output" if self.code is None else f"ended with exit code {self.code}"

    def quote_stderr(self) -> str:
        """Return the end of its stderr as a paragraph that follows a sentence; empty where there is none."""
        return f"\nThe end of its stderr:\n{self.stderr}" if self.stderr else ""


class WorktreeChanges(Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes of a run in a git worktree of its own, committed on a branch of their own."""

    path: str
    branch: str
    base: str
    """The commit that the worktree started from."""
    head: str
    files: int
    insertions: int
    deletions: int
    patch_file: str


def describe_changes(changes: WorktreeChanges) -> str:
    """Return where the changes of a worktree are, in a sentence."""
    files = f"{changes.files} file{'' if changes.files == 1 else 's'}"
    counts = f"+{changes.insertions} −{changes.deletions}"
    return f"{files} changed ({counts}) on branch {changes.branch}, in {changes.path}"


class Attempt(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One attempt within a run."""

    number: int
    reason: str
    """Why it was made: `first`, `retry`, `fallback`, `finalize`, `hook`."""
    model: str | None = None
    failure: Failure | None = None


class ExecutionReport(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The actual execution of a run, beside what was declared."""

    engine: str = ""
    model: str | None = None
    """The model that gave the answer."""
    declared_model: str | None = None
    tools_granted: tuple[str, ...] = ()
    tools_removed: tuple[RemovedTool, ...] = ()
    tools_missing: tuple[str, ...] = ()
    tools_used: Mapping[str, int] = field(default_factory=dict)
    not_applied: tuple[str, ...] = ()
    limits: Limits = Limits()
    attempts: tuple[Attempt, ...] = ()
    nested_usage: Usage = Usage()
    """What the runs below it consumed; not part of its own usage."""
    masks: int = 0
    """Number of redacted secrets."""
    dropped_bytes: int = 0
    process: ProcessEnd | None = None
    process_usage: ProcessUsage | None = None
    """What the processes of the run used, all attempts together; None if it had none or this is not reported."""
    sandbox: SandboxReport = field(default_factory=SandboxReport)
    """How far the run was confined, by what, and what was left open."""
    worktree: WorktreeChanges | None = None
    """The changes in its worktree; None without a worktree, or if nothing was changed."""
    notices: tuple[str, ...] = ()
    saved: bool = True
    """Whether all of it is in the store."""


def describe_confinement(actual: ExecutionReport) -> tuple[str, ...]:
    """Return the sandbox of a run and where its changes are, each in a line; nothing of what it did not have."""
    sandbox = describe_sandbox(actual.sandbox)
    lines = (f"Sandbox: {sandbox}" if sandbox else "", describe_changes(actual.worktree) if actual.worktree else "")
    return tuple(filter(None, lines))


class AnswerStatus(StrEnum):
    """The kind of text in a result."""

    FINAL = "final"
    PARTIAL = "partial"
    DIAGNOSIS = "diagnosis"
    NONE = "none"

    @property
    def is_text(self) -> bool:
        """True for text of the agent; a diagnosis is none."""
        return self in (AnswerStatus.FINAL, AnswerStatus.PARTIAL)


class Finalization(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The outcome of a task as its agent reported it."""

    status: Literal["SUCCESS", "ERROR"]
    result: str | None = None
    """The answer as text; JSON if it is another value."""
    error: str | None = None
    structured: Any = None
    """The answer as a JSON value, if an output schema was given."""

    @classmethod
    def from_arguments(cls, arguments: Any) -> Self:
        """Return the finalization in the arguments of a finalize call.

        Raises:
            msgspec.ValidationError: they are not those of the tool.
        """
        given = msgspec.convert(arguments, _FinalizeArguments)
        value = given.result
        if value is None or isinstance(value, str):
            return cls(given.status, value, given.error)
        text = msgspec.json.encode(value).decode()
        return cls(given.status, text, given.error, value if given.status == "SUCCESS" else None)

    @property
    def is_valid(self) -> bool:
        """True if a success has a result and an error has a description."""
        statement = self.result if self.status == "SUCCESS" else self.error
        return bool(statement and statement.strip())


class _FinalizeArguments(Struct, frozen=True):
    """The arguments of a finalize call, whatever its schema."""

    status: Literal["SUCCESS", "ERROR"]
    result: Any = None
    error: str | None = None


class RunResult(Struct, frozen=True, kw_only=True):
    """The outcome of a run. Branch on `failure`: None means it completed."""

    spec: RunSpec
    text: str = ""
    answer: AnswerStatus = AnswerStatus.NONE
    items: tuple[str | ToolUse, ...] = ()
    """What a screen shows of it: texts and tool calls in the order they came."""
    usage: Usage = Usage()
    failure: Failure | None = None
    exit_code: int = 0
    elapsed: float = 0.0
    finalized: Finalization | None = None
    session_file: str | None = None
    actual: ExecutionReport = ExecutionReport()

    @property
    def run(self) -> str:
        """The id of the run. Empty if none was started."""
        return self.spec.run

    @property
    def session(self) -> str:
        """The id of the session, by which it can be continued. Empty if there is none."""
        return self.spec.session

    @property
    def was_started(self) -> bool:
        """True if there was a run; False if the task was refused and nothing was stored."""
        return bool(self.spec.run)

    @property
    def agent(self) -> str:
        return self.spec.agent.name

    @property
    def structured(self) -> Any:
        """The result as a JSON value, if an output schema was given and the agent finalized with success."""
        return self.finalized.structured if self.finalized else None


OutputType = TypeVar("OutputType")


class StructuredResult(RunResult, Generic[OutputType], frozen=True, kw_only=True):
    """The outcome of a run whose result was requested as a type."""

    structured: OutputType | None = None
    """The result as a value of that type; None if the run failed or its agent finalized with an error."""


def compute_exit_code(failure: Failure | None, process: ProcessEnd | None = None) -> int:
    """Return the exit code of a run: 0 if it completed, else by its failure or its process."""
    match failure:
        case None:
            return 0
        case Failure(code=ErrorCode.TIMEOUT | ErrorCode.IDLE_TIMEOUT):
            return 124
        case Failure(code=ErrorCode.ABORTED):
            return 130
        case Failure(code=ErrorCode.SIGNALLED) if process and process.signal:
            return 128 + process.signal
        case _:
            return (process and process.code) or 1


def has_run(result: RunResult) -> bool:
    """Return whether an agent did anything: False for a refused task and for an engine that could not start."""
    if not result.was_started:
        return False
    is_refusal = result.failure is not None and result.failure.code in REFUSAL_CODES
    return not is_refusal or result.answer.is_text


def compute_exit_status(results: Sequence[RunResult]) -> int:
    """Return the exit status of a call: 0 all completed, 130 cancelled, 124 only timeouts, 2 nothing ran, else 1."""
    if results and not any(map(has_run, results)):
        return REFUSED_EXIT_CODE
    codes = {result.failure.code for result in results if result.failure}
    if ErrorCode.ABORTED in codes:
        return CANCELLED_EXIT_CODE
    if codes and codes <= {ErrorCode.TIMEOUT, ErrorCode.IDLE_TIMEOUT}:
        return 124
    return 1 if codes else 0
