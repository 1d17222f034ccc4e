"""The one place that knows the MCP SDK: a desk as its server, and the transports it serves.

The SDK takes long to import and is an extra: nothing here imports it before it is needed.
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
from retinue.frontends.mcp.answers import COMPLETED, FAILED, Answer, Tell
from retinue.frontends.mcp.desk import Desk, Offer
from retinue.frontends.mcp.prompts import Shown
from retinue.frontends.mcp.task_files import KEPT, Kept
from retinue.frontends.mcp.tasks import Tasks, Work
from retinue.frontends.stdio import claimed
from retinue.frontends.web.asgi import MAX_BODY_BYTES, App
from retinue.frontends.web.names import LOOPBACK

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.context import HandlerResult, ServerRequestContext
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        GetPromptRequestParams,
        GetPromptResult,
        GetTaskRequestParams,
        ListPromptsResult,
        ListToolsResult,
        PaginatedRequestParams,
        Prompt,
        Tool,
    )

NAME = "retinue"
MOST_SESSIONS = 100
"""Of one client, in the revisions that have sessions."""
TASKS = "io.modelcontextprotocol/tasks"
POLL = 1000
"""Milliseconds between two questions after a task."""
MISSING = "The MCP SDK is not installed. Install it with `pip install 'mcp>=2.3,<3'` and start again."


def missing() -> str | None:
    """What to do where the SDK is not installed; None if it is. Imports nothing."""
    from importlib.util import find_spec

    try:
        return None if find_spec("mcp") and find_spec("mcp_types") else MISSING
    except ValueError:  # something that is no module stands in its place
        return MISSING


def server(desk: Desk, instructions: str) -> Server[Any]:
    """The desk as the SDK serves it, in every revision of the protocol the SDK knows."""
    import mcp_types as types
    from mcp.server import Server
    from mcp.shared.exceptions import MCPError

    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return types.ListToolsResult(tools=[_tool(offer) for offer in desk.offers()])

    async def list_prompts(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(agent) for agent in desk.agents()])

    async def get_prompt(_: ServerRequestContext[Any], params: GetPromptRequestParams) -> GetPromptResult:
        text = desk.prompt(params.name, (params.arguments or {}).get("task", ""))
        if text is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name[:100]}")
        said = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(messages=[said])

    served: Server[Any] = Server(
        NAME,
        version=__version__,
        title="Retinue",
        instructions=instructions or None,
        on_list_tools=list_tools,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        # No schema of ours asks for a header of its own; without this every call over HTTP would list the tools.
        get_tool_input_schema=lambda _: None,
    )
    served.add_request_handler("tools/call", types.CallToolRequestParams, _calling(desk))
    if desk.tasks:
        _serve_tasks(served, desk.tasks)
    return served


def _calling(desk: Desk) -> Callable[[ServerRequestContext[Any], CallToolRequestParams], Awaitable[HandlerResult]]:
    """What answers calls of the desk's tools."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> HandlerResult:
        if not desk.knows(params.name):
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")
        conversation = _conversation(context.request)

        async def tell(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        async def work(told: Tell | None) -> Answer:
            return await desk.call(params.name, params.arguments or {}, conversation=conversation, tell=told)

        if desk.tasks and desk.takes_long(params.name) and _knows_tasks(context):
            return await _begun(desk.tasks, work)
        return _result(await work(tell if "progress_token" in (context.meta or {}) else None))

    return call_tool


async def serve_stdio(served: Server[Any]) -> None:
    """Serves the client at the other end of stdin and stdout until it closes one of them.

    Meanwhile stdout carries the protocol and nothing else: whatever else is printed goes to stderr.
    """
    from mcp.server.stdio import stdio_server

    with claimed() as (lines, writer), anyio.CancelScope() as scope:
        writer.gone = scope.cancel
        # It iterates over the one, and writes to and flushes the other; that is all it does with them.
        stdin, stdout = cast("anyio.AsyncFile[str]", lines), cast("anyio.AsyncFile[str]", writer)
        async with stdio_server(stdin, stdout) as (incoming, outgoing):
            await served.run(incoming, outgoing, served.create_initialization_options())


@asynccontextmanager
async def http_app(served: Server[Any], port: int) -> AsyncIterator[App]:
    """The server as an ASGI application: the current revision a request at a time, the one before in sessions."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings

    # Checked at the gate before; said here, too, as without it nothing would be checked.
    hosts = [f"{name}:{port}" for name in LOOPBACK]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    manager = StreamableHTTPSessionManager(
        app=served, security_settings=security, max_sessions=MOST_SESSIONS, max_request_body_size=MAX_BODY_BYTES
    )
    async with manager.run():
        yield manager.handle_request


# -- tasks -----------------------------------------------------------------------------------------


def _serve_tasks(served: Server[Any], tasks: Tasks) -> None:
    """Adds the methods of the tasks extension, of which the SDK has only the seams."""
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    def found(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> Kept:
        _check(context, params.task_id)
        kept = tasks.find(params.task_id)
        if kept is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"There is no task of the id {params.task_id[:100]}.")
        return kept

    async def get(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> HandlerResult:
        kept = found(context, params)
        detail: dict[str, Any] = {}
        if kept.state == COMPLETED and kept.answer:
            detail["result"] = _result(kept.answer).model_dump(by_alias=True, mode="json", exclude_none=True)
        elif kept.state == FAILED:
            detail["error"] = {"code": types.INTERNAL_ERROR, "message": kept.words}
        return {**_task(kept), **detail}

    async def update(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> HandlerResult:
        found(context, params)  # no task of ours asks for anything: whatever is answered was not asked
        return {}

    async def cancel(context: ServerRequestContext[Any], params: GetTaskRequestParams) -> HandlerResult:
        found(context, params)
        tasks.cancel(params.task_id)
        return {}

    served.extensions[TASKS] = {}
    for method, handler in {"tasks/get": get, "tasks/update": update, "tasks/cancel": cancel}.items():
        served.add_request_handler(method, types.GetTaskRequestParams, handler)


def _check(context: ServerRequestContext[Any], task: str) -> None:
    """Lets through who may speak of tasks.

    Raises:
        MCPError: it may not, or its headers say something else than its body.
    """
    import mcp_types as types
    from mcp.shared.exceptions import MCPError
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=context.method)
    if not _knows_tasks(context):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"Declare the extension {TASKS}.",
            data={"requiredCapabilities": {"extensions": {TASKS: {}}}},
        )
    if context.request is not None and context.request.headers.get("mcp-name") != task:
        raise MCPError(code=types.HEADER_MISMATCH, message="The header Mcp-Name is not the id of the task.")


def _knows_tasks(context: ServerRequestContext[Any]) -> bool:
    """Whether this request says that its client understands tasks; no revision before the current one can."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    declared = context.session.client_capabilities
    return (
        context.protocol_version in MODERN_PROTOCOL_VERSIONS
        and declared is not None
        and TASKS in (declared.extensions or {})
    )


async def _begun(tasks: Tasks, work: Work) -> HandlerResult:
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    try:
        begun = await tasks.begin(work)
    except OSError as error:
        sentence = f"The call was stopped, as its task cannot be recorded: {error.strerror}."
        raise MCPError(code=types.INTERNAL_ERROR, message=sentence) from error
    return _result(begun) if isinstance(begun, Answer) else {"resultType": "task", **_task(begun)}


def _task(kept: Kept) -> dict[str, Any]:
    """A task as the extension spells it, without what came of it."""
    told = {"statusMessage": kept.words} if kept.words else {}
    return {
        "taskId": kept.id,
        "status": kept.state,
        **told,
        "createdAt": _moment(kept.created),
        "lastUpdatedAt": _moment(kept.updated),
        "ttlMs": int(KEPT * 1000),
        "pollIntervalMs": POLL,
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


# -- what the protocol's types say -----------------------------------------------------------------


def _tool(offer: Offer) -> Tool:
    import mcp_types as types

    return types.Tool(
        name=offer.name,
        description=offer.description,
        input_schema=dict(offer.input_schema),
        output_schema=dict(offer.output_schema),
        annotations=types.ToolAnnotations(read_only_hint=offer.read_only, open_world_hint=offer.open_world),
    )


def _prompt(agent: Shown) -> Prompt:
    import mcp_types as types

    task = types.PromptArgument(name="task", description="What it is to do", required=True)
    return types.Prompt(name=agent.name, description=agent.description, arguments=[task])


def _result(answer: Answer) -> CallToolResult:
    import mcp_types as types

    return types.CallToolResult(
        content=[types.TextContent(type="text", text=answer.text)],
        structured_content=dict(answer.structured),
        is_error=answer.is_error,
        _meta=dict(answer.meta) if answer.meta else None,
    )


def _conversation(request: Any) -> str | None:
    """What tells a client's conversations apart over HTTP: its session, or each request where there are none."""
    if request is None:
        return None
    session = request.headers.get("mcp-session-id")
    return sha256(session.encode()).hexdigest()[:16] if session else os.urandom(8).hex()
