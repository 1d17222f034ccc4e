"""The only module that uses the MCP SDK: a tool server as an SDK server, and its transports.

The SDK takes long to import: functions here import it when they are called.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import anyio

from retinue import __version__
from retinue.servers.asgi.request_checks import LOOPBACK, MAX_BODY_BYTES, AsgiApp
from retinue.servers.mcp.jobs import (
    COMPLETED,
    FAILED,
    TASK_TTL,
    ReportProgress,
    StoredTask,
    TaskRegistry,
    TaskWork,
    ToolAnswer,
)
from retinue.servers.mcp.toolset_server import McpTool, PromptAgent, ToolServer
from retinue.servers.stdio import claim_stdio

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.context import HandlerResult, ServerRequestContext
    from mcp_types import (
        CallToolRequestParams,
        GetPromptRequestParams,
        GetPromptResult,
        GetTaskRequestParams,
        ListPromptsResult,
        ListToolsResult,
        PaginatedRequestParams,
        Prompt,
        Tool,
    )


SERVER_NAME = "retinue"
MAX_SESSIONS = 100
"""Sessions of one client, in the protocol revisions that have them."""
TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
POLL_INTERVAL_MS = 1000
"""Milliseconds a client should wait between two polls of a task."""


def build_server(tool_server: ToolServer, instructions: str) -> Server[Any]:
    """Return the SDK server of a tool server, for every protocol revision the SDK supports."""
    import mcp_types as types
    from mcp.server import Server
    from mcp.shared.exceptions import MCPError

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return types.ListToolsResult(tools=[_to_sdk_tool(tool) for tool in tool_server.list_tools()])

    async def list_prompts(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListPromptsResult:
        return types.ListPromptsResult(prompts=[_to_sdk_prompt(agent) for agent in tool_server.list_agents()])

    async def get_prompt(_: ServerRequestContext[Any], params: GetPromptRequestParams) -> GetPromptResult:
        text = tool_server.render_prompt(params.name, (params.arguments or {}).get("task", ""))
        if text is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name[:100]}")
        messages = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(messages=[messages])

    sdk_server: Server[Any] = Server(
        SERVER_NAME,
        version=__version__,
        title="Retinue",
        instructions=instructions or None,
        on_list_tools=list_tools,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        # No schema of ours asks for a header of its own; without this every call over HTTP would list the tools.
        get_tool_input_schema=lambda _: None,
    )
    sdk_server.add_request_handler("tools/call", types.CallToolRequestParams, _make_call_handler(tool_server))
    if tool_server.tasks:
        _register_task_methods(sdk_server, tool_server.tasks)
    return sdk_server


def _make_call_handler(
    tool_server: ToolServer,
) -> Callable[[ServerRequestContext[Any], CallToolRequestParams], Awaitable[HandlerResult]]:
    """Return the handler of `tools/call`."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> HandlerResult:
        if not tool_server.has_tool(params.name):
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")
        conversation = _conversation_id(context.request)

        async def report(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        async def run_call(progress: ReportProgress | None) -> ToolAnswer:
            return await tool_server.call_tool(
                params.name, params.arguments or {}, conversation=conversation, report=progress
            )

        if tool_server.tasks and tool_server.is_long_running(params.name) and _supports_tasks(context):
            return await _start_task(tool_server.tasks, run_call)
        return _encode_answer(await run_call(report if "progress_token" in (context.meta or {}) else None))

    return call_tool


async def serve_stdio(sdk_server: Server[Any]) -> None:
    """Serve the client on stdin and stdout until it closes one of them.

    Meanwhile stdout carries only the protocol: anything else that is printed goes to stderr.
    """
    from mcp.server.stdio import stdio_server

    with claim_stdio() as (lines, writer), anyio.CancelScope() as scope:
        writer.reader_left = scope.cancel
        # The SDK only iterates over the one, and writes to and flushes the other.
        stdin, stdout = cast("anyio.AsyncFile[str]", lines), cast("anyio.AsyncFile[str]", writer)
        async with stdio_server(stdin, stdout) as (incoming, outgoing):
            await sdk_server.run(incoming, outgoing, sdk_server.create_initialization_options())


@asynccontextmanager
async def open_http_app(sdk_server: Server[Any], port: int) -> AsyncIterator[AsgiApp]:
    """Open the server as an ASGI application, with sessions in the protocol revision before the current one."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings

    # `TokenGate` has checked both; without these settings the SDK would check neither.
    hosts = [f"{name}:{port}" for name in LOOPBACK]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    manager = StreamableHTTPSessionManager(
        app=sdk_server, security_settings=security, max_sessions=MAX_SESSIONS, max_request_body_size=MAX_BODY_BYTES
    )
    async with manager.run():
        yield manager.handle_request


# -- tasks -----------------------------------------------------------------------------------------


def _register_task_methods(sdk_server: Server[Any], tasks: TaskRegistry) -> None:
    """Add the methods of the tasks extension, which the SDK does not implement yet."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    def find_task(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> StoredTask:
        _require_task_support(context, params.task_id)
        task = tasks.find(params.task_id)
        if task is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Task {params.task_id[:100]} not found.")
        return task

    async def get_task(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> HandlerResult:
        task = find_task(context, params)
        detail: dict[str, Any] = {}
        if task.state == COMPLETED and task.answer:
            # The SDK validates results of its own methods only.
            result = types.CallToolResult.model_validate(_encode_answer(task.answer))
            detail["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        elif task.state == FAILED:
            detail["error"] = {"code": types.INTERNAL_ERROR, "message": task.message}
        return {**_encode_task(task), **detail}

    async def update_task(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> HandlerResult:
        find_task(context, params)  # our tasks ask for no input, so there is none to store
        return {}

    async def cancel_task(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> HandlerResult:
        find_task(context, params)
        tasks.cancel(params.task_id)
        return {}

    sdk_server.extensions[TASKS_EXTENSION] = {}
    for method, handler in {"tasks/get": get_task, "tasks/update": update_task, "tasks/cancel": cancel_task}.items():
        sdk_server.add_request_handler(method, types.GetTaskRequestParams, handler)


def _require_task_support(context: ServerRequestContext[Any], task: str) -> None:
    """Accept a request about a task from a client that declared the extension.

    Raises:
        MCPError: the client did not, or the header Mcp-Name differs from the body.
    """
    import mcp_types as types
    from mcp.shared.exceptions import MCPError
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=context.method)
    if not _supports_tasks(context):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"Declare the extension {TASKS_EXTENSION}.",
            data={"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}},
        )
    if context.request is not None and context.request.headers.get("mcp-name") != task:
        raise MCPError(code=types.HEADER_MISMATCH, message="The header Mcp-Name is not the id of the task.")


def _supports_tasks(context: ServerRequestContext[Any]) -> bool:
    """Return whether the client declared the tasks extension, which only the current revision has."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    declared = context.session.client_capabilities
    return (
        context.protocol_version in MODERN_PROTOCOL_VERSIONS
        and declared is not None
        and TASKS_EXTENSION in (declared.extensions or {})
    )


async def _start_task(tasks: TaskRegistry, work: TaskWork) -> HandlerResult:
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    try:
        started = await tasks.start(work)
    except OSError as error:
        sentence = f"The call was cancelled, because its task cannot be stored: {error.strerror}."
        raise MCPError(code=types.INTERNAL_ERROR, message=sentence) from error
    return (
        _encode_answer(started)
        if isinstance(started, ToolAnswer)
        else {"resultType": "task", **_encode_task(started)}
    )


def _encode_task(task: StoredTask) -> dict[str, Any]:
    """Return a task in the format of the extension, without its result."""
    fields = {"statusMessage": task.message} if task.message else {}
    return {
        "taskId": task.id,
        "status": task.state,
        **fields,
        "createdAt": _format_timestamp(task.created),
        "lastUpdatedAt": _format_timestamp(task.updated),
        "ttlMs": int(TASK_TTL * 1000),
        "pollIntervalMs": POLL_INTERVAL_MS,
    }


def _format_timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


# -- conversion to SDK types -----------------------------------------------------------------------


def _to_sdk_tool(tool: McpTool) -> Tool:
    import mcp_types as types

    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=dict(tool.output_schema),
        annotations=types.ToolAnnotations(read_only_hint=tool.read_only, open_world_hint=tool.open_world),
    )


def _to_sdk_prompt(agent: PromptAgent) -> Prompt:
    import mcp_types as types

    task = types.PromptArgument(name="task", description="What it is to do", required=True)
    return types.Prompt(name=agent.name, description=agent.description, arguments=[task])


def _encode_answer(answer: ToolAnswer) -> dict[str, Any]:
    """Return a result of `tools/call` as JSON: the SDK validates it, and would encode its own types once more."""
    return {
        "resultType": "complete",  # left out by the SDK for clients of earlier revisions
        "content": [{"type": "text", "text": answer.text}],
        "structuredContent": answer.structured,
        "isError": answer.is_error,
        **({"_meta": answer.meta} if answer.meta else {}),
    }


def _conversation_id(request: Any) -> str | None:
    """Return the id of a client's conversation over HTTP: its session, or one per request without sessions."""
    if request is None:
        return None
    session = request.headers.get("mcp-session-id")
    return sha256(session.encode()).hexdigest()[:16] if session else os.urandom(8).hex()
