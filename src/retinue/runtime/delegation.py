"""Delegation: a run calls the process that started it, which makes and records every child run.

An engine of this process calls functions of the spec. The process of an engine calls the control socket: while it
works, its run is registered here by a token of its own. The calls are tasks of the run: the end of the run ends them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, structs

from retinue.engines.base import Emit
from retinue.model.runs import Delegation, RunSpec, Secret, ToolServers
from retinue.model.tasks import AncestorTask, CallContext
from retinue.model.tool_names import is_delegation, is_mcp_tool
from retinue.runtime.active_run import ActiveRun
from retinue.runtime.supervisor import ExecuteSpec
from retinue.support.tasks import BackgroundTasks

if TYPE_CHECKING:
    from retinue.model.mcp import McpServer

MAX_CALLS = 16
"""Calls and connections of one run at once: no model needs more, and one that floods us gets no further."""
MAX_CALL_ID_CHARS = 1024
"""Characters of the id a provider gave a tool call."""
TOKEN_BYTES = 32


class DelegationTools(Struct, frozen=True):
    """The tools that runs delegate with, whatever toolset they were called by."""

    toolset: str
    names: tuple[str, ...]


def may_delegate(spec: RunSpec) -> bool:
    """Return whether a run has tools to delegate with."""
    return spec.agent.tools.delegates and any(map(is_delegation, spec.grant.tools))


def child_context(
    call: CallContext, spec: RunSpec, max_depth: int, toolset: str, servers: Sequence[McpServer] = ()
) -> CallContext | None:
    """Return the context of the calls a run makes, with no more rights than the run; None if it may make none.

    A run with tools of MCP servers calls those; without `may_delegate` it calls nothing else.
    """
    if not may_delegate(spec) and not servers:
        return None
    return CallContext(
        toolset=toolset,
        cwd=spec.cwd,
        lineage=spec.lineage,
        authority=spec.authority,
        servers=frozenset(server.digest for server in servers),
        # Another directory would be another workspace.
        roots=(spec.cwd,) if spec.sandbox.is_on else call.roots,
        sandbox=spec.sandbox,
        # A child has the servers of its own agent only.
        host_tools=tuple(tool for tool in spec.grant.tools if not is_mcp_tool(tool)),
        settings=call.settings,
        max_depth=max_depth,
        callable_agents=spec.agent.tools.callable_agents,
        uncallable_agents=spec.agent.tools.uncallable_agents,
        offline_may_answer=call.offline_may_answer,
    )


def move_context(call: CallContext, spec: RunSpec) -> CallContext:
    """Return the context of the calls of a run in the directory it really works in: its worktree, if it has one."""
    if call.cwd == spec.cwd:
        return call
    roots = call.roots and (*call.roots, spec.cwd)
    return structs.replace(call, cwd=spec.cwd, roots=roots, lineage=spec.lineage)


def with_prompt_as_ancestor(call: CallContext, spec: RunSpec) -> CallContext:
    """Return the call of a run whose prompt is more than its task: it may not delegate the whole prompt, either."""
    lineage = call.lineage
    ancestor = AncestorTask(spec.agent.name, spec.prompt, spec.cwd)
    return structs.replace(call, lineage=structs.replace(lineage, ancestors=(*lineage.ancestors, ancestor)))


def create_token() -> Secret:
    return Secret(os.urandom(TOKEN_BYTES).hex())


class DelegatingRun:
    """A run that may delegate, while its engine works."""

    def __init__(self, run: ActiveRun, context: CallContext) -> None:
        self.run = run
        self.run_id = run.spec.run
        self.context = structs.replace(context, lineage=structs.replace(context.lineage, parent_run=self.run_id))
        """The context of its calls outside any tool call."""
        callback = run.spec.callback
        self._token = callback.token.reveal().encode() if callback else b""
        self._slot = run.slot
        self._slot_lock = anyio.Lock(fast_acquire=True)
        self._waiting_calls = 0
        """Calls whose results it waits for."""
        self._calls = 0
        self.is_running = False
        """Whether its engine works; before and after that its calls are refused."""
        self.may_delegate = may_delegate(run.spec)
        """Whether it has delegation tools; else it has tools of MCP servers only."""
        self.tool_servers: ToolServers | None = None
        """Its MCP servers, while its engine works."""

    def matches_token(self, token: str) -> bool:
        import hmac

        is_equal = hmac.compare_digest(self._token, token.encode(errors="surrogatepass"))
        return is_equal and bool(self._token)

    def tool_call_context(self, name: str) -> CallContext:
        """Return the context of a call made in the tool call of this id.

        Raises:
            ValueError: the id is too long.
        """
        if len(name) > MAX_CALL_ID_CHARS:
            raise ValueError(f"The id of a tool call may have at most {MAX_CALL_ID_CHARS} characters.")
        return structs.replace(self.context, lineage=structs.replace(self.context.lineage, parent_call=name))

    @contextmanager
    def counted_call(self) -> Iterator[bool]:
        """Count a call or a connection for the block; yield whether it is within the limit."""
        self._calls += 1
        try:
            yield self._calls <= MAX_CALLS
        finally:
            self._calls -= 1

    async def execute(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the run's own work; the end of it ends the child work that was started meanwhile."""
        async with BackgroundTasks() as self._group:
            self.is_running = True
            try:
                await work()
            finally:
                self.is_running = False

    def start_child(self, work: Callable[[], Awaitable[None]]) -> anyio.CancelScope | None:
        """Start child work that ends with the run, or with the returned scope; None if the run has ended.

        The work must not raise: that would end the run.
        """
        if not self.is_running:
            return None
        scope = anyio.CancelScope()

        async def run_in_scope() -> None:
            with scope:
                await work()

        self._group.start_soon(run_in_scope)
        return scope

    @asynccontextmanager
    async def releasing_slot(self) -> AsyncIterator[None]:
        """Run a block in which the run waits for child runs, which may take its slot; reacquire one afterwards."""
        self._waiting_calls += 1
        self._slot.release()
        try:
            try:
                yield
            finally:
                self._waiting_calls -= 1
            await self._reacquire_slot()
        except BaseException:
            # It did not wait for the result, and works already, unless it has ended.
            if self.is_running:
                self._group.start_soon(self._reacquire_slot)
            raise

    async def _reacquire_slot(self) -> None:
        async with self._slot_lock:
            if self._waiting_calls or self._slot.is_held:
                return
            await self._slot.acquire()
            if self._waiting_calls:
                self._slot.release()


OpenServers = Callable[[ActiveRun, RunSpec, Emit], AbstractAsyncContextManager[tuple[RunSpec, Emit]]]
"""Starts the MCP servers of a run for a block; yields the spec with their tools, and what reports their failures."""
MakeDelegation = Callable[[DelegatingRun], Delegation]
"""Makes the tools of a delegating run, as functions for its engine."""


class DelegationRegistry:
    """The runs that may delegate or call MCP servers now, by id."""

    def __init__(self, make_delegation: MakeDelegation, open_servers: OpenServers) -> None:
        self._make_delegation = make_delegation
        self._open_servers = open_servers
        self._runs: dict[str, DelegatingRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, run: str | None) -> DelegatingRun | None:
        return self._runs.get(run) if run else None

    def find_by_token(self, token: str) -> DelegatingRun | None:
        """Return the run of a token; the comparison takes the same time for every token."""
        return next((each for each in [*self._runs.values()] if each.matches_token(token)), None)

    def wrap(self, run: ActiveRun, execute: ExecuteSpec) -> ExecuteSpec:
        """Return how to execute the run so that it can delegate, and call its MCP servers, meanwhile.

        That is `execute` itself if it may do neither.
        """
        context = run.child_context
        if context is None or not (may_delegate(run.spec) or run.servers):
            return execute

        async def execute_registered(spec: RunSpec, emit: Emit) -> None:
            if not run.slot.is_held:  # the previous attempt released it, and ended before it had one again
                await run.slot.acquire()
            delegating_run = self._runs[run.spec.run] = DelegatingRun(run, context)
            if delegating_run.may_delegate:
                spec = structs.replace(spec, delegation=self._make_delegation(delegating_run))
            try:
                if not run.servers:
                    await delegating_run.execute(partial(execute, spec, emit))
                    return
                async with self._open_servers(run, spec, emit) as (spec_with_tools, emit_all):
                    delegating_run.tool_servers = spec_with_tools.tool_servers
                    await delegating_run.execute(partial(execute, spec_with_tools, emit_all))
            finally:
                del self._runs[run.spec.run]

        return execute_registered
