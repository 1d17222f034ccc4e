"""The protocol's tasks and the files they are stored in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from tests.servers.mcp.tasks_client import TASKS, TasksExtension, send_task_request, start_task, wait_ended
from tests.support.retinue_factory import VIRTUAL_TIME

from retinue.engines.scripted import HangStep, RunCallback, WaitStep, call, reply
from retinue.servers.mcp.jobs import (
    INTERRUPTED_MESSAGE,
    START_TIMEOUT,
    TASK_TTL,
    UNEXPECTED_ERROR_MESSAGE,
    StoredTask,
    TaskFiles,
    TaskRegistry,
    ToolAnswer,
)
from retinue.servers.mcp.toolset_server import RUNS_KEY

MODERN = pytest.mark.parametrize("mode", ["auto"])
LEGACY = pytest.mark.parametrize("mode", ["legacy"])
TASK = {"agent": "explorer", "task": "Find auth code"}
ID = "a" * 32


def with_tasks(extension: TasksExtension) -> dict[str, Any]:
    return {"background": True, "client": {"extensions": [extension]}}


@VIRTUAL_TIME
@MODERN
async def test_long_call_becomes_a_task_with_the_result_of_the_call(connect):
    extension = TasksExtension()
    script = (call("read", path="a.py"), WaitStep(100), reply("In auth.py."))
    async with connect(*script, **with_tasks(extension)) as client:
        result = await client.call_tool("subagent", TASK)
        assert client.server_capabilities.extensions == {TASKS: {}}
    async with connect(*script) as client:
        plain = await client.call_tool("subagent", TASK)
    first, second, last = extension.seen[0], extension.seen[1], extension.seen[-1]
    assert (first["resultType"], first["status"], first["ttlMs"], first["pollIntervalMs"]) == (
        "task",
        "working",
        int(TASK_TTL * 1000),
        1000,
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["createdAt"])
    assert (second["resultType"], second["taskId"]) == ("complete", first["taskId"])
    assert "explorer: → read a.py" in {state.get("statusMessage") for state in extension.seen}
    assert (last["status"], "error" in last) == ("completed", False)
    assert (result.content, result.is_error) == (plain.content, False)
    assert result.structured_content.keys() == plain.structured_content.keys()
    assert result.meta[RUNS_KEY][0]["status"] == "completed"


@MODERN
async def test_call_answered_at_once_is_no_task(connect):
    extension = TasksExtension()
    async with connect(reply("done"), **with_tasks(extension)) as client:
        answered = await client.call_tool("subagent", TASK)
        refused = await client.call_tool("subagent", {"agent": "nobody", "task": "x"})
        looked = await client.call_tool("list_subagent_profiles", {})
    assert (answered.content[0].text, extension.seen) == ("done", [])
    assert "Unknown agent" in refused.content[0].text
    assert looked.structured_content["count"] == 0


@VIRTUAL_TIME
@pytest.mark.parametrize(
    "options",
    [{"background": True}, {"client": {"extensions": [TasksExtension()]}}],
    ids=["its client does not know them", "they were not asked for"],
)
@MODERN
async def test_calls_without_task_support_are_no_tasks(connect, options):
    async with connect(WaitStep(100), reply("done"), **options) as client:
        assert (await client.call_tool("subagent", TASK)).content[0].text == "done"


@LEGACY
async def test_previous_protocol_revision_has_no_tasks(connect):
    async with connect(reply("done"), **with_tasks(TasksExtension())) as client:
        assert (await client.call_tool("subagent", TASK)).content[0].text == "done"
        with pytest.raises(MCPError, match="Method not found"):
            await send_task_request(client.session, "tasks/get", ID)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@MODERN
async def test_task_methods_require_the_declared_extension(connect, method):
    async with connect(background=True) as client:
        with pytest.raises(MCPError) as refused:
            await send_task_request(client.session, method, ID)
    assert (refused.value.code, refused.value.data) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})


@pytest.mark.parametrize("name", [ID, "", "../own/" + ID, "x" * 5000, "\x00"])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@MODERN
async def test_unknown_task_is_a_protocol_error(connect, method, name):
    async with connect(**with_tasks(TasksExtension())) as client:
        with pytest.raises(MCPError, match=r"Task .* ?not found") as refused:
            await send_task_request(client.session, method, name)
    assert refused.value.code == -32602


@VIRTUAL_TIME
@MODERN
async def test_cancelled_task_stops_its_agents(connect):
    stopped = anyio.Event()

    async def wait_until_stopped() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with connect(RunCallback(wait_until_stopped), **with_tasks(TasksExtension())) as client:
        task = (await start_task(client, **TASK))["taskId"]
        accepted = await send_task_request(client.session, "tasks/cancel", task)
        state = await wait_ended(client.session, task)
        again = await send_task_request(client.session, "tasks/cancel", task)
    assert (accepted.keys() - {"_meta"}, stopped.is_set()) == ({"resultType"}, True)
    assert (state["status"], "result" in state, again["resultType"]) == ("cancelled", False, "complete")


@VIRTUAL_TIME
@MODERN
async def test_unrequested_task_update_changes_nothing(connect):
    async with connect(WaitStep(5), reply("done"), **with_tasks(TasksExtension())) as client:
        task = (await start_task(client, **TASK))["taskId"]
        accepted = await send_task_request(client.session, "tasks/update", task)
        state = await send_task_request(client.session, "tasks/get", task)
    assert (accepted["resultType"], state["status"]) == ("complete", "working")


@VIRTUAL_TIME
@MODERN
async def test_task_results_survive_a_server_restart(connect):
    async with connect(WaitStep(5), reply("done"), **with_tasks(TasksExtension())) as client:
        task = (await start_task(client, **TASK))["taskId"]
        await wait_ended(client.session, task)
    async with connect(**with_tasks(TasksExtension())) as client:
        state = await send_task_request(client.session, "tasks/get", task)
    assert (state["status"], state["result"]["content"]) == ("completed", [{"type": "text", "text": "done"}])


@VIRTUAL_TIME
@MODERN
async def test_task_ends_with_its_server_as_failed(connect):
    async with connect(HangStep(), **with_tasks(TasksExtension())) as client:
        task = (await start_task(client, **TASK))["taskId"]
    async with connect(**with_tasks(TasksExtension())) as client:
        state = await send_task_request(client.session, "tasks/get", task)
    assert (state["status"], state["error"]) == ("failed", {"code": -32603, "message": INTERRUPTED_MESSAGE})


@VIRTUAL_TIME
@MODERN
async def test_client_finds_no_task_of_another_client(connect):
    async with connect(HangStep(), client_name="alice", **with_tasks(TasksExtension())) as alice:
        task = (await start_task(alice, **TASK))["taskId"]
        async with connect(client_name="bob", **with_tasks(TasksExtension())) as bob:
            with pytest.raises(MCPError, match=r"Task .* ?not found"):
                await send_task_request(bob.session, "tasks/get", task)
            with pytest.raises(MCPError, match=r"Task .* ?not found"):
                await send_task_request(bob.session, "tasks/cancel", task)
        assert (await send_task_request(alice.session, "tasks/get", task))["status"] == "working"


@VIRTUAL_TIME
@MODERN
async def test_running_tasks_count_as_calls_in_flight(connect):
    async with connect(HangStep(), most_calls=1, **with_tasks(TasksExtension())) as client:
        task = (await start_task(client, **TASK))["taskId"]
        refused = await client.call_tool("subagent", TASK)
        state = await send_task_request(client.session, "tasks/get", task)
    assert refused.structured_content["error"]["code"] == "spawn_limit"
    assert state["status"] == "working"


@VIRTUAL_TIME
@MODERN
async def test_request_cancelled_before_it_became_a_task_leaves_nothing_running(connect, tmp_path):
    stopped = anyio.Event()

    async def wait_until_stopped() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with connect(RunCallback(wait_until_stopped), **with_tasks(TasksExtension())) as client:
        with anyio.move_on_after(START_TIMEOUT / 2):
            await start_task(client, **TASK)
        with anyio.fail_after(60):
            await stopped.wait()
    assert list(tmp_path.rglob(f"{'[0-9a-f]' * 32}.json")) == []


async def test_task_that_raises_fails_alone(tmp_path):
    async def broken(_: Any) -> ToolAnswer:
        raise ZeroDivisionError

    async def fine(_: Any) -> ToolAnswer:
        return ToolAnswer(text="fine", structured={})

    async with anyio.create_task_group() as group:
        tasks = TaskRegistry(tmp_path, group)
        failed = await tasks.start(broken)
        assert isinstance(failed, StoredTask), failed
        assert await tasks.start(fine) == ToolAnswer(text="fine", structured={})
        found = tasks.find(failed.id)
        assert found
        assert (failed.state, found.state, found.message) == ("failed", "failed", UNEXPECTED_ERROR_MESSAGE)


async def test_task_that_cannot_be_stored_is_cancelled(tmp_path):
    stopped = anyio.Event()

    async def long(_: Any) -> ToolAnswer:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    (tmp_path / "full").write_text("in the way")
    async with anyio.create_task_group() as group:
        tasks = TaskRegistry(tmp_path / "full" / "tasks", group)
        with pytest.raises(OSError, match="Not a directory"):
            await tasks.start(long)
        await stopped.wait()


# -- the files -------------------------------------------------------------------------------------


def test_task_with_an_unlocked_file_is_interrupted(tmp_path):
    ours, theirs = TaskFiles(tmp_path), TaskFiles(tmp_path)
    kept = StoredTask(id=ID, created=1.0, updated=1.0)
    ours.create(kept)
    assert (ours.find(ID), theirs.find(ID)) == (kept, kept)
    ours.abandon(ID)
    lost = theirs.find(ID)
    assert lost is not None
    assert (lost.state, lost.message) == ("failed", INTERRUPTED_MESSAGE)


def test_task_files_are_readable_by_their_user_only(tmp_path):
    files = TaskFiles(tmp_path / "tasks")
    files.create(StoredTask(id=ID, created=1.0, updated=1.0))
    files.finish(
        StoredTask(id=ID, created=1.0, updated=2.0, state="completed", answer=ToolAnswer(text="x", structured={}))
    )
    assert {
        oct(path.stat().st_mode & 0o777) for path in (tmp_path / "tasks", next((tmp_path / "tasks").iterdir()))
    } == {
        "0o700",
        "0o600",
    }


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"id": 1}', b"[" * 10_000])
def test_invalid_task_file_is_no_task(tmp_path, content):
    (tmp_path / f"{ID}.json").write_bytes(content)
    assert TaskFiles(tmp_path).find(ID) is None


def test_expired_tasks_are_deleted_unless_they_run(tmp_path):
    files = TaskFiles(tmp_path)
    for letter in "abc":
        files.create(StoredTask(id=letter * 32, created=1.0, updated=1.0))
    files.finish(StoredTask(id="a" * 32, created=1.0, updated=1.0, state="cancelled"))
    files.finish(StoredTask(id="b" * 32, created=1.0, updated=1.0, state="cancelled"))
    for letter in "ac":
        _age(tmp_path / f"{letter * 32}.json")
    TaskFiles(tmp_path).delete_expired()
    assert [path.name[0] for path in sorted(tmp_path.iterdir())] == ["b", "c"]


def _age(file: Path) -> None:
    then = file.stat().st_mtime - TASK_TTL - 60
    os.utime(file, (then, then))
