"""The protocol's own tasks: a call that takes long becomes one, for clients that say they understand it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from tests.servers.mcp.tasks_client import TASKS, TasksExtension, ask, begin, ended
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


def understanding(extension: TasksExtension) -> dict[str, Any]:
    return {"background": True, "client": {"extensions": [extension]}}


@VIRTUAL_TIME
@MODERN
async def test_a_call_that_takes_long_becomes_a_task_and_its_result_is_that_of_the_call(connect):
    extension = TasksExtension()
    script = (call("read", path="a.py"), WaitStep(100), reply("In auth.py."))
    async with connect(*script, **understanding(extension)) as client:
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
    assert "explorer: → read a.py" in {told.get("statusMessage") for told in extension.seen}
    assert (last["status"], "error" in last) == ("completed", False)
    assert (result.content, result.is_error) == (plain.content, False)
    assert result.structured_content.keys() == plain.structured_content.keys()
    assert result.meta[RUNS_KEY][0]["status"] == "completed"


@MODERN
async def test_what_is_answered_at_once_is_no_task(connect):
    extension = TasksExtension()
    async with connect(reply("done"), **understanding(extension)) as client:
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
async def test_there_are_no_tasks_where(connect, options):
    async with connect(WaitStep(100), reply("done"), **options) as client:
        assert (await client.call_tool("subagent", TASK)).content[0].text == "done"


@LEGACY
async def test_the_revision_before_has_none(connect):
    async with connect(reply("done"), **understanding(TasksExtension())) as client:
        assert (await client.call_tool("subagent", TASK)).content[0].text == "done"
        with pytest.raises(MCPError, match="Method not found"):
            await ask(client.session, "tasks/get", ID)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@MODERN
async def test_who_does_not_declare_them_may_not_ask(connect, method):
    async with connect(background=True) as client:
        with pytest.raises(MCPError) as refused:
            await ask(client.session, method, ID)
    assert (refused.value.code, refused.value.data) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})


@pytest.mark.parametrize("name", [ID, "", "../own/" + ID, "x" * 5000, "\x00"])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@MODERN
async def test_a_task_nobody_began_is_an_error_of_the_protocol(connect, method, name):
    async with connect(**understanding(TasksExtension())) as client:
        with pytest.raises(MCPError, match="There is no task of the id") as refused:
            await ask(client.session, method, name)
    assert refused.value.code == -32602


@VIRTUAL_TIME
@MODERN
async def test_a_cancelled_task_stops_its_agents_and_says_so(connect):
    stopped = anyio.Event()

    async def until_stopped() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with connect(RunCallback(until_stopped), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
        said = await ask(client.session, "tasks/cancel", task)
        told = await ended(client.session, task)
        again = await ask(client.session, "tasks/cancel", task)
    assert (said.keys() - {"_meta"}, stopped.is_set()) == ({"resultType"}, True)
    assert (told["status"], "result" in told, again["resultType"]) == ("cancelled", False, "complete")


@VIRTUAL_TIME
@MODERN
async def test_answers_nobody_asked_for_are_taken_and_change_nothing(connect):
    async with connect(WaitStep(5), reply("done"), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
        said = await ask(client.session, "tasks/update", task)
        told = await ask(client.session, "tasks/get", task)
    assert (said["resultType"], told["status"]) == ("complete", "working")


@VIRTUAL_TIME
@MODERN
async def test_results_survive_a_restart_of_the_server(connect):
    async with connect(WaitStep(5), reply("done"), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
        await ended(client.session, task)
    async with connect(**understanding(TasksExtension())) as client:
        told = await ask(client.session, "tasks/get", task)
    assert (told["status"], told["result"]["content"]) == ("completed", [{"type": "text", "text": "done"}])


@VIRTUAL_TIME
@MODERN
async def test_a_task_ends_with_its_server_and_the_next_one_says_so(connect):
    async with connect(HangStep(), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
    async with connect(**understanding(TasksExtension())) as client:
        told = await ask(client.session, "tasks/get", task)
    assert (told["status"], told["error"]) == ("failed", {"code": -32603, "message": INTERRUPTED_MESSAGE})


@VIRTUAL_TIME
@MODERN
async def test_a_client_finds_no_task_of_another(connect):
    async with connect(HangStep(), client_name="alice", **understanding(TasksExtension())) as alice:
        task = (await begin(alice, **TASK))["taskId"]
        async with connect(client_name="bob", **understanding(TasksExtension())) as bob:
            with pytest.raises(MCPError, match="There is no task"):
                await ask(bob.session, "tasks/get", task)
            with pytest.raises(MCPError, match="There is no task"):
                await ask(bob.session, "tasks/cancel", task)
        assert (await ask(alice.session, "tasks/get", task))["status"] == "working"


@VIRTUAL_TIME
@MODERN
async def test_tasks_at_work_are_calls_in_flight_and_bounded_as_they_are(connect):
    async with connect(HangStep(), most_calls=1, **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
        refused = await client.call_tool("subagent", TASK)
        told = await ask(client.session, "tasks/get", task)
    assert refused.structured_content["error"]["code"] == "spawn_limit"
    assert told["status"] == "working"


@VIRTUAL_TIME
@MODERN
async def test_a_request_that_is_cancelled_before_it_became_a_task_leaves_nothing_running(connect, tmp_path):
    stopped = anyio.Event()

    async def until_stopped() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with connect(RunCallback(until_stopped), **understanding(TasksExtension())) as client:
        with anyio.move_on_after(START_TIMEOUT / 2):
            await begin(client, **TASK)
        with anyio.fail_after(60):
            await stopped.wait()
    assert list(tmp_path.rglob(f"{'[0-9a-f]' * 32}.json")) == []


async def test_a_call_that_breaks_fails_alone(tmp_path):
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


async def test_what_cannot_be_recorded_does_not_go_on(tmp_path):
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


def test_a_task_is_carried_out_by_whoever_holds_its_file(tmp_path):
    ours, theirs = TaskFiles(tmp_path), TaskFiles(tmp_path)
    kept = StoredTask(id=ID, created=1.0, updated=1.0)
    ours.create(kept)
    assert (ours.find(ID), theirs.find(ID)) == (kept, kept)
    ours.abandon(ID)
    lost = theirs.find(ID)
    assert lost is not None
    assert (lost.state, lost.message) == ("failed", INTERRUPTED_MESSAGE)


def test_only_its_user_can_read_a_task(tmp_path):
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
def test_a_file_that_tells_nothing_is_no_task(tmp_path, content):
    (tmp_path / f"{ID}.json").write_bytes(content)
    assert TaskFiles(tmp_path).find(ID) is None


def test_old_tasks_are_forgotten_and_those_at_work_are_not(tmp_path):
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
