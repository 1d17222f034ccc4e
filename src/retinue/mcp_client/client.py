"""Start the MCP servers of one run beside its engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec import structs

from retinue.engines.base import Completion, Emit
from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.mcp_client.run_servers import RunServers
from retinue.mcp_client.server import ServerPlace
from retinue.model.events import Event
from retinue.model.mcp import McpServer
from retinue.model.runs import RunSpec, process_limits
from retinue.support.tasks import BackgroundTasks


@asynccontextmanager
async def open_servers(
    servers: Sequence[McpServer],
    spec: RunSpec,
    emit: Emit,
    *,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
    open_supervisor: Callable[[], Awaitable[ProcessSupervisor]],
) -> AsyncIterator[tuple[RunSpec, Emit]]:
    """Start the servers of a run and stop them after the block, without waiting for their start.

    Yields the spec with their tools, and what reports their failures before the next event of the engine.
    """
    place = ServerPlace(
        cwd=spec.cwd,
        environ=environ,
        sandbox=spec.sandbox,
        limits=process_limits(spec.limits),
        open_supervisor=open_supervisor,
        redact=redact,
    )
    running = RunServers(servers, spec, place)

    async def emit_after_notices(event: Event | Completion) -> None:
        for notice in running.take_notices():
            await emit(notice)
        await emit(event)

    async with BackgroundTasks(running.serve):
        yield structs.replace(spec, tool_servers=running), emit_after_notices
        await running.stop()
        for notice in running.take_notices():
            await emit(notice)
