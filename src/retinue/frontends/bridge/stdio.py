"""The bridge itself: lines in, calls carried out side by side, lines out, until the extension leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from retinue import __version__
from retinue.app import Retinue
from retinue.bus import Lagged, Watcher
from retinue.events import Stamped
from retinue.frontends.bridge.in_flight import STOPPING, InFlight
from retinue.frontends.bridge.outlet import Outlet
from retinue.frontends.bridge.protocol import (
    CallTool,
    Cancel,
    Hello,
    Refusal,
    Restore,
    Shutdown,
    Tools,
    heard,
    offered,
)
from retinue.frontends.bridge.session_data import past_run
from retinue.frontends.policy import is_wanted, policy
from retinue.frontends.server import until_signalled
from retinue.frontends.stdio import MAX_LINE_BYTES, claimed
from retinue.sessions.store import INTERRUPTED
from retinue.surfaces.base import REFUSED, ToolResult, ToolRun
from retinue.types import Call, Refused

MOST_CALLS = 256
"""In flight at once; more are refused. Runs queue for their slots below this."""
TICK = 1.0
"""Seconds between two pictures of a call in which nothing else happens than that time passes."""

CANCELLED = ToolResult(
    text="Cancelled; what there was is kept: `retinue sessions list`.", details={}, is_error=True, exit_code=REFUSED
)
"""The answer of a call that was cancelled and did not answer by itself."""


class Bridge:
    """Carries out what an extension asks for on one surface of an open Retinue."""

    def __init__(self, retinue: Retinue, surface: str, outlet: Outlet, group: TaskGroup) -> None:
        self._retinue = retinue
        self._surface = retinue.surface(surface)
        self._outlet = outlet
        self._group = group
        self._calls: dict[str, InFlight] = {}
        self._events: Watcher | None = None
        self._restores: set[anyio.Event] = set()
        """Set once the session is in the store; calls wait for them."""
        self._answered = anyio.Event()
        self.is_shut_down = False
        """Whether the extension asked the bridge to end."""
        outlet.say(Hello(version=__version__, surface=surface, max_line_bytes=MAX_LINE_BYTES))

    async def follow(self) -> None:
        """Watches the runs of all calls until cancelled."""
        while True:
            async with self._retinue.events() as self._events:
                try:
                    async for stamped in self._events:
                        self._take(stamped)
                except Lagged:  # this process did not get round to it for long: what came meanwhile is in the store
                    continue

    async def tick(self) -> None:
        """Shows that time passes, until cancelled."""
        while True:
            await anyio.sleep(TICK)
            for id_, in_flight in self._calls.items():
                if in_flight.latest:
                    self._outlet.show(id_, in_flight.partial)

    def take(self, line: str) -> None:
        """Begins what a line asks for."""
        match heard(line):
            case Tools() as asked:
                self._offer(asked)
            case CallTool() as asked:
                self._begin(asked)
            case Cancel() as asked:
                self._cancel(asked.id)
            case Restore() as asked:
                self._group.start_soon(self._restore, asked, done := anyio.Event())
                self._restores.add(done)
            case Shutdown():
                self.is_shut_down = True
            case Refusal() as refusal:
                self._outlet.say(refusal)

    async def finish(self) -> None:
        """Cancel all calls and return when they are answered; bounded."""
        with anyio.move_on_after(STOPPING):
            for call in self._calls:
                self._cancel(call)
            while self._calls:
                self._answered = anyio.Event()
                await self._answered.wait()
            await self._outlet.drain()

    async def _restore(self, asked: Restore, done: anyio.Event) -> None:
        try:
            session = asked.sessions[0].session_id if asked.sessions else ""
            runs = [past_run(data) for data in asked.sessions if data.session_id == session]
            await self._retinue.restore(self._surface.name, session, runs)
        except Refused as refusal:  # the call that names the session says that it is not found
            self._outlet.say(Refusal(message=refusal.failure.message))
        finally:
            done.set()
            self._restores.discard(done)

    def _offer(self, asked: Tools) -> None:
        try:
            tools = self._surface.tools(self._call(asked.cwd))
        except ValueError as error:
            self._refuse(asked.id, str(error))
            return
        is_told = tools and is_wanted(self._retinue, (self._surface.name,))
        self._outlet.say(offered(asked.id, tools, policy(self._retinue) if is_told else None))

    def _begin(self, asked: CallTool) -> None:
        run = self._surface.calls.get(asked.tool)
        if run is None:
            known = ", ".join(self._surface.calls)
            self._refuse(asked.id, f"Unknown tool: {asked.tool[:100]}. Tools of {self._surface.name}: {known}")
        elif asked.id in self._calls:
            self._refuse(asked.id, f"A call of the id {asked.id[:100]} is in flight. Nothing was started.")
        elif len(self._calls) >= MOST_CALLS:
            self._refuse(asked.id, f"{MOST_CALLS} calls are in flight, which is the limit. Nothing was started.")
        else:
            try:
                call = self._call(asked.cwd, asked)
            except ValueError as error:
                self._refuse(asked.id, f"{error} Nothing was started.")
                return
            max_lines = self._retinue.settings(self._surface.name).settings.max_lines_per_window
            self._calls[asked.id] = InFlight(asked.id, call, self._surface, max_lines)
            self._group.start_soon(self._carry_out, asked, call, run)

    async def _carry_out(self, asked: CallTool, call: Call, run: ToolRun) -> None:
        in_flight, result = self._calls[asked.id], CANCELLED

        async def show(partial: ToolResult) -> None:
            in_flight.latest = partial
            self._outlet.show(asked.id, in_flight.partial)

        try:
            with in_flight.scope:
                for restored in tuple(self._restores):
                    await restored.wait()
                result = await run(asked.arguments, call, show if asked.partials else None)
            self._catch_up()
        finally:
            del self._calls[asked.id]
            self._answered.set()
        self._outlet.forget(asked.id)
        self._outlet.say(in_flight.result(result))

    def _cancel(self, call: str) -> None:
        """Stops the runs of a call and lets it answer; one that has been answered is none any more."""
        if in_flight := self._calls.get(call):
            in_flight.cancel()
            for run in in_flight.runs:
                self._retinue.stop(run)

    def _catch_up(self) -> None:
        """Takes in what has happened and was not yet looked at: a call that is over wants to know all of it."""
        try:
            for stamped in self._events.waiting() if self._events else ():
                self._take(stamped)
        except Lagged:
            return

    def _take(self, stamped: Stamped) -> None:
        for in_flight in self._calls.values():
            if message := in_flight.take(stamped):
                self._outlet.say(message)
            if in_flight.is_cancelled and stamped.origin.run in in_flight.runs:
                self._retinue.stop(stamped.origin.run)  # it began when the call was cancelled already

    def _call(self, cwd: str | None, asked: CallTool | None = None) -> Call:
        """The call on the surface's terms, made from this directory.

        Raises:
            ValueError: its id is none, or the directory.
        """
        if cwd and "\0" in cwd:
            raise ValueError("cwd is no path: it contains a NUL byte.")
        call = self._retinue.call(self._surface.name, parent_call=asked.tool_call if asked else None)
        return structs.replace(
            call,
            cwd=str(Path(call.cwd, cwd)) if cwd else call.cwd,
            host_tools=asked.host_tools if asked else None,
        )

    def _refuse(self, id_: str, message: str) -> None:
        self._outlet.say(Refusal(id=id_, message=message))


async def on_stdio(retinue: Retinue, surface: str) -> int:
    """Serves the extension at stdin and stdout until it leaves; the exit code."""
    on_hangup: list[Callable[[], None]] = []

    async def served() -> None:
        with claimed() as (lines, writer):
            outlet = Outlet(writer)
            async with retinue, anyio.create_task_group() as group:

                def leave() -> None:
                    """End all that still runs: nobody asked for that, the host is gone."""
                    retinue.stop_all(INTERRUPTED)
                    group.cancel_scope.cancel()

                on_hangup.append(leave)
                bridge = Bridge(retinue, surface, outlet, group)
                group.start_soon(_speak, outlet, leave)
                group.start_soon(bridge.follow)
                group.start_soon(bridge.tick)
                async for line in lines:
                    bridge.take(line)
                    if bridge.is_shut_down:
                        await bridge.finish()
                        break
                leave()

    return await until_signalled(served, on_hangup)


async def _speak(outlet: Outlet, leave: Callable[[], None]) -> None:
    """Speaks until nobody listens, which ends everything."""
    with suppress(anyio.ClosedResourceError):
        await outlet.speak()
    leave()
