"""A family of tools: decodes input into a plan, renders results in its own words, decides nothing itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import anyio
from msgspec import Struct

from retinue.events import Stamped
from retinue.orchestrator import Orchestrator
from retinue.progress import Progress
from retinue.results import RunResult
from retinue.types import Call, Code

JsonObject = Mapping[str, Any]

PACE = 0.05
"""Seconds between two partial results: each repeats the whole so far, and no eye follows more."""

REFUSED = 2
"""Exit status of a call that was refused before anything ran."""

BEFORE_THE_RUN = frozenset(
    {
        Code.INVALID_INPUT,
        Code.UNKNOWN_AGENT,
        Code.AGENT_DISABLED,
        Code.UNKNOWN_SKILL,
        Code.CONFLICT,
        Code.UNSUPPORTED,
        Code.SPAWN_FAILED,
    }
)
"""Failures of a run that never was: where its task is the whole call, the call was refused."""


class ToolResult(Struct, frozen=True, kw_only=True):
    """What a tool call answers: text for the model, details for programs."""

    text: str
    details: JsonObject
    is_error: bool = False
    """Only where the surface's own system throws."""
    exit_code: int = 0
    """For a command line that makes the call; hosts do not see it."""

    def as_json(self) -> dict[str, Any]:
        """The tool result as hosts expect it."""
        found: dict[str, Any] = {"content": [{"type": "text", "text": self.text}], "details": self.details}
        if self.is_error:
            found["isError"] = True
        return found


Update = Callable[[ToolResult], None]
"""Takes a partial result while the work goes on; must return at once."""


ToolRun = Callable[[Any, Call, Update | None], Awaitable[ToolResult]]
"""Takes the arguments as they were given; answers whatever they are."""


class Tool(Struct, frozen=True, kw_only=True):
    """One tool as a host registers it."""

    name: str
    description: str
    input_schema: JsonObject
    run: ToolRun


class Surface(Protocol):
    name: str

    @property
    def calls(self) -> Mapping[str, ToolRun]:
        """Every tool by its name, also where none may be registered: calling it there is answered, too."""

    def tools(self, call: Call) -> tuple[Tool, ...]:
        """The tools a host at this place may register; none where none may be used."""

    def unreadable(self, tool: str, problem: str) -> ToolResult:
        """The answer to input that is not even JSON."""


def exit_status(results: Sequence[RunResult]) -> int:
    """The exit status of a call: 0 all completed, 130 cancelled, 124 nothing but timeouts, else 1."""
    codes = {result.failure.code for result in results if result.failure}
    if Code.ABORTED in codes:
        return 130
    if codes and codes <= {Code.TIMEOUT, Code.IDLE_TIMEOUT}:
        return 124
    return 1 if codes else 0


async def streamed(
    orchestrator: Orchestrator,
    call: Call,
    work: Callable[[], Awaitable[ToolResult]],
    partial: Callable[[Progress], ToolResult],
    update: Update | None,
) -> ToolResult:
    """Does the work, and meanwhile hands partial results to `update`; the last of them tells of all that happened."""
    if update is None:
        return await work()
    progress = Progress()

    def show(news: Iterable[Stamped]) -> None:
        nonlocal progress
        mine = [stamped for stamped in news if stamped.origin.parent_tool_use_id == call.lineage.parent_call]
        for stamped in mine:
            progress = progress.after(stamped)
        if mine:
            update(partial(progress))

    async def keep_showing() -> None:
        async for stamped in watcher:
            show((stamped, *watcher.waiting()))
            await anyio.sleep(PACE)

    async with orchestrator.watch() as watcher:
        async with anyio.create_task_group() as group:
            group.start_soon(keep_showing)
            result = await work()
            group.cancel_scope.cancel()
        show(watcher.waiting())
    return result
