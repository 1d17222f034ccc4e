"""Serve a toolset to an extension of a host on stdio: calls, partial results and views."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec import UNSET, UnsetType, structs

from retinue import __version__
from retinue.client import Retinue
from retinue.ipc import messages
from retinue.ipc.connection import OutgoingQueue
from retinue.ipc.messages import CallToolRequest, PartialReply, RefusalMessage, ToolResultReply
from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, RunQueued
from retinue.model.results import REFUSED_EXIT_CODE
from retinue.model.tasks import CallContext
from retinue.runtime.event_bus import EventSubscription, SubscriberLaggedError
from retinue.runtime.progress import CallProgress
from retinue.servers.bridge.session_data import SessionLog, ViewBuilder, to_past_run
from retinue.servers.delegation_hint import is_hint_enabled, render_hint
from retinue.servers.lifecycle import run_until_signal
from retinue.servers.stdio import MAX_LINE_BYTES, claim_stdio
from retinue.sessions.store import INTERRUPTED
from retinue.toolsets.base import RunTool, ToolResult, Toolset
from retinue.toolsets.delegation import describe_tools

MAX_CALLS = 256
"""Calls at once; more are refused. Runs queue for their slots below this."""
STOP_TIMEOUT = 10.0
"""Seconds the runs of a cancelled call have to end: as long as a stubborn process tree takes."""
MIN_UPDATE_INTERVAL = 0.1
"""Seconds between two partial results of a call: each repeats the whole so far."""
TICK_INTERVAL = 1.0
"""Seconds between two views of a call in which only time passes."""

CANCELLED_RESULT = ToolResult(
    text="Cancelled. The partial output was kept: `retinue sessions list`.",
    details={},
    is_error=True,
    exit_code=REFUSED_EXIT_CODE,
)
"""The result of a cancelled call whose tool did not return one."""


class PendingCall:
    """A call in progress: its runs so far, their view and the data that the host stores."""

    def __init__(self, id_: str, call: CallContext, toolset: Toolset, max_lines: int) -> None:
        self._id = id_
        self._call = call
        self._parent_call = call.lineage.parent_call
        self._toolset = toolset
        self._views = ViewBuilder(max_lines, toolset.tool_session_id, verbatim=toolset.name == "fanout")
        self._progress = CallProgress()
        self._sessions = SessionLog()
        self.scope = anyio.CancelScope()
        self.is_cancelled = False
        self.latest: ToolResult | None = None
        """The newest partial result."""

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs that the call itself started, without those below them."""
        return self._sessions.runs

    def cancel(self) -> None:
        """Limit the time until the call is answered; the caller stops the runs."""
        self.is_cancelled = True
        self.scope.deadline = anyio.current_time() + STOP_TIMEOUT

    def add_event(self, record: EventRecord) -> messages.SessionStartedMessage | messages.SessionEndedMessage | None:
        """Apply an event of a run of this call or below; return the message that reports it, if any."""
        origin, event = record.origin, record.event
        is_own = origin.parent_tool_use_id == self._parent_call
        if not is_own and origin.parent_run not in self._progress.runs:
            return None
        if is_own and isinstance(event, RunEnded) and event.failure:
            message = self._toolset.failure_text(event.failure, self._call)
            event = structs.replace(event, failure=structs.replace(event.failure, message=message))
        self._progress = self._progress.apply(structs.replace(record, event=event))
        match event:
            case RunQueued() if is_own:
                session = self._sessions.start(self._progress.runs[origin.run], event)
                return messages.SessionStartedMessage(id=self._id, session=session)
            case RunEnded() if self._sessions.is_open(origin.run):
                session = self._sessions.end(self._progress.runs[origin.run], event)
                return messages.SessionEndedMessage(id=self._id, session=session)
            case _:
                self._sessions.add_event(origin.run, event)
                return None

    def make_partial(self) -> PartialReply:
        assert self.latest is not None
        return PartialReply(id=self._id, result=self.latest.as_json(), view=self._render_view())

    def make_result(self, result: ToolResult) -> ToolResultReply:
        return ToolResultReply(id=self._id, result=result.as_json(), view=self._render_view())

    def _render_view(self) -> messages.RenderedView | UnsetType:
        return self._views.build(self._progress, time.time())


class StdioBridge:
    """The requests of one extension, executed with one toolset of an open Retinue."""

    def __init__(self, retinue: Retinue, toolset: str, outgoing: OutgoingQueue, group: TaskGroup) -> None:
        self._retinue = retinue
        self._toolset = retinue.toolset(toolset)
        self._outgoing = outgoing
        self._group = group
        self._calls: dict[str, PendingCall] = {}
        self._events: EventSubscription | None = None
        self._restores: set[anyio.Event] = set()
        """Restores in progress, each set when done; calls wait for them."""
        self._answered = anyio.Event()
        self.is_shut_down = False
        """The extension requested the end of the bridge."""
        outgoing.send(messages.BridgeHello(version=__version__, surface=toolset, max_line_bytes=MAX_LINE_BYTES))

    async def follow(self) -> None:
        """Apply the events of all runs to their calls until cancelled."""
        while True:
            async with self._retinue.events() as self._events:
                try:
                    async for record in self._events:
                        self._add_event(record)
                except SubscriberLaggedError:
                    continue  # this process was too busy; the missed events are in the store

    async def tick(self) -> None:
        """Send a view of each call every second until cancelled, so that elapsed times advance."""
        while True:
            await anyio.sleep(TICK_INTERVAL)
            for id_, pending in self._calls.items():
                if pending.latest:
                    self._outgoing.send_update(id_, pending.make_partial)

    def handle_line(self, line: str) -> None:
        """Start what the request in a line asks for."""
        match messages.decode_request(line):
            case messages.ListToolsRequest() as request:
                self._list_tools(request)
            case CallToolRequest() as request:
                self._start_call(request)
            case messages.CancelRequest(id=call):
                self._cancel_call(call)
            case messages.RestoreRequest() as request:
                self._group.start_soon(self._restore, request, done := anyio.Event())
                self._restores.add(done)
            case messages.ShutdownRequest():
                self.is_shut_down = True
            case RefusalMessage() as refusal:
                self._outgoing.send(refusal)

    async def finish(self) -> None:
        """Cancel all calls and return when they are answered, at the latest after `STOP_TIMEOUT`."""
        with anyio.move_on_after(STOP_TIMEOUT):
            for call in self._calls:
                self._cancel_call(call)
            while self._calls:
                self._answered = anyio.Event()
                await self._answered.wait()
            await self._outgoing.drain()

    async def _restore(self, request: messages.RestoreRequest, done: anyio.Event) -> None:
        try:
            session = request.sessions[0].session_id if request.sessions else ""
            runs = [to_past_run(data) for data in request.sessions if data.session_id == session]
            await self._retinue.restore(self._toolset.name, session, runs)
        except RefusedError as refusal:  # the call that names the session will fail with "not found"
            self._outgoing.send(RefusalMessage(message=refusal.failure.message))
        finally:
            done.set()
            self._restores.discard(done)

    def _list_tools(self, request: messages.ListToolsRequest) -> None:
        try:
            tools = describe_tools(self._toolset, self._call_context(request.cwd))
        except ValueError as error:
            self._refuse(request.id, str(error))
            return
        has_hint = tools and is_hint_enabled(self._retinue, (self._toolset.name,))
        hint = render_hint(self._retinue) if has_hint else UNSET
        self._outgoing.send(messages.ToolsReply(id=request.id, tools=tools, policy=hint or UNSET))

    def _start_call(self, request: CallToolRequest) -> None:
        run = self._toolset.handlers.get(request.tool)
        if run is None:
            known = ", ".join(self._toolset.handlers)
            self._refuse(request.id, f"Unknown tool: {request.tool[:100]}. Tools of {self._toolset.name}: {known}")
        elif request.id in self._calls:
            self._refuse(
                request.id, f"A call with the id {request.id[:100]} is already in progress. Nothing was started."
            )
        elif len(self._calls) >= MAX_CALLS:
            self._refuse(request.id, f"{MAX_CALLS} calls are in progress, which is the limit. Nothing was started.")
        else:
            try:
                call = self._call_context(request.cwd, request)
            except ValueError as error:
                self._refuse(request.id, f"{error} Nothing was started.")
                return
            max_lines = self._retinue.settings(self._toolset.name).settings.max_lines_per_window
            self._calls[request.id] = PendingCall(request.id, call, self._toolset, max_lines)
            self._group.start_soon(self._run_call, request, call, run)

    async def _run_call(self, request: CallToolRequest, call: CallContext, run: RunTool) -> None:
        pending, result = self._calls[request.id], CANCELLED_RESULT

        async def send_partial(partial: ToolResult) -> None:
            pending.latest = partial
            self._outgoing.send_update(request.id, pending.make_partial)

        try:
            with pending.scope:
                for restored in tuple(self._restores):
                    await restored.wait()
                result = await run(request.arguments, call, send_partial if request.partials else None)
            self._catch_up()
        finally:
            del self._calls[request.id]
            self._answered.set()
        self._outgoing.drop_updates(request.id)
        self._outgoing.send(pending.make_result(result))

    def _cancel_call(self, call: str) -> None:
        """Stop the runs of a call, so that it answers; ignored if it has been answered."""
        if pending := self._calls.get(call):
            pending.cancel()
            for run in pending.runs:
                self._retinue.stop(run)

    def _catch_up(self) -> None:
        """Apply the events that have arrived: the result of a call includes all of them."""
        try:
            for record in self._events.drain() if self._events else ():
                self._add_event(record)
        except SubscriberLaggedError:
            return

    def _add_event(self, record: EventRecord) -> None:
        for pending in self._calls.values():
            if message := pending.add_event(record):
                self._outgoing.send(message)
            if pending.is_cancelled and record.origin.run in pending.runs:
                self._retinue.stop(record.origin.run)  # it started after the call was cancelled

    def _call_context(self, cwd: str | None, request: CallToolRequest | None = None) -> CallContext:
        """Return the context of a call that is made from this directory.

        Raises:
            ValueError: the id of the call or the directory is invalid.
        """
        if cwd and "\0" in cwd:
            raise ValueError("cwd is not a valid path: it contains a NUL byte.")
        call = self._retinue.call(self._toolset.name, parent_call=request.tool_call if request else None)
        return structs.replace(
            call,
            cwd=str(Path(call.cwd, cwd)) if cwd else call.cwd,
            host_tools=request.host_tools if request else None,
        )

    def _refuse(self, id_: str, message: str) -> None:
        self._outgoing.send(RefusalMessage(id=id_, message=message))


async def serve_bridge(retinue: Retinue, toolset: str) -> int:
    """Serve the extension at stdin and stdout until it disconnects, and return the exit code."""
    on_hangup: list[Callable[[], None]] = []

    async def serve() -> None:
        with claim_stdio() as (lines, writer):
            outgoing = OutgoingQueue(writer.send, MIN_UPDATE_INTERVAL)
            async with retinue, anyio.create_task_group() as group:

                def leave() -> None:
                    """Stop all runs as interrupted, because the host is gone."""
                    retinue.stop_all(INTERRUPTED)
                    group.cancel_scope.cancel()

                on_hangup.append(leave)
                bridge = StdioBridge(retinue, toolset, outgoing, group)
                group.start_soon(_write_until_closed, outgoing, leave)
                group.start_soon(bridge.follow)
                group.start_soon(bridge.tick)
                async for line in lines:
                    bridge.handle_line(line)
                    if bridge.is_shut_down:
                        await bridge.finish()
                        break
                leave()

    return await run_until_signal(serve, on_hangup)


async def _write_until_closed(outgoing: OutgoingQueue, leave: Callable[[], None]) -> None:
    """Write messages until the extension closes stdout, which ends the bridge."""
    with suppress(anyio.ClosedResourceError):
        await outgoing.write_messages()
    leave()
