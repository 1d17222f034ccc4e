"""What a client says: its orders, and that it has left."""

from __future__ import annotations

from contextlib import suppress

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.control.protocol import ORDER_BYTES, Declined, Order, order


async def next_order(orders: BufferedByteReceiveStream, most_bytes: int = ORDER_BYTES) -> Order | Declined | None:
    """The next order, or why it is none; None when there will be no more."""
    try:
        return order(await orders.receive_until(b"\n", most_bytes))
    except (anyio.IncompleteRead, anyio.DelimiterNotFound):
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Declined(f"This process knows no such order: {error}.")


async def until_gone(orders: BufferedByteReceiveStream, group: TaskGroup) -> None:
    """Ends the group when the client has left; what it says meanwhile is not heard."""
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        while True:
            await orders.receive()
    group.cancel_scope.cancel()
