"""Start the MCP servers of runs, with one process supervisor that is opened when the first of them is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import structs

from retinue.engines.base import Completion, Emit
from retinue.model.events import Event
from retinue.model.mcp import McpServer
from retinue.model.runs import RunSpec, process_limits
from retinue.support.tasks import BackgroundTasks

if TYPE_CHECKING:
    from retinue.engines.process.supervisor import ProcessSupervisor


class McpClient:
    """Starts servers inside `async with McpClient() as client`."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._supervisor: ProcessSupervisor | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def open_servers(
        self,
        servers: Sequence[McpServer],
        spec: RunSpec,
        emit: Emit,
        *,
        environ: Mapping[str, str],
        redact: Callable[[str], str],
    ) -> AsyncIterator[tuple[RunSpec, Emit]]:
        """Start the servers of a run and stop them after the block, without waiting for their start.

        Yields the spec with their tools, and what reports their failures before the next event of the engine.
        """
        from retinue.mcp_client.run_servers import RunServers
        from retinue.mcp_client.server import ServerPlace

        place = ServerPlace(
            cwd=spec.cwd,
            environ=environ,
            sandbox=spec.sandbox,
            limits=process_limits(spec.limits),
            open_supervisor=self._open_supervisor,
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

    async def _open_supervisor(self) -> ProcessSupervisor:
        from retinue.engines.process.supervisor import ProcessSupervisor

        if self._supervisor is None:
            # Set before anything is awaited: the servers of several runs share it.
            self._supervisor = ProcessSupervisor()
            await self._stack.enter_async_context(self._supervisor)
        return self._supervisor
