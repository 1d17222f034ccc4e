"""The tasks extension as a host has it: a call that became a task is asked after until it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import anyio
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict

TASKS = "io.modelcontextprotocol/tasks"


class Begun(Result):
    """What a call answers that became a task."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"]
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class TaskParams(RequestParams):
    task_id: str


class AboutTask(Request[TaskParams, str]):
    name_param = "taskId"


class Told(Result):
    model_config = ConfigDict(extra="allow")


async def begin(client: Any, **arguments: Any) -> dict[str, Any]:
    """What a call of `subagent` answers at once."""
    result = await client.session.call_tool("subagent", arguments, allow_claimed=True)
    found: dict[str, Any] = result.model_dump(by_alias=True, exclude_none=True)
    return found


async def ask(session: Any, method: str, task: str) -> dict[str, Any]:
    """The answer to a question about a task."""
    told = await session.send_request(AboutTask(method=method, params=TaskParams(task_id=task)), Told)
    found: dict[str, Any] = told.model_dump(by_alias=True, exclude_none=True)
    return found


async def ended(session: Any, task: str) -> dict[str, Any]:
    """A task once it has ended."""
    while True:
        told = await ask(session, "tasks/get", task)
        if told["status"] != "working":
            return told
        await anyio.sleep(1)


class TasksExtension(ClientExtension):
    """Waits for every task. `seen` has what each question was answered with."""

    identifier = TASKS

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Begun, resolve=self._resolve)]

    async def _resolve(self, begun: Begun, context: ClaimContext) -> CallToolResult:
        self.seen.append(begun.model_dump(by_alias=True, exclude_none=True))
        while (told := await ask(context.session, "tasks/get", begun.task_id))["status"] == "working":
            self.seen.append(told)
            await anyio.sleep(begun.poll_interval_ms / 1000)
        self.seen.append(told)
        return CallToolResult.model_validate(told.get("result") or {"content": [], "isError": True})
