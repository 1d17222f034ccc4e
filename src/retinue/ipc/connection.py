"""Serve one connection: commands of other processes, and the calls of delegating runs."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.ipc import socket_path as places
from retinue.ipc.messages import (
    MAX_COMMAND_BYTES,
    MAX_HELLO_BYTES,
    VERSION,
    AgentDescription,
    AgentsReply,
    CallTool,
    CancelCommand,
    CancelReply,
    Command,
    ErrorReply,
    ExtendCommand,
    ExtendReply,
    HelloCommand,
    HelloReply,
    ListAgents,
    ListTools,
    LiveRunsMessage,
    PartialReply,
    Reply,
    SteerCommand,
    SteerReply,
    SubscriberLagged,
    ToolDescription,
    ToolResultReply,
    ToolsReply,
    WatchCommand,
    decode_command,
    encode_event,
    encode_line,
)
from retinue.ipc.server import DISCONNECT_ERRORS, MAX_CLIENTS, ControlServer
from retinue.model.errors import RefusedError
from retinue.model.events import RunEnded
from retinue.model.tasks import CallContext
from retinue.runtime.delegation import MAX_CONNECTIONS, DelegatingRun
from retinue.runtime.event_bus import SubscriberLaggedError
from retinue.runtime.orchestrator import Orchestrator
from retinue.support.sockets import CancelSafeReceiveStream
from retinue.toolsets.base import (
    MAX_AGENTS,
    RunTool,
    ToolProvider,
    ToolResult,
    available_agents,
    describe_agent,
    requested_tools,
)


async def read_command(
    receiver: BufferedByteReceiveStream, max_bytes: int = MAX_COMMAND_BYTES
) -> Command | ErrorReply | None:
    """The next order, or why it is none; None when there will be no more."""
    try:
        return decode_command(await receiver.receive_until(b"\n", max_bytes))
    except (anyio.IncompleteRead, anyio.DelimiterNotFound):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return ErrorReply(f"This process knows no such order: {error}.")


async def wait_for_disconnect(receiver: BufferedByteReceiveStream, group: TaskGroup) -> None:
    """Ends the group when the client has left; what it says meanwhile is not heard."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        while True:
            await receiver.receive()
    group.cancel_scope.cancel()


INTERNAL_ERROR = (
    "The call was ended by a fault of Retinue itself, which its log describes. The run goes on: do without it."
)
INVALID_TOKEN = "No run that may delegate has this token: it was never given, or its run has ended."  # noqa: S105 - a message
TOO_MANY_CALLS = f"This run has {MAX_CONNECTIONS} calls under way already. Wait until one of them has been answered."


async def serve_delegating_run(
    stream: SocketStream, orders: BufferedByteReceiveStream, delegating_run: DelegatingRun, server: ControlServer
) -> None:
    """Speaks with a run until it leaves, or ends."""
    await DelegationConnection(stream, orders, delegating_run, server).serve()


class DelegationConnection:
    """One connection of a run: one call at a time. Leaving in the middle of it ends what it asked for."""

    def __init__(
        self,
        stream: SocketStream,
        orders: BufferedByteReceiveStream,
        delegating_run: DelegatingRun,
        server: ControlServer,
    ) -> None:
        self._stream = stream
        self._receiver = orders
        self._delegating_run = delegating_run
        self._toolset = server.toolset
        self._orchestrator = server.orchestrator
        self._send_lock = anyio.Lock(fast_acquire=True)
        self._receive_scope = anyio.CancelScope()
        self._call_scope: anyio.CancelScope | None = None
        self._request: CallTool | None = None
        """What goes on; meanwhile nothing else is heard."""
        self._request_arrived = anyio.Event()

    async def serve(self) -> None:
        with self._receive_scope:
            try:
                while (command := await read_command(self._receiver)) is not None and self._delegating_run.is_running:
                    if self._request is None:
                        await self._dispatch(command)
            finally:
                if self._call_scope:
                    self._call_scope.cancel()

    async def _dispatch(self, command: Command | ErrorReply) -> None:
        match command:
            case ListTools():
                await self._send(_list_tools(self._delegating_run, self._toolset))
            case ListAgents():
                await self._send(_list_agents(self._delegating_run, self._orchestrator))
            case CallTool():
                self._start_call(command)
            case ErrorReply():
                await self._send(command)
            case _:
                await self._send(ErrorReply("A run may ask for its tools and agents, and call them."))

    async def _send(self, reply: Reply) -> None:
        async with self._send_lock:
            await self._stream.send(encode_line(reply))

    def _start_call(self, request: CallTool) -> None:
        self._request = request
        self._request_arrived.set()
        if self._call_scope is None:
            self._call_scope = self._delegating_run.start_child(self._process_calls)
        if self._call_scope is None:
            self._receive_scope.cancel()  # the run has ended

    async def _process_calls(self) -> None:
        """Does what is asked for, one call after the other, within the life of the run."""
        try:
            with suppress(*DISCONNECT_ERRORS):
                while True:
                    await self._send(await self._next_reply())
        finally:
            self._receive_scope.cancel()  # the run has ended, and with it all it asked for

    async def _next_reply(self) -> Reply:
        """What came of the next call."""
        await self._request_arrived.wait()
        self._request_arrived = anyio.Event()
        assert self._request is not None
        reply = await self._call_tool(self._request)
        # Before it is sent: whoever has it may ask again before we know that they have.
        self._request = None
        return reply

    async def _call_tool(self, request: CallTool) -> Reply:
        run = self._toolset.handlers.get(request.tool)
        if run is None:
            return ErrorReply(f"There is no tool {request.tool!r}. Tools: {', '.join(self._toolset.handlers)}.")
        try:
            call = self._delegating_run.tool_call_context(request.call)
        except ValueError as error:
            return ErrorReply(str(error))
        try:
            result = await (
                self._with_partials(run, request, call) if request.partial else run(request.arguments, call, None)
            )
        except Exception:  # a fault of ours is the answer to this call, and no reason to end the run that made it
            logging.getLogger("retinue").exception(INTERNAL_ERROR)
            return ErrorReply(INTERNAL_ERROR)
        return ToolResultReply(result.as_json())

    async def _with_partials(self, run: RunTool, request: CallTool, call: CallContext) -> ToolResult:
        """The result; partial ones are told while it is still to come."""
        partials = _LatestPartial()
        async with anyio.create_task_group() as group:
            group.start_soon(self._send_partials, partials)
            result = await run(request.arguments, call, partials.put)
            partials.close()
        return result

    async def _send_partials(self, partials: _LatestPartial) -> None:
        with suppress(*DISCONNECT_ERRORS):
            while partial := await partials.get():
                await self._send(partial)


def _list_tools(delegating_run: DelegatingRun, toolset: ToolProvider) -> Reply:
    return ToolsReply(
        tuple(
            ToolDescription(tool.name, tool.description, tool.input_schema)
            for tool in toolset.list_tools(delegating_run.context)
        )
    )


def _list_agents(delegating_run: DelegatingRun, orchestrator: Orchestrator) -> Reply:
    """As subagents they have neither persona nor memory; no record has masked what their files say."""
    found = [
        (entry.agent.to_profile(), entry)
        for entry in available_agents(orchestrator, delegating_run.context)[:MAX_AGENTS]
    ]
    return AgentsReply(
        tuple(
            AgentDescription(
                agent.name,
                describe_agent(orchestrator, entry),
                orchestrator.redact(agent.body),
                requested_tools(agent.tools),
            )
            for agent, entry in found
        )
    )


class _LatestPartial:
    """The newest partial result. Whoever reads slowly misses some, and holds up nobody."""

    def __init__(self) -> None:
        self._newest: PartialReply | None = None
        self._changed = anyio.Event()

    async def put(self, result: ToolResult) -> None:
        self._newest = PartialReply(result.as_json())
        self._changed.set()

    def close(self) -> None:
        """There will be no more; one that nobody has been told is out of date."""
        self._newest = None
        self._changed.set()

    async def get(self) -> PartialReply | None:
        """What is new, once something is; None when there will be no more."""
        await self._changed.wait()
        self._changed = anyio.Event()
        newest, self._newest = self._newest, None
        return newest


MAX_BATCH_EVENTS = 256
"""Events sent together."""
TOO_MANY_CLIENTS = f"{MAX_CLIENTS} others are connected already. Try again when one of them has left."
OTHER_VERSION = f"This process speaks version {VERSION} of the control protocol."


async def handle_connection(stream: SocketStream, server: ControlServer) -> None:
    """Speaks with one client until it leaves."""
    if not places.is_same_user(stream.extra(SocketAttribute.raw_socket)):  # noqa: S610 - anyio's, no database
        return
    receiver = BufferedByteReceiveStream(CancelSafeReceiveStream(stream))
    hello: Command | ErrorReply | None = None
    with server.unauthenticated():
        hello = await read_command(receiver, MAX_HELLO_BYTES)
    if not isinstance(hello, HelloCommand) or hello.v != VERSION:
        await stream.send(encode_line(ErrorReply(OTHER_VERSION)))
        return
    if hello.token is not None:
        await _handle_delegating_run(stream, receiver, hello.token, server)
        return
    with server.client_slot() as has_room:
        if has_room:
            await stream.send(encode_line(HelloReply(VERSION, os.getpid())))
            await _serve_client(stream, receiver, server)
        else:
            await stream.send(encode_line(ErrorReply(TOO_MANY_CLIENTS)))


async def _serve_client(stream: SocketStream, receiver: BufferedByteReceiveStream, server: ControlServer) -> None:
    while (command := await read_command(receiver)) is not None:
        with server.in_flight():
            if isinstance(command, WatchCommand):
                await _stream_events(stream, receiver, command, server)
                return
            await stream.send(
                encode_line(
                    command
                    if isinstance(command, ErrorReply)
                    else await _execute_command(command, server.orchestrator)
                )
            )


async def _handle_delegating_run(
    stream: SocketStream, receiver: BufferedByteReceiveStream, token: str, server: ControlServer
) -> None:
    delegating_run = server.orchestrator.delegation.find_by_token(token)
    if delegating_run is None:
        await stream.send(encode_line(ErrorReply(INVALID_TOKEN)))
        return
    with delegating_run.connection() as has_room:
        if not has_room:
            await stream.send(encode_line(ErrorReply(TOO_MANY_CALLS)))
            return
        await stream.send(encode_line(HelloReply(VERSION, os.getpid())))
        await serve_delegating_run(stream, receiver, delegating_run, server)


async def _execute_command(command: Command, orchestrator: Orchestrator) -> Reply:
    match command:
        case CancelCommand(run=run):
            return await _cancel_run(run, orchestrator)
        case SteerCommand(run=run, text=text):
            try:
                await orchestrator.active_runs.steer(run, text)
            except RefusedError as refusal:
                return SteerReply(run, refusal.failure)
            return SteerReply(run)
        case ExtendCommand(run=run, seconds=seconds):
            try:
                return ExtendReply(run, await orchestrator.active_runs.extend(run, seconds))
            except RefusedError as refusal:
                return ExtendReply(run, failure=refusal.failure)
        case _:
            return ErrorReply("Nothing can be done about that now.")


async def _cancel_run(run: str, orchestrator: Orchestrator) -> CancelReply:
    async with orchestrator.subscribe(deltas=False) as subscription:
        if not orchestrator.stop(run):
            return CancelReply(run, found=False)
        while True:
            stamped = await anext(subscription)
            if stamped.origin.run == run and isinstance(stamped.event, RunEnded):
                return CancelReply(run, found=True, failure=stamped.event.failure)


async def _stream_events(
    stream: SocketStream, receiver: BufferedByteReceiveStream, command: WatchCommand, server: ControlServer
) -> None:
    async with (
        server.orchestrator.subscribe(deltas=command.deltas) as subscription,
        anyio.create_task_group() as group,
    ):
        group.start_soon(wait_for_disconnect, receiver, group)
        # After it watches: what begins now is told as it happens, and nothing is missed between.
        await stream.send(encode_line(LiveRunsMessage(server.orchestrator.active_run_ids)))
        try:
            while events := await server.next_events(subscription):
                for first in range(0, len(events), MAX_BATCH_EVENTS):
                    await stream.send(b"".join(map(encode_event, events[first : first + MAX_BATCH_EVENTS])))
        except SubscriberLaggedError:
            await stream.send(encode_line(SubscriberLagged()))
        group.cancel_scope.cancel()
