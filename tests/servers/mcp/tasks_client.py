"""A client of the tasks extension: polls a call that became a task until the task has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import anyio
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict

TASKS = "io.modelcontextprotocol/tasks"


class TaskStarted(Result):
    """The result of a call that became a task."""

    model_config = ConfigDict(extra="allow")
    result_type: Literal["task"]
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class TaskParams(RequestParams):
    task_id: str


class TaskRequest(Request[TaskParams, str]):
    name_param = "taskId"


class TaskReply(Result):
    model_config = ConfigDict(extra="allow")


async def start_task(client: Any, **arguments: Any) -> dict[str, Any]:
    """Call `subagent` and return its first result."""
    result = await client.session.call_tool("subagent", arguments, allow_claimed=True)
    found: dict[str, Any] = result.model_dump(by_alias=True, exclude_none=True)
    return found


async def send_task_request(session: Any, method: str, task: str) -> dict[str, Any]:
    """Send a request about a task and return its result."""
    reply = await session.send_request(TaskRequest(method=method, params=TaskParams(task_id=task)), TaskReply)
    found: dict[str, Any] = reply.model_dump(by_alias=True, exclude_none=True)
    return found


async def wait_ended(session: Any, task: str) -> dict[str, Any]:
    """Return a task once it has ended."""
    while True:
        reply = await send_task_request(session, "tasks/get", task)
        if reply["status"] != "working":
            return reply
        await anyio.sleep(1)


class TasksExtension(ClientExtension):
    """An extension that waits for every task and collects the results of its polls in `seen`."""

    identifier = TASKS

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskStarted, resolve=self._resolve)]

    async def _resolve(self, started: TaskStarted, context: ClaimContext) -> CallToolResult:
        self.seen.append(started.model_dump(by_alias=True, exclude_none=True))
        while (reply := await send_task_request(context.session, "tasks/get", started.task_id))[
            "status"
        ] == "working":
            self.seen.append(reply)
            await anyio.sleep(started.poll_interval_ms / 1000)
        self.seen.append(reply)
        return CallToolResult.model_validate(reply.get("result") or {"content": [], "isError": True})
