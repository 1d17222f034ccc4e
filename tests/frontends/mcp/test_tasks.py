"""The protocol's own tasks: a call that takes long becomes one, for clients that say they understand it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from tests.frontends.mcp.tasks_client import TASKS, TasksExtension, ask, begin, ended
from tests.stage import VIRTUAL_TIME

from retinue.engines.scripted import Do, Hang, Wait, call, say
from retinue.frontends.mcp.answers import FIRST_LOOK, Answer
from retinue.frontends.mcp.desk import RUNS
from retinue.frontends.mcp.task_files import INTERRUPTED, KEPT, Kept, TaskFiles
from retinue.frontends.mcp.tasks import BROKE, Tasks

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
    script = (call("read", path="a.py"), Wait(100), say("In auth.py."))
    async with connect(*script, **understanding(extension)) as client:
        result = await client.call_tool("subagent", TASK)
        assert client.server_capabilities.extensions == {TASKS: {}}
    async with connect(*script) as client:
        plain = await client.call_tool("subagent", TASK)
    first, second, last = extension.seen[0], extension.seen[1], extension.seen[-1]
    assert (first["resultType"], first["status"], first["ttlMs"], first["pollIntervalMs"]) == (
        "task",
        "working",
        int(KEPT * 1000),
        1000,
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", first["createdAt"])
    assert (second["resultType"], second["taskId"]) == ("complete", first["taskId"])
    assert "explorer: → read a.py" in {told.get("statusMessage") for told in extension.seen}
    assert (last["status"], "error" in last) == ("completed", False)
    assert (result.content, result.is_error) == (plain.content, False)
    assert result.structured_content.keys() == plain.structured_content.keys()
    assert result.meta[RUNS][0]["status"] == "completed"


@MODERN
async def test_what_is_answered_at_once_is_no_task(connect):
    extension = TasksExtension()
    async with connect(say("done"), **understanding(extension)) as client:
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
    async with connect(Wait(100), say("done"), **options) as client:
        assert (await client.call_tool("subagent", TASK)).content[0].text == "done"


@LEGACY
async def test_the_revision_before_has_none(connect):
    async with connect(say("done"), **understanding(TasksExtension())) as client:
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

    async with connect(Do(until_stopped), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
        said = await ask(client.session, "tasks/cancel", task)
        told = await ended(client.session, task)
        again = await ask(client.session, "tasks/cancel", task)
    assert (said.keys() - {"_meta"}, stopped.is_set()) == ({"resultType"}, True)
    assert (told["status"], "result" in told, again["resultType"]) == ("cancelled", False, "complete")


@VIRTUAL_TIME
@MODERN
async def test_answers_nobody_asked_for_are_taken_and_change_nothing(connect):
    async with connect(Wait(5), say("done"), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
        said = await ask(client.session, "tasks/update", task)
        told = await ask(client.session, "tasks/get", task)
    assert (said["resultType"], told["status"]) == ("complete", "working")


@VIRTUAL_TIME
@MODERN
async def test_results_survive_a_restart_of_the_server(connect):
    async with connect(Wait(5), say("done"), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
        await ended(client.session, task)
    async with connect(**understanding(TasksExtension())) as client:
        told = await ask(client.session, "tasks/get", task)
    assert (told["status"], told["result"]["content"]) == ("completed", [{"type": "text", "text": "done"}])


@VIRTUAL_TIME
@MODERN
async def test_a_task_ends_with_its_server_and_the_next_one_says_so(connect):
    async with connect(Hang(), **understanding(TasksExtension())) as client:
        task = (await begin(client, **TASK))["taskId"]
    async with connect(**understanding(TasksExtension())) as client:
        told = await ask(client.session, "tasks/get", task)
    assert (told["status"], told["error"]) == ("failed", {"code": -32603, "message": INTERRUPTED})


@VIRTUAL_TIME
@MODERN
async def test_a_client_finds_no_task_of_another(connect):
    async with connect(Hang(), client_name="alice", **understanding(TasksExtension())) as alice:
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
    async with connect(Hang(), most_calls=1, **understanding(TasksExtension())) as client:
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

    async with connect(Do(until_stopped), **understanding(TasksExtension())) as client:
        with anyio.move_on_after(FIRST_LOOK / 2):
            await begin(client, **TASK)
        with anyio.fail_after(60):
            await stopped.wait()
    assert list(tmp_path.rglob(f"{'[0-9a-f]' * 32}.json")) == []


async def test_a_call_that_breaks_fails_alone(tmp_path):
    async def broken(_: Any) -> Answer:
        raise ZeroDivisionError

    async def fine(_: Any) -> Answer:
        return Answer(text="fine", structured={})

    async with anyio.create_task_group() as group:
        tasks = Tasks(tmp_path, group)
        failed = await tasks.begin(broken)
        assert isinstance(failed, Kept), failed
        assert await tasks.begin(fine) == Answer(text="fine", structured={})
        found = tasks.find(failed.id)
        assert found
        assert (failed.state, found.state, found.words) == ("failed", "failed", BROKE)


async def test_what_cannot_be_recorded_does_not_go_on(tmp_path):
    stopped = anyio.Event()

    async def long(_: Any) -> Answer:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    (tmp_path / "full").write_text("in the way")
    async with anyio.create_task_group() as group:
        tasks = Tasks(tmp_path / "full" / "tasks", group)
        with pytest.raises(OSError, match="Not a directory"):
            await tasks.begin(long)
        await stopped.wait()


# -- the files -------------------------------------------------------------------------------------


def test_a_task_is_carried_out_by_whoever_holds_its_file(tmp_path):
    ours, theirs = TaskFiles(tmp_path), TaskFiles(tmp_path)
    kept = Kept(id=ID, created=1.0, updated=1.0)
    ours.begin(kept)
    assert (ours.find(ID), theirs.find(ID)) == (kept, kept)
    ours.leave(ID)
    lost = theirs.find(ID)
    assert lost is not None
    assert (lost.state, lost.words) == ("failed", INTERRUPTED)


def test_only_its_user_can_read_a_task(tmp_path):
    files = TaskFiles(tmp_path / "tasks")
    files.begin(Kept(id=ID, created=1.0, updated=1.0))
    files.end(Kept(id=ID, created=1.0, updated=2.0, state="completed", answer=Answer(text="x", structured={})))
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
        files.begin(Kept(id=letter * 32, created=1.0, updated=1.0))
    files.end(Kept(id="a" * 32, created=1.0, updated=1.0, state="cancelled"))
    files.end(Kept(id="b" * 32, created=1.0, updated=1.0, state="cancelled"))
    for letter in "ac":
        _age(tmp_path / f"{letter * 32}.json")
    TaskFiles(tmp_path).forget_old()
    assert [path.name[0] for path in sorted(tmp_path.iterdir())] == ["b", "c"]


def _age(file: Path) -> None:
    then = file.stat().st_mtime - KEPT - 60
    os.utime(file, (then, then))
