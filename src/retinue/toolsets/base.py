"""The contract of a toolset, and the parts all toolsets share: results, refusals, notices, partial results.

A toolset decodes tool input into a plan and renders results in its own words; it decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Protocol

import anyio
from msgspec import Struct, structs

from retinue.agents.agent import SourceLayer
from retinue.agents.registry import AgentListing, DefinitionStatus
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.results import REFUSAL_CODES, REFUSED_EXIT_CODE, AnswerStatus, RunResult
from retinue.model.runs import ToolUse
from retinue.model.tasks import CallContext, Plan, Task
from retinue.output.untrusted_text import (
    defang_markup,
    map_strings,
    sanitize_text,
    strip_control_characters,
    to_one_line,
)
from retinue.runtime.event_bus import SubscriberLaggedError
from retinue.runtime.orchestrator import OnRunsStarted, Orchestrator
from retinue.runtime.planner import AdmittedCall
from retinue.runtime.progress import MAX_ITEMS, CallProgress, RunView
from retinue.support.tasks import BackgroundTasks
from retinue.toolsets import inputs
from retinue.toolsets.inputs import JsonObject

FINAL_UPDATE_TIMEOUT = 1.0
"""Seconds a host has to take the last partial result before it gets the final one."""
MIN_UPDATE_INTERVAL = 0.05
"""Seconds between two partial results: each repeats the whole text so far, and no eye follows more."""

MAX_AGENTS = 100
"""Agents listed in the description of a tool."""
MAX_DESCRIPTION_CHARS = 200
"""Characters of one agent's description."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of a tool call: text for the model, details for programs."""

    text: str
    details: JsonObject
    is_error: bool = False
    """Set only where the system that defined the toolset throws."""
    exit_code: int = 0
    """For a command line that makes the call; hosts do not see it."""

    def as_json(self) -> dict[str, Any]:
        """Return the tool result in the shape hosts expect."""
        result: dict[str, Any] = {"content": [{"type": "text", "text": self.text}], "details": self.details}
        if self.is_error:
            result["isError"] = True
        return result


Sanitize = Callable[[str], str]
"""Removes from child text what must not leave."""

OnPartialResult = Callable[[ToolResult], Awaitable[None]]
"""Takes a partial result while the runs continue. A slow receiver misses some; one that raises `OSError` gets no
more. Neither delays the runs."""

RunTool = Callable[[Any, CallContext, OnPartialResult | None], Awaitable[ToolResult]]
"""Runs a tool with its raw arguments; wrong arguments are answered with a result, too."""


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """One tool as a host registers it."""

    name: str
    description: str
    input_schema: JsonObject
    run: RunTool


class ToolProvider(Protocol):
    name: str

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        """Return every tool by name, also those that may not be registered now: a call of one is refused."""

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        """Return the tools a host may register for this call context; empty if none may be used."""

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        """Return the result for input that is not JSON; a refusal of the call itself takes precedence."""


class Toolset(ToolProvider, Protocol):
    """Tools whose calls start runs, with the texts a host needs to display those runs."""

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        """Return why a run of the call failed, in the words of the toolset and safe to show."""

    def tool_session_id(self, session: str) -> str | None:
        """Return the id by which tools of the toolset find the session; None if none of them takes one."""


def refusal_result(failure: Failure, message: str, **details: Any) -> ToolResult:
    """Return the result of a call that started nothing."""
    error = {"code": str(failure.code), "message": message}
    return ToolResult(text=message, details={**details, "error": error}, is_error=True, exit_code=REFUSED_EXIT_CODE)


def add_skipped_file(failure: Failure, sentence: str) -> str:
    """Return the sentence, and why a file that was found for an unknown agent was skipped."""
    broken = failure.detail.get("broken")
    return f"{sentence}. The file of this agent was found and skipped: {broken}" if broken else sentence


# -- agents ------------------------------------------------------------------------------------------


def available_agents(orchestrator: Orchestrator, call: CallContext) -> list[AgentListing]:
    """Return the agents that would run if they were called."""
    agents = orchestrator.load_agents(call)
    return [
        entry
        for entry in agents.list_definitions()
        if entry.status is DefinitionStatus.USED and call.may_call(entry.agent.name, agents.resolve_name)
    ]


def describe_agent(orchestrator: Orchestrator, entry: AgentListing) -> str:
    """Return the description from the agent's file as one sanitized line: a model reads it."""
    description = defang_markup(to_one_line(orchestrator.redact(entry.agent.description), MAX_DESCRIPTION_CHARS))
    is_unaccepted = entry.agent.layer is SourceLayer.PROJECT and not entry.accepted
    return description + (" (belongs to the project, not approved by the user)" if is_unaccepted else "")


# -- results -----------------------------------------------------------------------------------------


def to_display_items(items: Iterable[str | ToolUse], clean: Sanitize) -> list[dict[str, Any]]:
    """Return the texts and tool calls of a run as hosts display them, with the arguments of the calls."""
    return [
        {"type": "text", "text": clean(item)}
        if isinstance(item, str)
        else {
            "type": "toolCall",
            "name": strip_control_characters(item.name),
            "args": map_strings(item.args, strip_control_characters),
        }
        for item in items
    ]


def find_newest_text(view: RunView) -> str:
    """Return the newest text of a run; empty if it has written none."""
    texts = [item for item in (*view.display_items(), view.partial) if isinstance(item, str) and item]
    return texts[-1] if texts else ""


def storage_warning(results: Sequence[RunResult]) -> tuple[str, ...]:
    """Return the warning for a model that results could not be stored, as a tuple; empty if all are stored."""
    unsaved = sum(not result.actual.saved for result in results)
    if not unsaved:
        return ()
    if len(results) == 1:
        return ("Warning: this session could not be stored. The session exists in memory until this process ends.",)
    them = "It is" if unsaved == 1 else "They are"
    return (
        f"Warning: {unsaved} of these sessions could not be stored. {them} kept in memory until this process ends.",
    )


# -- calls -------------------------------------------------------------------------------------------

RenderPartial = Callable[[CallProgress], ToolResult]


class OrchestratedToolset:
    """The parts of a call that every toolset shares: refusals, notices, running a plan with partial results."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator

    def failure_text(self, failure: Failure, call: CallContext) -> str:
        """Return why a run of the call failed, in the words of the toolset and safe to show."""
        raise NotImplementedError

    def tool_session_id(self, session: str) -> str | None:
        return None

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        try:
            self._orchestrator.authorize(call)
        except RefusedError as refusal:
            return self.refusal_result(refusal.failure, call, tool)
        failure = Failure(ErrorCode.INVALID_INPUT, f"The input of {tool} is not a JSON object: {problem}")
        return self.refusal_result(failure, call, tool)

    def refusal_result(self, failure: Failure, call: CallContext, tool: str) -> ToolResult:
        """Return the result of a call that started nothing."""
        return refusal_result(failure, self.failure_text(failure, call))

    def append_notices(self, result: ToolResult, notices: Iterable[str]) -> ToolResult:
        """Return the result with the notices as the last lines of its text, redacted because they may quote input."""
        return structs.replace(result, text="\n\n".join([result.text, *map(self.redact, notices)]))

    def redact(self, text: str) -> str:
        """Return the text redacted and sanitized: it may quote input or a file."""
        return sanitize_text(self._orchestrator.redact(text))

    def list_agents(self, call: CallContext) -> list[str]:
        """Return the available agents, a line each, for the description of a tool."""
        agents = available_agents(self._orchestrator, call)
        lines = [
            f"- {entry.agent.name}: {describe_agent(self._orchestrator, entry)}" for entry in agents[:MAX_AGENTS]
        ]
        if len(agents) > MAX_AGENTS:
            lines.append(f"- … and {len(agents) - MAX_AGENTS} more")
        return lines

    async def run_plan(
        self,
        plan: Plan,
        call: CallContext,
        render: RenderPartial,
        update: OnPartialResult | None,
        on_started: OnRunsStarted | None = None,
        *,
        admitted: AdmittedCall | None = None,
    ) -> tuple[RunResult, ...]:
        """Run the plan and return its results; meanwhile send partial results to `update`, if there is one.

        Raises:
            RefusedError: the whole call was refused; nothing was started.
        """
        if update is None:
            return await self._orchestrator.run_plan(plan, call, on_started, admitted=admitted)
        return (await self.follow_plan(plan, call, render, update, on_started, admitted=admitted))[0]

    async def follow_plan(
        self,
        plan: Plan,
        call: CallContext,
        render: RenderPartial,
        update: OnPartialResult | None,
        on_started: OnRunsStarted | None = None,
        *,
        admitted: AdmittedCall | None = None,
    ) -> tuple[tuple[RunResult, ...], CallProgress]:
        """Do the same and return the progress of the runs, too. The last partial result has all events.

        Raises:
            RefusedError: the whole call was refused; nothing was started.
        """
        progress = CallProgress()
        send = update

        async def publish(records: Iterable[EventRecord]) -> None:
            nonlocal progress, send
            earlier = progress
            for record in records:
                if _belongs_to_call(call, record):
                    progress = progress.apply(record)
            if send and progress is not earlier:
                try:
                    await send(render(progress))
                except OSError:
                    send = None  # the receiver is gone

        async def keep_publishing() -> None:
            with suppress(SubscriberLaggedError):  # the receiver was too slow: the final result has the rest
                async for record in subscription:
                    await publish((record, *subscription.drain()))
                    await anyio.sleep(MIN_UPDATE_INTERVAL)

        async with self._orchestrator.subscribe(deltas=update is not None) as subscription:
            async with BackgroundTasks(keep_publishing):
                results = await self._orchestrator.run_plan(plan, call, on_started, admitted=admitted)
            with anyio.move_on_after(FINAL_UPDATE_TIMEOUT), suppress(SubscriberLaggedError):
                await publish(subscription.drain())
        return results, progress


class SubagentToolset(OrchestratedToolset):
    """A toolset with one tool, `subagent`, that runs one task of one agent."""

    description: str
    schema: JsonObject
    needs_agents = True
    """Whether the tool is registered only if there is an agent to call."""

    def __init__(self, orchestrator: Orchestrator, home: str) -> None:
        super().__init__(orchestrator)
        self._home = home

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {"subagent": self.run_subagent}

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        if call.lineage.depth > 0:
            return ()  # a child never registers the tool, whatever depth the settings allow
        try:
            self._orchestrator.authorize(call)
        except RefusedError:
            return ()
        agents = self.list_agents(call)
        if self.needs_agents and not agents:
            return ()
        text = "\n".join([self.description, "", "Agents:", *agents])
        return (ToolDefinition(name="subagent", description=text, input_schema=self.schema, run=self.run_subagent),)

    async def run_subagent(
        self, arguments: Any, call: CallContext, update: OnPartialResult | None = None
    ) -> ToolResult:
        """Run one task and return its answer when it has ended; a failure is an answer, too."""
        # Every partial result repeats the texts before it: each is sanitized once.
        clean = lru_cache(maxsize=2 * MAX_ITEMS)(partial(self.sanitize, cwd=call.cwd))
        try:
            admitted = self._orchestrator.authorize(call)
            given = inputs.require_object(arguments, "subagent", " with agent and task")
            fields = inputs.decode_fields(self.schema["properties"], given, required=self.schema["required"])
            plan = Plan(tasks=(self.make_task(fields),))
            notices = self.check_unknown_fields(inputs.unknown_fields(self.schema["properties"], given))
            (result,) = await self.run_plan(
                plan,
                self.prepare_call(structs.replace(call, notices=(*call.notices, *notices))),
                lambda progress: self.render_partial(next(iter(progress.runs.values())), clean),
                update,
                admitted=admitted,
            )
        except RefusedError as refusal:
            return self.refusal_result(refusal.failure, call, "subagent")
        failure = result.failure
        if failure is None:
            return self.append_notices(self.completed_result(result), notices)
        # A later attempt may not have started; the answers of the earlier ones are kept.
        if failure.code in REFUSAL_CODES and result.answer is AnswerStatus.NONE:
            return self.refusal_result(failure, call, "subagent")
        return self.append_notices(self.failed_result(result, failure), notices)

    def make_task(self, fields: JsonObject) -> Task:
        return Task(agent=fields["agent"], prompt=fields["task"])

    def check_unknown_fields(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the notices on unknown input fields, or refuse the call."""
        raise NotImplementedError

    def prepare_call(self, call: CallContext) -> CallContext:
        """Return the call with the options of the toolset."""
        return call

    def sanitize(self, text: str, cwd: str = "") -> str:
        return sanitize_text(text)

    def render_partial(self, view: RunView, clean: Sanitize) -> ToolResult:
        raise NotImplementedError

    def completed_result(self, result: RunResult) -> ToolResult:
        raise NotImplementedError

    def failed_result(self, result: RunResult, failure: Failure) -> ToolResult:
        raise NotImplementedError


def _belongs_to_call(call: CallContext, record: EventRecord) -> bool:
    """Return whether a run of this call emitted the event; the calls of two models may have the same id."""
    theirs, ours = record.origin, call.lineage
    return (
        theirs.parent_tool_use_id == ours.parent_call
        and theirs.parent_run == ours.parent_run
        and theirs.root == ours.root
    )
