"""Where a client's calls arrive: the tools of the surfaces that are mounted, each called, followed and reported on.

Knows nothing of the protocol's own types: `sdk` puts them around what stands here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import anyio
import msgspec
from msgspec import Struct, structs

from retinue.client import Retinue
from retinue.model.tasks import CallContext
from retinue.servers.lifecycle import ServerStartError
from retinue.servers.mcp.call_tracker import CallTracker, TrackedCall
from retinue.servers.mcp.output_schemas import OUTPUT_SCHEMAS, OutputSchema, Schema, find_conflict
from retinue.servers.mcp.prompts import DELEGATION_TOOLS, PromptAgent, delegation_prompt, list_prompt_agents
from retinue.servers.mcp.tasks import TaskRegistry
from retinue.servers.mcp.tool_answers import ReportProgress, ToolAnswer
from retinue.toolsets.base import REFUSED_EXIT_CODE, ToolProvider, ToolResult

MAX_CALLS = 16_384
"""Of one client in flight at once; more are refused. Far below this they wait for a slot, at about 25 KB each."""
MIN_UPDATE_INTERVAL = 0.5
"""Seconds between two messages about the progress of a call."""
DETAILS_KEY = "retinue/details"
"""Under this name a result's `_meta` has what the surface gives hosts and programs beside its text, whole."""
RUNS_KEY = "retinue/runs"
"""Under this name a result's `_meta` says what really happened beside what was declared, for each of its runs."""


class McpTool(Struct, frozen=True, kw_only=True):
    """A tool as a client sees it."""

    name: str
    description: str
    input_schema: Schema
    output_schema: Schema
    read_only: bool
    open_world: bool


class ToolServer:
    """The tools of one client. Calls are made in its block; everything they started ends with it."""

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
        """Calls of this client that may outlast their requests; None where none may."""
        self._retinue = retinue
        self._tracker = tracker
        self._toolsets = toolsets
        self._roots = tuple(roots)
        self._tools = {name: (surface, run) for surface in toolsets for name, run in surface.handlers.items()}
        self._delegation_tool = next((tool for tool in DELEGATION_TOOLS if tool in self._tools), None)
        self._max_calls = max_calls
        self._output_schemas = output_schemas
        self._in_flight = 0

    def list_tools(self) -> list[McpTool]:
        """The tools that may be used here, as they are at this moment: agents come and go."""
        return [
            self._describe_tool(toolset, tool.name, tool.description, tool.input_schema)
            for toolset in self._toolsets
            for tool in toolset.list_tools(self._retinue.call(toolset.name))
        ]

    def has_tool(self, tool: str) -> bool:
        return tool in self._tools

    def is_long_running(self, tool: str) -> bool:
        """Whether a call is answered only when its agents are done."""
        shape = self._output_schemas[self._tools[tool][0].name, tool]
        return shape.dispatches and not shape.is_immediate

    def list_agents(self) -> list[PromptAgent]:
        """The agents a user may choose from; none where none can be given a task."""
        return list_prompt_agents(self._retinue) if self._delegation_tool and self.list_tools() else []

    def render_prompt(self, agent: str, task: str) -> str | None:
        """What the host's user says to have a task given to an agent; None if there is no such agent."""
        known = {shown.name for shown in self.list_agents()}
        return (
            delegation_prompt(agent, task, self._delegation_tool)
            if agent in known and self._delegation_tool
            else None
        )

    async def call_tool(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        conversation: str | None = None,
        report: ReportProgress | None = None,
    ) -> ToolAnswer:
        """Calls a tool; what its runs do meanwhile is told. Cancelled, it leaves ended runs.

        `conversation` is whatever tells one of the client's conversations from another; None where nothing does.
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
        # Background tools are on the terms of `single`.
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
    """The desk of an open Retinue with these surfaces mounted; runs work within the roots only.

    Raises:
        Unservable: they cannot be mounted together.
    """
    if conflict := find_conflict(toolsets):
        raise ServerStartError(conflict)
    tracker = CallTracker(retinue)
    families: list[ToolProvider] = [retinue.toolset(name) for name in toolsets]
    tasks: TaskRegistry | None = None
    async with anyio.create_task_group() as group:
        await group.start(tracker.follow)
        if background:
            from retinue.servers.mcp.jobs import BackgroundToolset

            families.append(BackgroundToolset(retinue, tracker, group))
            tasks = TaskRegistry(retinue.state / "tasks" / _client_folder(retinue.client), group)
        yield ToolServer(retinue, tracker, families, roots=roots, max_calls=max_calls, tasks=tasks)
        group.cancel_scope.cancel()


def _client_folder(client: str | None) -> str:
    """What a client's folder is called: it finds nothing of another's."""
    return sha256(client.encode("utf-8", "surrogatepass")).hexdigest()[:16] if client else "own"


async def _run_reporting(
    work: Callable[[], Awaitable[ToolResult]], tracked_call: TrackedCall, report: ReportProgress | None
) -> ToolResult:
    """Does the work, and meanwhile tells what happens to whoever wants to know."""
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
        f"This client has {max_calls} calls in flight, which is the limit. Nothing was started. "
        "Call again when one of them has been answered."
    )
    details = {"error": {"code": "spawn_limit", "message": message}}
    return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED_EXIT_CODE)
