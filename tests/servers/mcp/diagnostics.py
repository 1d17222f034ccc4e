"""The tools that the official suite wants to call, as a surface of ours: mounted, called, followed and served as any other.

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
from retinue.servers.mcp.http_auth import TokenGate
from retinue.servers.mcp.jobs import TaskRegistry
from retinue.servers.mcp.output_schemas import OUTPUT_SCHEMAS, OutputSchema
from retinue.servers.mcp.toolset_server import ToolServer
from retinue.toolsets.base import OnPartialResult, RunTool, ToolDefinition, ToolResult

PLAIN = {"type": "object", "properties": {}}
OF_2020 = {
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
LONG = ("test_tool_with_progress", "slow_compute", "failing_job", "protocol_error_job")


def script(spec: RunSpec) -> Sequence[Step]:
    """What an agent does that is told `SECONDS NAME`."""
    seconds, name = spec.task.split(" ", 1)
    if name == "test_tool_with_progress":
        return [step for path in "abcd" for step in (call("read", path=path), WaitStep(0.6))] + [reply("done")]
    return [WaitStep(float(seconds)), fail("It was meant to fail.") if name == "failing_job" else reply("done")]


class Diagnostics:
    """A surface of the suite's tools."""

    name = "diagnostics"

    def __init__(self, retinue: Retinue) -> None:
        self._dispatch = retinue.toolset("single").handlers["subagent"]

    @property
    def handlers(self) -> Mapping[str, RunTool]:
        return {
            "test_simple_text": _saying("Simple text."),
            "test_error_handling": _saying("It was meant to fail.", is_error=True),
            "json_schema_2020_12_tool": _saying("Valid."),
            "greet": _greet,
            "protocol_error_job": _broken,
            **{name: partial(self._run, name) for name in LONG[:3]},
        }

    def list_tools(self, call: CallContext) -> tuple[ToolDefinition, ...]:
        schemas = {"json_schema_2020_12_tool": OF_2020}
        return tuple(
            ToolDefinition(
                name=name, description=f"{name} of the suite", input_schema=schemas.get(name, PLAIN), run=run
            )
            for name, run in self.handlers.items()
        )

    def invalid_json_result(self, tool: str, problem: str, call: CallContext) -> ToolResult:
        return ToolResult(text=problem, details={}, is_error=True)

    async def _run(self, name: str, arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
        task = f"{arguments.get('seconds', 1)} {name}"
        result = await self._dispatch({"agent": "explorer", "task": task}, call, update)
        return structs.replace(result, is_error=name == "failing_job")


def _saying(text: str, *, is_error: bool = False) -> RunTool:
    async def run(arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
        return ToolResult(text=text, details={}, is_error=is_error)

    return run


async def _greet(arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
    return ToolResult(text=f"Hello, {arguments['name']}!", details={})


async def _broken(arguments: Any, call: CallContext, update: OnPartialResult | None) -> ToolResult:
    raise ZeroDivisionError


@asynccontextmanager
async def served(place: Path) -> AsyncIterator[tuple[int, str]]:
    """The port and the token of a server with these tools, over HTTP, with tasks."""
    token = secrets.token_urlsafe()
    # Prompts are agents, of which the suite wants one by this name.
    prompt = Agent(name="test_simple_prompt", description="A simple prompt of the suite")
    async with stage(place, script, agents=[prompt]) as retinue, anyio.create_task_group() as group:
        follower, surface = CallTracker(retinue), Diagnostics(retinue)
        await group.start(follower.follow)
        own = {("diagnostics", name): OutputSchema(PLAIN, dispatches=name in LONG) for name in surface.handlers}
        desk = ToolServer(
            retinue,
            follower,
            [surface, retinue.toolset("single")],
            roots=[str(place)],
            output_schemas={**OUTPUT_SCHEMAS, **own},
            tasks=TaskRegistry(place / "tasks", group),
        )
        with bind_socket(0) as bound:
            port = bound.getsockname()[1]
            async with sdk.open_http_app(sdk.build_server(desk, ""), port) as app:
                group.start_soon(serve_http, TokenGate({digest_token(token): app}, port), bound)
                yield port, token
                group.cancel_scope.cancel()
