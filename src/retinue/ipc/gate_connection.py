"""Serve one connection of a run whose process asks before a tool call; disconnecting ends the check."""

from __future__ import annotations

from contextlib import suppress

import anyio
import msgspec
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.ipc import messages
from retinue.ipc.messages import CheckCall, DecisionReply, ErrorReply, Reply, encode_line
from retinue.model.runs import ToolUse
from retinue.runtime.gate import RunGate

RUN_ENDED = "The call is not decided: the run has ended."
INVALID_REQUEST = "A tool call can be checked here, and nothing else."


async def serve_gate(stream: SocketStream, receiver: BufferedByteReceiveStream, gate: RunGate) -> None:
    """Answer the one request of the connection."""
    reply: Reply = ErrorReply(INVALID_REQUEST)
    with suppress(anyio.IncompleteRead, anyio.DelimiterNotFound, msgspec.MsgspecError, UnicodeDecodeError):
        line = await receiver.receive_until(b"\n", messages.MAX_COMMAND_BYTES)
        command = messages.decode_command(line)
        if isinstance(command, CheckCall):
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_at_disconnect, receiver, group.cancel_scope)
                reply = await _check(command, gate)
                group.cancel_scope.cancel()
    await stream.send(encode_line(reply))


async def _check(command: CheckCall, gate: RunGate) -> Reply:
    decision = await gate.check_remote(ToolUse(command.tool_call, command.tool, command.arguments))
    if decision is None:
        return ErrorReply(RUN_ENDED)
    return DecisionReply(denied=decision.denied, arguments=decision.args, context=decision.context)


async def _cancel_at_disconnect(receiver: BufferedByteReceiveStream, scope: anyio.CancelScope) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        while True:
            await receiver.receive()
    scope.cancel()
