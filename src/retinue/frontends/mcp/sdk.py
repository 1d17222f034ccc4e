"""The one place that knows the MCP SDK: a desk as its server, and the transports it serves.

The SDK takes long to import and is an extra: nothing here imports it before it is needed.
"""

from __future__ import annotations

import os
from asyncio import Transport
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from hashlib import sha256
from socket import socket
from typing import TYPE_CHECKING, Any, cast

import anyio

from retinue import __version__
from retinue.frontends.mcp.desk import Answer, Desk, Offer
from retinue.frontends.mcp.gate import BODY_SECONDS, LOOPBACK, MAX_BODY_BYTES, App
from retinue.frontends.mcp.prompts import Shown
from retinue.frontends.stdio import claimed

if TYPE_CHECKING:
    from mcp.server import Server
    from mcp.server.context import ServerRequestContext
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        GetPromptRequestParams,
        GetPromptResult,
        ListPromptsResult,
        ListToolsResult,
        PaginatedRequestParams,
        Prompt,
        Tool,
    )

NAME = "retinue"
MOST_CONNECTIONS = 1024
MOST_SESSIONS = 100
"""Of one client, in the revisions that have sessions."""
SHUTDOWN = 5.0
"""Seconds in which every connection is closed."""
MISSING = "The MCP SDK is not installed. Install it with `pip install 'retinue[mcp]'` and start again."


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

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        if not desk.knows(params.name):
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")

        async def tell(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        answer = await desk.call(
            params.name,
            params.arguments or {},
            conversation=_conversation(context.request),
            tell=tell if "progress_token" in (context.meta or {}) else None,
        )
        return _result(answer)

    async def list_prompts(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(agent) for agent in desk.agents()])

    async def get_prompt(_: ServerRequestContext[Any], params: GetPromptRequestParams) -> GetPromptResult:
        text = desk.prompt(params.name, (params.arguments or {}).get("task", ""))
        if text is None:
            raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown prompt: {params.name[:100]}")
        said = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
        return types.GetPromptResult(messages=[said])

    return Server(
        NAME,
        version=__version__,
        title="Retinue",
        instructions=instructions or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        # No schema of ours asks for a header of its own; without this every call over HTTP would list the tools.
        get_tool_input_schema=lambda _: None,
    )


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


async def serve_http(app: App, listening: socket, *, patience: float = BODY_SECONDS) -> None:
    """Serves an ASGI application on a socket until cancelled; what is in flight then has a moment to end.

    A connection on which no request has come after so many seconds of patience is closed.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        """Does not wait for ever for a request to begin."""

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(patience, self._give_up)

        def _give_up(self) -> None:
            begun: object = self.cycle
            if begun is None:
                self.transport.close()

    class Quiet(uvicorn.Server):
        """Leaves signals to us."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    serving = Quiet(config)
    try:
        await serving.serve(sockets=[listening])
    finally:
        with anyio.move_on_after(SHUTDOWN, shield=True):
            await serving.shutdown()


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
