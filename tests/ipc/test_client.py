"""Receiving from a socket while the reader is cancelled."""

from __future__ import annotations

import asyncio
import socket

import anyio
from anyio.abc import SocketStream

from retinue.ipc.client import CancelSafeReceiveStream


async def test_reader_cancelled_while_data_arrives_logs_no_error(tmp_path):
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        async with await anyio.connect_unix(address) as stream:
            other, _ = listener.accept()
            with other:
                await _cancelled_as_it_arrives(stream, other)
    assert faults == []


async def _cancelled_as_it_arrives(stream: SocketStream, other: socket.socket) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(CancelSafeReceiveStream(stream).receive)
        await anyio.wait_all_tasks_blocked()
        other.send(b"x")
        # In the loop's next turn we go on before what has arrived is looked at.
        await asyncio.sleep(0)
        group.cancel_scope.cancel()


async def test_data_is_received_in_order_until_the_end(tmp_path):
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        async with await anyio.connect_unix(address) as stream:
            other, _ = listener.accept()
            with other:
                other.sendall(b"one two")
            arriving = CancelSafeReceiveStream(stream)
            assert [await arriving.receive(3), await arriving.receive(10)] == [b"one", b" two"]
            try:
                await arriving.receive()
            except anyio.EndOfStream:
                return
    raise AssertionError("the end was not told")
