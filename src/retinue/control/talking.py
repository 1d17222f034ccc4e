"""What is said to whoever knocks at a process that has runs: what runs, what happens, what became of an order."""

from __future__ import annotations

import os

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from retinue.arriving import Arriving
from retinue.bus import Lagged
from retinue.control import calling, places
from retinue.control.door import MOST_GUESTS, Door
from retinue.control.listening import next_order, until_gone
from retinue.control.protocol import (
    GREETING_BYTES,
    VERSION,
    Answer,
    Cancel,
    Cancelled,
    Declined,
    Extend,
    Extended,
    Hello,
    Lagging,
    Live,
    Order,
    Steer,
    Steered,
    Watch,
    Welcome,
    event_line,
    line,
)
from retinue.events import RunEnded
from retinue.orchestrator import Orchestrator
from retinue.types import Refused

AT_ONCE = 256
"""Events sent together."""
TOO_MANY = f"{MOST_GUESTS} others are connected already. Try again when one of them has left."
OTHER_VERSION = f"This process speaks version {VERSION} of the control protocol."


async def talk(stream: SocketStream, door: Door) -> None:
    """Speaks with one client until it leaves."""
    if not places.is_friend(stream.extra(SocketAttribute.raw_socket)):  # noqa: S610 - anyio's, no database
        return
    orders = BufferedByteReceiveStream(Arriving(stream))
    greeting: Order | Declined | None = None
    with door.newcomer():
        greeting = await next_order(orders, GREETING_BYTES)
    if not isinstance(greeting, Hello) or greeting.v != VERSION:
        await stream.send(line(Declined(OTHER_VERSION)))
        return
    if greeting.token is not None:
        await _let_home(stream, orders, greeting.token, door)
        return
    with door.guest() as has_room:
        if has_room:
            await stream.send(line(Welcome(VERSION, os.getpid())))
            await _serve(stream, orders, door)
        else:
            await stream.send(line(Declined(TOO_MANY)))


async def _serve(stream: SocketStream, orders: BufferedByteReceiveStream, door: Door) -> None:
    while (given := await next_order(orders)) is not None:
        with door.telling():
            if isinstance(given, Watch):
                await _show(stream, orders, given, door)
                return
            await stream.send(line(given if isinstance(given, Declined) else await _obey(given, door.orchestrator)))


async def _let_home(stream: SocketStream, orders: BufferedByteReceiveStream, token: str, door: Door) -> None:
    member = door.orchestrator.household.known_by(token)
    if member is None:
        await stream.send(line(Declined(calling.NOBODY)))
        return
    with member.connected() as has_room:
        if not has_room:
            await stream.send(line(Declined(calling.TOO_MANY)))
            return
        await stream.send(line(Welcome(VERSION, os.getpid())))
        await calling.serve(stream, orders, member, door)


async def _obey(given: Order, orchestrator: Orchestrator) -> Answer:
    match given:
        case Cancel(run=run):
            return await _cancelled(run, orchestrator)
        case Steer(run=run, text=text):
            try:
                await orchestrator.running.steer(run, text)
            except Refused as refusal:
                return Steered(run, refusal.failure)
            return Steered(run)
        case Extend(run=run, seconds=seconds):
            try:
                return Extended(run, await orchestrator.running.extend(run, seconds))
            except Refused as refusal:
                return Extended(run, failure=refusal.failure)
        case _:
            return Declined("Nothing can be done about that now.")


async def _cancelled(run: str, orchestrator: Orchestrator) -> Cancelled:
    async with orchestrator.watch(deltas=False) as watcher:
        if not orchestrator.stop(run):
            return Cancelled(run, found=False)
        while True:
            stamped = await anext(watcher)
            if stamped.origin.run == run and isinstance(stamped.event, RunEnded):
                return Cancelled(run, found=True, failure=stamped.event.failure)


async def _show(stream: SocketStream, orders: BufferedByteReceiveStream, given: Watch, door: Door) -> None:
    async with door.orchestrator.watch(deltas=given.deltas) as watcher, anyio.create_task_group() as group:
        group.start_soon(until_gone, orders, group)
        # After it watches: what begins now is told as it happens, and nothing is missed between.
        await stream.send(line(Live(door.orchestrator.live)))
        try:
            while news := await door.news(watcher):
                for first in range(0, len(news), AT_ONCE):
                    await stream.send(b"".join(map(event_line, news[first : first + AT_ONCE])))
        except Lagged:
            await stream.send(line(Lagging()))
        group.cancel_scope.cancel()
