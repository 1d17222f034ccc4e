"""The tools of the mounted toolsets with their output schemas, and the agents as prompts, for one MCP client.

Nothing here uses the protocol's own types: `sdk` converts to them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import anyio
import msgspec
from msgspec import Struct, structs

from retinue.agents.registry import DefinitionStatus
from retinue.client import Retinue
from retinue.model.results import REFUSED_EXIT_CODE
from retinue.model.tasks import CallContext
from retinue.output.untrusted_text import defang_markup, to_one_line
from retinue.servers.lifecycle import ServerStartError
from retinue.servers.mcp.call_tracker import CallTracker, TrackedCall
from retinue.servers.mcp.jobs import ReportProgress, TaskRegistry, ToolAnswer
from retinue.toolsets.base import ToolProvider, ToolResult

Schema = Mapping[str, Any]

TEXT_SCHEMA: Schema = {"type": "string"}
COUNT_SCHEMA: Schema = {"type": "integer"}
OBJECT_SCHEMA: Schema = {"type": "object"}
TEXT_LIST_SCHEMA: Schema = {"type": "array", "items": TEXT_SCHEMA}
ANY_SCHEMA: Schema = {}


class OutputSchema(Struct, frozen=True):
    """The output of one tool. A tool that does not dispatch agents changes nothing."""

    schema: Schema
    """Of the structured content. Most hosts show this to their model instead of the text, so it includes the text."""
    dispatches: bool = False
    is_immediate: bool = False
    """Whether it answers before the agents it dispatches are done."""
    uses_details_only: bool = False
    """Whether the output is the details of the result, which are long for other toolsets: hosts draw them."""

    def build_structured(self, text: str, details: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the structured content of an answer."""
        if self.uses_details_only:
            return details
        return {"text": text, **{key: details[key] for key in self.schema["properties"] if key in details}}


def _object_schema(**properties: Schema) -> Schema:
    """Return the schema of an object with these properties; none is required, as a refusal has only `error`."""
    return {"type": "object", "properties": {**properties, "error": OBJECT_SCHEMA}}


def _text_object_schema(**properties: Schema) -> Schema:
    """Return such a schema with the text of the result."""
    return _object_schema(text=TEXT_SCHEMA, **properties)


OUTPUT_SCHEMAS: Mapping[tuple[str, str], OutputSchema] = {
    ("single", "subagent"): OutputSchema(
        _text_object_schema(runId=TEXT_SCHEMA, structured=ANY_SCHEMA), dispatches=True
    ),
    ("sticky", "subagent"): OutputSchema(
        _text_object_schema(sessionId=TEXT_SCHEMA, structured=ANY_SCHEMA), dispatches=True
    ),
    ("fanout", "delegate_to_subagents"): OutputSchema(
        _text_object_schema(globalStatus=TEXT_SCHEMA, sessionIds=TEXT_LIST_SCHEMA, structured=ANY_SCHEMA),
        dispatches=True,
    ),
    ("fanout", "get_subagent_output"): OutputSchema(
        _text_object_schema(sessionId=TEXT_SCHEMA, status=TEXT_SCHEMA, structured=ANY_SCHEMA)
    ),
    ("fanout", "get_subagent_session"): OutputSchema(_text_object_schema(sessionId=TEXT_SCHEMA, status=TEXT_SCHEMA)),
    ("fanout", "list_subagent_profiles"): OutputSchema(_text_object_schema(count=COUNT_SCHEMA)),
    ("nested", "spawn_subagent"): OutputSchema(
        _text_object_schema(mode=TEXT_SCHEMA, structured=ANY_SCHEMA), dispatches=True
    ),
    ("nested", "agent_info"): OutputSchema(_text_object_schema(name=TEXT_SCHEMA)),
    ("background", "subagent_start"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA), dispatches=True, is_immediate=True, uses_details_only=True
    ),
    ("background", "subagent_status"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA, doing=TEXT_SCHEMA), uses_details_only=True
    ),
    ("background", "subagent_wait"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA, result=TEXT_SCHEMA), uses_details_only=True
    ),
    ("background", "subagent_steer"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA), dispatches=True, is_immediate=True, uses_details_only=True
    ),
    ("background", "subagent_cancel"): OutputSchema(
        _object_schema(id=TEXT_SCHEMA, state=TEXT_SCHEMA), uses_details_only=True
    ),
}
"""By toolset and tool. Only the properties a program would read are listed: every word costs the host tokens."""


def find_conflict(toolsets: Sequence[str]) -> str | None:
    """Return why these toolsets cannot be mounted together; None if they can."""
    owners: dict[str, str] = {}
    for toolset, tool in OUTPUT_SCHEMAS:
        if toolset in toolsets and owners.setdefault(tool, toolset) != toolset:
            return f"The toolsets {owners[tool]} and {toolset} both have a tool {tool}: choose one of the toolsets."
    return None


MAX_CALLS = 16_384
"""Calls of one client in flight; more are refused. Far below this they wait for a slot, at about 25 KB each."""
MIN_UPDATE_INTERVAL = 0.5
"""Seconds between two messages about the progress of a call."""
DETAILS_KEY = "retinue/details"
"""The key in a result's `_meta` of the details the toolset gives hosts and programs beside its text."""
RUNS_KEY = "retinue/runs"
"""The key in a result's `_meta` of a report of each run, with declared and actual execution."""
MAX_PROMPTS = 100
MAX_DESCRIPTION_CHARS = 200
"""Of the description of an agent."""
DELEGATION_TOOLS = ("subagent", "spawn_subagent", "delegate_to_subagents", "subagent_start")
"""Tools that give an agent a task, the simplest first."""


class PromptAgent(Struct, frozen=True):
    """An agent as a host offers it to its user: as a prompt."""

    name: str
    description: str


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool as a client sees it."""

    name: str
    description: str
    input_schema: Schema
    output_schema: Schema
    read_only: bool
    open_world: bool


class ToolServer:
    """The tools of one client."""

    def __init__(
        self,
        retinue: Retinue,
        tracker: CallTracker,
        toolsets: Sequence[ToolProvider],
        *,
        roots: Sequence[str],
        max_calls: int = MAX_CALLS,
        output_schemas: Mapping[tuple[str, str], OutputSchema] = OUTPUT_SCHEMAS,
        tasks: TaskRegistry | None = None,
    ) -> None:
        self.tasks = tasks
        """Calls that may outlast their requests; None if tasks are off."""
        self._retinue = retinue
        self._tracker = tracker
        self._toolsets = toolsets
        self._roots = tuple(roots)
        self._tools = {name: (toolset, run) for toolset in toolsets for name, run in toolset.handlers.items()}
        self._delegation_tool = next((tool for tool in DELEGATION_TOOLS if tool in self._tools), None)
        self._max_calls = max_calls
        self._output_schemas = output_schemas
        self._in_flight = 0

    def list_tools(self) -> list[McpTool]:
        """Return the tools that may be used now; their descriptions list the current agents."""
        return [
            self._describe_tool(toolset, tool.name, tool.description, tool.input_schema)
            for toolset in self._toolsets
            for tool in toolset.list_tools(self._retinue.call(toolset.name))
        ]

    def has_tool(self, tool: str) -> bool:
        return tool in self._tools

    def is_long_running(self, tool: str) -> bool:
        """Return whether a call is answered only when its agents are done."""
        shape = self._output_schemas[self._tools[tool][0].name, tool]
        return shape.dispatches and not shape.is_immediate

    def list_agents(self) -> list[PromptAgent]:
        """Return the runnable agents, if a tool can give them a task. Descriptions are one line of plain text."""
        if not self._delegation_tool or not self.list_tools():
            return []
        entries = self._retinue.roster().list_definitions()
        agents = [entry.agent for entry in entries if entry.status is DefinitionStatus.USED][:MAX_PROMPTS]
        clean = self._retinue.redact
        return [
            PromptAgent(agent.name, defang_markup(to_one_line(clean(agent.description), MAX_DESCRIPTION_CHARS)))
            for agent in agents
        ]

    def render_prompt(self, agent: str, task: str) -> str | None:
        """Return the prompt by which a user gives a task to an agent; None if there is no such agent."""
        if agent not in {known.name for known in self.list_agents()}:
            return None
        return (
            f'Give this task to the agent "{agent}" with the tool {self._delegation_tool}, with all the context it '
            "needs, and report what it found."
            f"\n\n{task}"
        )

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        conversation: str | None = None,
        report: ReportProgress | None = None,
    ) -> ToolAnswer:
        """Call a tool and report the progress of its runs meanwhile; cancelling the call ends its runs.

        `conversation` identifies a conversation of the client; None if the transport has only one.
        """
        toolset, run = self._tools[tool]
        output_schema = self._output_schemas[toolset.name, tool]
        if self._in_flight >= self._max_calls:
            return _build_answer(output_schema, _too_many_calls_result(self._max_calls), None)
        call = self._call_context(toolset.name, conversation)
        self._in_flight += 1
        try:
            with self._tracker.track(call.lineage.parent_call) as tracked_call:
                result = await _run_reporting(lambda: run(dict(arguments), call, None), tracked_call, report)
                self._tracker.catch_up()
                return _build_answer(output_schema, result, tracked_call)
        finally:
            self._in_flight -= 1

    def _call_context(self, toolset: str, conversation: str | None) -> CallContext:
        call = self._retinue.call(toolset)
        lineage = call.lineage
        if conversation is not None:
            lineage = structs.replace(lineage, root=f"{lineage.root}-{conversation}")
        return structs.replace(call, lineage=lineage, roots=self._roots)

    def _describe_tool(self, toolset: ToolProvider, name: str, description: str, schema: Schema) -> McpTool:
        shape = self._output_schemas[toolset.name, name]
        return McpTool(
            name=name,
            description=description,
            input_schema=schema,
            output_schema=shape.schema,
            read_only=not (shape.dispatches and self._may_write(toolset)),
            open_world=shape.dispatches,
        )

    def _may_write(self, toolset: ToolProvider) -> bool:
        # Background tools have the settings of `single`.
        known = toolset.name if toolset.name in self._retinue.toolsets else "single"
        return self._retinue.settings(known).settings.allow_write


@asynccontextmanager
async def open_tool_server(
    retinue: Retinue,
    toolsets: Sequence[str],
    *,
    roots: Sequence[str],
    background: bool = False,
    max_calls: int = MAX_CALLS,
) -> AsyncIterator[ToolServer]:
    """Open a tool server with these toolsets; its runs work below the roots only, and end with the block.

    Raises:
        ServerStartError: the toolsets have tools of the same name.
    """
    if conflict := find_conflict(toolsets):
        raise ServerStartError(conflict)
    tracker = CallTracker(retinue)
    families: list[ToolProvider] = [retinue.toolset(name) for name in toolsets]
    tasks: TaskRegistry | None = None
    async with anyio.create_task_group() as group:
        await group.start(tracker.follow)
        if background:
            from retinue.servers.mcp.background import BackgroundToolset

            families.append(BackgroundToolset(retinue, tracker, group))
            tasks = TaskRegistry(retinue.state / "tasks" / _client_folder(retinue.client), group)
        yield ToolServer(retinue, tracker, families, roots=roots, max_calls=max_calls, tasks=tasks)
        group.cancel_scope.cancel()


def _client_folder(client: str | None) -> str:
    """Return the name of a client's own folder, so that it finds no task of another client."""
    return sha256(client.encode("utf-8", "surrogatepass")).hexdigest()[:16] if client else "own"


async def _run_reporting(
    work: Callable[[], Awaitable[ToolResult]], tracked_call: TrackedCall, report: ReportProgress | None
) -> ToolResult:
    """Do the work, and call `report` on each change of its runs."""
    if report is None:
        return await work()

    async def report_changes(report: ReportProgress) -> None:
        reported = 0
        while True:
            if tracked_call.changes == reported:
                await tracked_call.wait_changed()
            reported = tracked_call.changes
            await report(float(reported), tracked_call.status_line())
            await anyio.sleep(MIN_UPDATE_INTERVAL)

    async with anyio.create_task_group() as group:
        group.start_soon(report_changes, report)
        result = await work()
        group.cancel_scope.cancel()
    return result


def _build_answer(output_schema: OutputSchema, result: ToolResult, tracked_call: TrackedCall | None) -> ToolAnswer:
    details, runs = msgspec.to_builtins(result.details), tracked_call.report_runs() if tracked_call else []
    structured = output_schema.build_structured(result.text, details)
    beside = {**({} if structured == details else {DETAILS_KEY: details}), **({RUNS_KEY: runs} if runs else {})}
    return ToolAnswer(text=result.text, structured=structured, is_error=result.is_error, meta=beside or None)


def _too_many_calls_result(max_calls: int) -> ToolResult:
    message = (
        f"This client has {max_calls} calls in progress, which is the limit. Nothing was started. Call again when "
        "one has been answered."
    )
    details = {"error": {"code": "spawn_limit", "message": message}}
    return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED_EXIT_CODE)
