"""Where a client's calls arrive: the tools of the surfaces that are mounted, each called, followed and reported on.

Knows nothing of the protocol's own types: `sdk` puts them around what stands here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import anyio
import msgspec
from msgspec import Struct, structs

from retinue.app import Retinue
from retinue.frontends.mcp.answers import Answer, Tell
from retinue.frontends.mcp.following import Followed, Follower
from retinue.frontends.mcp.prompts import TOOLS, Shown, delegating, shown_agents
from retinue.frontends.mcp.shapes import SHAPES, Schema, Shape, clash
from retinue.frontends.mcp.tasks import Tasks
from retinue.frontends.server import Unservable
from retinue.surfaces.base import REFUSED, Surface, ToolResult
from retinue.types import Call

MOST_CALLS = 16_384
"""Of one client in flight at once; more are refused. Far below this they wait for a slot, at about 25 KB each."""
PACE = 0.5
"""Seconds between two messages about the progress of a call."""
DETAILS = "retinue/details"
"""Under this name a result's `_meta` has what the surface gives hosts and programs beside its text, whole."""
RUNS = "retinue/runs"
"""Under this name a result's `_meta` says what really happened beside what was declared, for each of its runs."""


class Offer(Struct, frozen=True, kw_only=True):
    """A tool as a client sees it."""

    name: str
    description: str
    input_schema: Schema
    output_schema: Schema
    read_only: bool
    open_world: bool


class Desk:
    """The tools of one client. Calls are made in its block; everything they started ends with it."""

    def __init__(
        self,
        retinue: Retinue,
        follower: Follower,
        surfaces: Sequence[Surface],
        *,
        roots: Sequence[str],
        most_calls: int = MOST_CALLS,
        shapes: Mapping[tuple[str, str], Shape] = SHAPES,
        tasks: Tasks | None = None,
    ) -> None:
        self.tasks = tasks
        """Calls of this client that may outlast their requests; None where none may."""
        self._retinue = retinue
        self._follower = follower
        self._surfaces = surfaces
        self._roots = tuple(roots)
        self._tools = {name: (surface, run) for surface in surfaces for name, run in surface.calls.items()}
        self._way = next((tool for tool in TOOLS if tool in self._tools), None)
        self._most_calls = most_calls
        self._shapes = shapes
        self._in_flight = 0

    def offers(self) -> list[Offer]:
        """The tools that may be used here, as they are at this moment: agents come and go."""
        return [
            self._offer(surface, tool.name, tool.description, tool.input_schema)
            for surface in self._surfaces
            for tool in surface.tools(self._retinue.call(surface.name))
        ]

    def knows(self, tool: str) -> bool:
        return tool in self._tools

    def takes_long(self, tool: str) -> bool:
        """Whether a call is answered only when its agents are done."""
        shape = self._shapes[self._tools[tool][0].name, tool]
        return shape.dispatches and not shape.at_once

    def agents(self) -> list[Shown]:
        """The agents a user may choose from; none where none can be given a task."""
        return shown_agents(self._retinue) if self._way and self.offers() else []

    def prompt(self, agent: str, task: str) -> str | None:
        """What the host's user says to have a task given to an agent; None if there is no such agent."""
        known = {shown.name for shown in self.agents()}
        return delegating(agent, task, self._way) if agent in known and self._way else None

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, conversation: str | None = None, tell: Tell | None = None
    ) -> Answer:
        """Calls a tool; what its runs do meanwhile is told. Cancelled, it leaves ended runs.

        `conversation` is whatever tells one of the client's conversations from another; None where nothing does.
        """
        surface, run = self._tools[tool]
        shape = self._shapes[surface.name, tool]
        if self._in_flight >= self._most_calls:
            return _answer(shape, _crowded(self._most_calls), None)
        call = self._call(surface.name, conversation)
        self._in_flight += 1
        try:
            with self._follower.following(call.lineage.parent_call) as followed:
                result = await _told(lambda: run(dict(arguments), call, None), followed, tell)
                self._follower.catch_up()
                return _answer(shape, result, followed)
        finally:
            self._in_flight -= 1

    def _call(self, surface: str, conversation: str | None) -> Call:
        call = self._retinue.call(surface)
        lineage = call.lineage
        if conversation is not None:
            lineage = structs.replace(lineage, root=f"{lineage.root}-{conversation}")
        return structs.replace(call, lineage=lineage, roots=self._roots)

    def _offer(self, surface: Surface, name: str, description: str, schema: Schema) -> Offer:
        shape = self._shapes[surface.name, name]
        return Offer(
            name=name,
            description=description,
            input_schema=schema,
            output_schema=shape.output,
            read_only=not (shape.dispatches and self._may_write(surface)),
            open_world=shape.dispatches,
        )

    def _may_write(self, surface: Surface) -> bool:
        # Background tools are on the terms of `single`.
        known = surface.name if surface.name in self._retinue.surfaces else "single"
        return self._retinue.settings(known).settings.allow_write


@asynccontextmanager
async def opened(
    retinue: Retinue,
    surfaces: Sequence[str],
    *,
    roots: Sequence[str],
    background: bool = False,
    most_calls: int = MOST_CALLS,
) -> AsyncIterator[Desk]:
    """The desk of an open Retinue with these surfaces mounted; runs work within the roots only.

    Raises:
        Unservable: they cannot be mounted together.
    """
    if sentence := clash(surfaces):
        raise Unservable(sentence)
    follower = Follower(retinue)
    families: list[Surface] = [retinue.surface(name) for name in surfaces]
    tasks: Tasks | None = None
    async with anyio.create_task_group() as group:
        await group.start(follower.follow)
        if background:
            from retinue.frontends.mcp.background import Background

            families.append(Background(retinue, follower, group))
            tasks = Tasks(retinue.state / "tasks" / _folder(retinue.client), group)
        yield Desk(retinue, follower, families, roots=roots, most_calls=most_calls, tasks=tasks)
        group.cancel_scope.cancel()


def _folder(client: str | None) -> str:
    """What a client's folder is called: it finds nothing of another's."""
    return sha256(client.encode("utf-8", "surrogatepass")).hexdigest()[:16] if client else "own"


async def _told(work: Callable[[], Awaitable[ToolResult]], followed: Followed, tell: Tell | None) -> ToolResult:
    """Does the work, and meanwhile tells what happens to whoever wants to know."""
    if tell is None:
        return await work()

    async def keep_telling(tell: Tell) -> None:
        told = 0
        while True:
            if followed.changes == told:
                await followed.news()
            told = followed.changes
            await tell(float(told), followed.words())
            await anyio.sleep(PACE)

    async with anyio.create_task_group() as group:
        group.start_soon(keep_telling, tell)
        result = await work()
        group.cancel_scope.cancel()
    return result


def _answer(shape: Shape, result: ToolResult, followed: Followed | None) -> Answer:
    details, runs = msgspec.to_builtins(result.details), followed.report() if followed else []
    structured = shape.structured(result.text, details)
    beside = {**({} if structured == details else {DETAILS: details}), **({RUNS: runs} if runs else {})}
    return Answer(text=result.text, structured=structured, is_error=result.is_error, meta=beside or None)


def _crowded(most: int) -> ToolResult:
    message = (
        f"This client has {most} calls in flight, which is the limit. Nothing was started. "
        "Call again when one of them has been answered."
    )
    details = {"error": {"code": "spawn_limit", "message": message}}
    return ToolResult(text=message, details=details, is_error=True, exit_code=REFUSED)
