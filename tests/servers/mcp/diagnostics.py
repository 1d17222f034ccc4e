"""The tools that the official suite wants to call, as a toolset of ours: mounted, called, followed and open_diagnostics_server as any other.

Those that take long dispatch real agents on the scripted engine.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from msgspec import structs
from tests.support.retinue_factory import stage

from retinue import Agent
from retinue.client import Retinue
from retinue.engines.scripted import Step, WaitStep, call, fail, reply
from retinue.model.runs import RunSpec
from retinue.model.tasks import CallContext
from retinue.servers.asgi.serving import bind_socket, serve_http
from retinue.servers.asgi.tokens import digest_token
from retinue.servers.mcp import sdk
from retinue.servers.mcp.call_tracker import CallTracker
from retinue.servers.mcp.jobs import TaskRegistry
from retinue.servers.mcp.serving import TokenGate
from retinue.servers.mcp.toolset_server import OUTPUT_SCHEMAS, OutputSchema, ToolServer
from retinue.toolsets.base import OnPartialResult, RunTool, ToolDefinition, ToolResult

EMPTY_SCHEMA = {"type": "object", "properties": {}}
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": {"type": "string"}}}},
    "properties": {
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
LONG_TOOLS = ("test_tool_with_progress", "slow_compute", "failing_job", "protocol_error_job")


def script(spec: RunSpec) -> Sequence[Step]:
    """Return the script of an agent with the task `SECONDS NAME`."""
    seconds, name = spec.task.split(" ", 1)
    if name == "test_tool_with_progress":
        return [step for path in "abcd" for step in (call("read", path=path), WaitStep(0.6))] + [reply("done")]
    return [WaitStep(float(seconds)), fail("It was meant to fail.") if name == "failing_job" else reply("done")]


class Diagnostics:
    """The tools of the suite."""

    name = "diagnostics"

    def __init__(self, retinue: Retinue) -> None:
        self._dispatch = retinue.toolset("single").handlers["subagent"]

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {
            "test_simple_text": _fixed_result("Simple text."),
            "test_error_handling": _fixed_result("It was meant to fail.", is_error=True),
            "json_schema_2020_12_tool": _fixed_result("Valid."),
            "greet": _greet,
            "protocol_error_job": _raise_error,
            **{name: partial(self._run, name) for name in LONG_TOOLS[:3]},
        }

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        schemas = {"json_schema_2020_12_tool": SCHEMA_2020_12}
        return tuple(
            ToolDefinition(
                name=name, description=f"{name} of the suite", input_schema=schemas.get(name, EMPTY_SCHEMA), run=run
            )
            for name, run in self.handlers.items()
        )

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        return ToolResult(text=problem, details={}, is_error=True)

    async def _run(self, name: str, arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
        task = f"{arguments.get('seconds', 1)} {name}"
        result = await self._dispatch({"agent": "explorer", "task": task}, call, update)
        return structs.replace(result, is_error=name == "failing_job")


def _fixed_result(text: str, *, is_error: bool = False) -> RunTool:
    async def run(arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
        return ToolResult(text=text, details={}, is_error=is_error)

    return run


async def _greet(arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
    return ToolResult(text=f"Hello, {arguments['name']}!", details={})


async def _raise_error(arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
    raise ZeroDivisionError


@asynccontextmanager
async def open_diagnostics_server(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """Serve the toolset over HTTP with tasks, and yield the port and the token."""
    token = secrets.token_urlsafe()
    # Prompts are agents; the suite requires one with this name.
    prompt = Agent(name="test_simple_prompt", description="A simple prompt of the suite")
    async with stage(folder, script, agents=[prompt]) as retinue, anyio.create_task_group() as group:
        tracker, toolset = CallTracker(retinue), Diagnostics(retinue)
        await group.start(tracker.follow)
        own = {
            ("diagnostics", name): OutputSchema(EMPTY_SCHEMA, dispatches=name in LONG_TOOLS)
            for name in toolset.handlers
        }
        tool_server = ToolServer(
            retinue,
            tracker,
            [toolset, retinue.toolset("single")],
            roots=[str(folder)],
            output_schemas={**OUTPUT_SCHEMAS, **own},
            tasks=TaskRegistry(folder / "tasks", group),
        )
        with bind_socket(0) as bound:
            port = bound.getsockname()[1]
            async with sdk.open_http_app(sdk.build_server(tool_server, ""), port) as app:
                group.start_soon(serve_http, TokenGate({digest_token(token): app}, port), bound)
                yield port, token
                group.cancel_scope.cancel()
