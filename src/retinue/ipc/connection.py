"""Serve one connection of a control socket: commands of other processes, and tool calls of delegating runs.

Its queue of outgoing messages also serves the bridge on stdio.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.ipc import messages
from retinue.ipc.addresses import belongs_to_run, is_same_user
from retinue.ipc.client import CancelSafeReceiveStream
from retinue.ipc.gate_connection import serve_gate
from retinue.ipc.messages import VERSION, BridgeMessage, CallTool, Command, ErrorReply, Reply, encode_line
from retinue.ipc.server import MAX_CLIENTS, ControlServer
from retinue.model.errors import RefusedError
from retinue.model.events import RunEnded
from retinue.model.runs import ServerAnswer
from retinue.model.tool_names import is_mcp_tool
from retinue.runtime.delegation import DelegatingRun
from retinue.runtime.event_bus import SubscriberLaggedError
from retinue.runtime.gate import find_gate
from retinue.runtime.orchestrator import Orchestrator
from retinue.toolsets.base import ToolResult
from retinue.toolsets.delegation import TOO_MANY_CALLS

OutgoingMessage = Reply | BridgeMessage
MakeMessage = Callable[[], OutgoingMessage]


class OutgoingQueue:
    """Write messages one after the other. Of the unwritten partial results of a call only the newest is kept."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], update_interval: float = 0.0) -> None:
        """`update_interval` is the time in seconds between two partial results: each repeats the whole so far."""
        self._write = write
        self._update_interval = update_interval
        self._messages: deque[OutgoingMessage | anyio.Event] = deque()
        self._updates: dict[str, MakeMessage] = {}
        self._changed = anyio.Event()
        self._urgent = anyio.Event()

    def send(self, message: OutgoingMessage | anyio.Event) -> None:
        """Add a message to the queue; an event is set when all messages before it are written."""
        self._messages.append(message)
        self._urgent.set()
        self._changed.set()

    async def drain(self) -> None:
        """Return when all messages sent so far are written."""
        self.send(written := anyio.Event())
        await written.wait()

    def send_update(self, call: str, make: MakeMessage) -> None:
        """Replace the unwritten partial result of a call; it is made when it is written."""
        self._updates[call] = make
        self._changed.set()

    def drop_updates(self, call: str) -> None:
        """Remove the unwritten partial result of a call."""
        self._updates.pop(call, None)

    async def write_messages(self) -> None:
        """Write until cancelled, or until the write function raises."""
        while True:
            await self._changed.wait()
            self._changed, self._urgent = anyio.Event(), anyio.Event()
            while self._messages:
                message = self._messages.popleft()
                if isinstance(message, anyio.Event):
                    message.set()
                else:
                    await self._write(encode_line(message))
            calls = tuple(self._updates)
            for call in calls:
                if not self._messages and (make := self._updates.pop(call, None)):
                    await self._write(encode_line(make()))
            if calls and self._update_interval:
                with anyio.move_on_after(self._update_interval):
                    await self._urgent.wait()


MAX_BATCH_EVENTS = 256
"""Events sent together."""
TOO_MANY_CLIENTS = f"{MAX_CLIENTS} clients are connected, which is the limit. Try again when one has disconnected."
OTHER_VERSION = f"This process uses version {VERSION} of the control protocol."
INVALID_TOKEN = "The token does not belong to a run that may delegate: the token is unknown, or its run has ended."  # noqa: S105 - a message

COMMANDED_BY_RUN = (
    "A process that an agent started cannot cancel, steer or extend runs. Nothing was changed. Run the command in "
    "your own terminal."
)


async def handle_connection(stream: SocketStream, server: ControlServer) -> None:
    """Serve one client until it disconnects."""
    if not is_same_user(stream.extra(SocketAttribute.raw_socket)):  # noqa: S610 - anyio's, no database
        return
    receiver = BufferedByteReceiveStream(CancelSafeReceiveStream(stream))
    hello: Command | ErrorReply | None = None
    with server.limit_handshake():
        hello = await read_command(receiver, messages.MAX_HELLO_BYTES)
    if not isinstance(hello, messages.HelloCommand) or hello.v != VERSION:
        await stream.send(encode_line(ErrorReply(OTHER_VERSION)))
        return
    welcome = encode_line(messages.HelloReply(VERSION, os.getpid()))
    if hello.token is None:
        with server.client_slot() as has_room:
            await stream.send(welcome if has_room else encode_line(ErrorReply(TOO_MANY_CLIENTS)))
            if has_room:
                await _serve_client(stream, receiver, server)
    elif run := server.orchestrator.delegation.find_by_token(hello.token):
        with run.counted_call() as has_room:
            await stream.send(welcome if has_room else encode_line(ErrorReply(TOO_MANY_CALLS)))
            if has_room:
                await DelegationConnection(stream, receiver, run, server).serve()
    elif gate := find_gate(server.orchestrator.gates, hello.token):
        await stream.send(welcome)
        await serve_gate(stream, receiver, gate)
    else:
        await stream.send(encode_line(ErrorReply(INVALID_TOKEN)))


async def read_command(
    receiver: BufferedByteReceiveStream, max_bytes: int = messages.MAX_COMMAND_BYTES
) -> Command | ErrorReply | None:
    """Return the next command, or the reply to an unknown one; None at the end of the connection."""
    try:
        return messages.decode_command(await receiver.receive_until(b"\n", max_bytes))
    except (anyio.IncompleteRead, anyio.DelimiterNotFound):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return ErrorReply(f"Unknown request: {error}.")


# -- a delegating run ------------------------------------------------------------------------------


class DelegationConnection:
    """A connection of a delegating run: one call at a time. Disconnecting cancels the call."""

    def __init__(
        self, stream: SocketStream, receiver: BufferedByteReceiveStream, run: DelegatingRun, server: ControlServer
    ) -> None:
        self._receiver = receiver
        self._run = run
        self._delegation = server.make_delegation(run)
        self._outgoing = OutgoingQueue(stream.send)
        self._scope = anyio.CancelScope()
        self._call_scope: anyio.CancelScope | None = None
        self._request: CallTool | None = None
        """The call in progress; other commands are ignored meanwhile."""
        self._request_arrived = anyio.Event()

    async def serve(self) -> None:
        """Serve commands until the client disconnects or the run ends."""
        with self._scope:
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._outgoing.write_messages)
                    while (command := await read_command(self._receiver)) is not None and self._run.is_running:
                        if self._request is None:
                            await self._dispatch(command)
                    group.cancel_scope.cancel()
            finally:
                if self._call_scope:
                    self._call_scope.cancel()

    async def _dispatch(self, command: Command | ErrorReply) -> None:
        match command:
            case messages.ListTools():
                servers = self._run.tool_servers
                of_servers = await servers.list_tools() if servers else ()
                await self._send(messages.ToolsReply(tools=(*self._delegation.list_tools(), *of_servers)))
            case messages.ListAgents():
                await self._send(messages.AgentsReply(self._delegation.list_agents()))
            case CallTool():
                self._start_call(command)
            case ErrorReply():
                await self._send(command)
            case _:
                await self._send(ErrorReply("A run may only list its tools and agents, and call them."))

    async def _send(self, reply: Reply) -> None:
        """Send a reply and wait until it is written, so that a client that does not read gets no further."""
        self._outgoing.send(reply)
        await self._outgoing.drain()

    def _start_call(self, request: CallTool) -> None:
        self._request = request
        self._request_arrived.set()
        if self._call_scope is None:
            self._call_scope = self._run.start_child(self._process_calls)
        if self._call_scope is None:
            self._scope.cancel()  # the run has ended

    async def _process_calls(self) -> None:
        """Execute one call after the other while the run lasts."""
        try:
            while True:
                await self._request_arrived.wait()
                self._request_arrived = anyio.Event()
                assert self._request is not None
                reply = await self._call_tool(self._request)
                # Before it is sent: the client may send its next call as soon as it has read the reply.
                self._request = None
                await self._send(reply)
        finally:
            self._scope.cancel()  # the run has ended, and with it all its calls

    async def _call_tool(self, request: CallTool) -> Reply:
        if self._run.tool_servers and is_mcp_tool(request.tool):
            arguments = request.arguments if isinstance(request.arguments, dict) else {}
            answer = await self._run.tool_servers.call(request.tool, arguments)
            return messages.ToolResultReply(result=_answer_as_json(answer))

        async def send_partial(partial: ToolResult) -> None:
            self._outgoing.send_update(request.tool_call, lambda: messages.PartialReply(result=partial.as_json()))

        update = send_partial if request.partials else None
        result = await self._delegation.run_tool(request.tool, request.tool_call, request.arguments, update)
        self._outgoing.drop_updates(request.tool_call)
        if isinstance(result, str):
            return ErrorReply(result)
        return messages.ToolResultReply(result=result.as_json())


def _answer_as_json(answer: ServerAnswer) -> dict[str, Any]:
    """Return the answer of an MCP server in the shape of pi's tool results."""
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [{"type": "image", "data": image.data, "mimeType": image.media_type} for image in answer.images]
    return {"content": content, "details": {}, **({"isError": True} if answer.is_error else {})}


# -- any other process of the user -----------------------------------------------------------------


async def _serve_client(stream: SocketStream, receiver: BufferedByteReceiveStream, server: ControlServer) -> None:
    while (command := await read_command(receiver)) is not None:
        with server.delay_closing():
            if isinstance(command, messages.WatchCommand):
                await _stream_events(stream, receiver, command, server)
                return
            if belongs_to_run(stream.extra(SocketAttribute.raw_socket)):  # noqa: S610 - anyio's, no database
                reply: Reply = ErrorReply(COMMANDED_BY_RUN)
            else:
                reply = await _execute_command(command, server.orchestrator)
            await stream.send(encode_line(reply))


async def _execute_command(command: Command | ErrorReply, orchestrator: Orchestrator) -> Reply:
    match command:
        case ErrorReply():
            return command
        case messages.CancelCommand(run=run):
            return await _cancel_run(run, orchestrator)
        case messages.SteerCommand(run=run, text=text):
            try:
                await orchestrator.active_runs.steer(run, text)
            except RefusedError as refusal:
                return messages.SteerReply(run, refusal.failure)
            return messages.SteerReply(run)
        case messages.ExtendCommand(run=run, seconds=seconds):
            try:
                return messages.ExtendReply(run, await orchestrator.active_runs.extend(run, seconds))
            except RefusedError as refusal:
                return messages.ExtendReply(run, failure=refusal.failure)
        case _:
            return ErrorReply("The request is not possible in the current state.")


async def _cancel_run(run: str, orchestrator: Orchestrator) -> messages.CancelReply:
    async with orchestrator.subscribe(deltas=False) as subscription:
        if not orchestrator.stop(run):
            return messages.CancelReply(run, found=False)
        while True:
            record = await anext(subscription)
            if record.origin.run == run and isinstance(record.event, RunEnded):
                return messages.CancelReply(run, found=True, failure=record.event.failure)


async def _stream_events(
    stream: SocketStream,
    receiver: BufferedByteReceiveStream,
    command: messages.WatchCommand,
    server: ControlServer,
) -> None:
    async with (
        server.orchestrator.subscribe(deltas=command.deltas) as subscription,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_wait_for_disconnect, receiver, group)
        # After subscribing: a run that starts now is reported by its events, and none is missed between.
        await stream.send(encode_line(messages.LiveRunsMessage(server.orchestrator.active_run_ids)))
        try:
            while events := await server.next_events(subscription):
                for first in range(0, len(events), MAX_BATCH_EVENTS):
                    batch = events[first : first + MAX_BATCH_EVENTS]
                    await stream.send(b"".join(map(messages.encode_event, batch)))
        except SubscriberLaggedError:
            await stream.send(encode_line(messages.SubscriberLagged()))
        group.cancel_scope.cancel()


async def _wait_for_disconnect(receiver: BufferedByteReceiveStream, group: TaskGroup) -> None:
    """Cancel the group when the client disconnects; whatever it still sends is ignored."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        while True:
            await receiver.receive()
    group.cancel_scope.cancel()
