"""Queries of the API: lists, run details, trees, events, transcripts."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.servers.http.conftest import PATIENCE
from tests.support.retinue_factory import VIRTUAL_TIME

from retinue.agents.agent import Agent
from retinue.client import Retinue
from retinue.engines.scripted import HangStep, RunCallback, TextStep, call, fail, reply, spawn
from retinue.model.events import MessageEnded, Notice, Text, Thinking, ToolReturned
from retinue.model.results import Usage
from retinue.servers.http.event_feed import EventFeed
from retinue.servers.http.inputs import GroupQuery
from retinue.servers.http.installation import InstallationInfo
from retinue.servers.http.run_list import RunListCache, RunLists, sort_by_tree
from retinue.servers.http.schemas import RunRow
from retinue.sessions.jsonl import JsonlStore
from retinue.testing.stores import record_run, run_spec

TASK = {"agent": "explorer", "task": "look"}
HOSTILE = "<script>alert(1)</script> javascript:alert(1) \x1b[31mred\x1b[0m \u202egnp.exe"


async def stored(folder: Path, *runs: tuple[str, str, float], agent: str = "explorer") -> list[str]:
    """Sessions in the store, written by nobody who runs: root, task and time of each."""
    sessions = []
    async with JsonlStore(folder) as store:
        for root, task, time in runs:
            session = store.claim()
            await record_run(store, run_spec(session, agent=agent, task=task, root=root), time=time)
            sessions.append(session)
    return sessions


async def test_declared_and_actual_model_have_one_spelling(serve):
    steps = [Text("ok"), MessageEnded(stop_reason="stop", model="local/scripted-1", usage=Usage(turns=1))]
    agent = Agent(name="looker", provider="local", model="scripted-1")
    async with serve(*steps, agents=[agent]) as client:
        begun = (await client.post("runs", {"agent": "looker", "task": "look"})).json["run"]
        run = (await client.get(f"runs/{begun['run']}")).json
    assert (run["declared"]["provider"], run["declared"]["model"]) == ("local", "local/scripted-1")
    assert (run["actual"]["declaredModel"], run["actual"]["model"]) == ("local/scripted-1", "local/scripted-1")


async def test_run_detail_has_every_field(serve, place):
    script = [
        Thinking("hm"),
        call("read", path="a.py", returns="x"),
        call("read", path="a.py", returns="gone", is_error=True),
        call("grep", pattern="x", path="src"),
        Notice("provider", "It was slow."),
        TextStep(text="It is a.py\nand more", usage=Usage(input=10, output=5, cost=0.25)),
    ]
    async with serve(*script) as client:
        begun = (await client.post("runs", {**TASK, "name": "Ada"})).json["run"]
        run = (await client.get(f"runs/{begun['run']}")).json
        row = (await client.get("runs")).json["runs"][0]
        result = (await client.get(f"runs/{begun['run'][:8]}/result")).json
    assert {name: run[name] for name in row} == row == begun
    assert (run["name"], run["agent"], run["state"], run["preview"]) == ("Ada", "explorer", "completed", "It is a.py")
    assert run["taskText"] == "look"
    assert run["answer"] == {"text": "It is a.py\nand more", "kind": "final"}
    assert result == {"text": "It is a.py\nand more", "kind": "final", "failure": None}
    assert run["usage"] == {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "cost": 0.25, "turns": 4}
    assert run["filesTouched"] == [
        {"path": "a.py", "how": "read", "count": 2},
        {"path": "src", "how": "search", "count": 1},
    ]
    assert [(tool["name"], tool["count"], tool["errors"]) for tool in run["toolsUsed"]] == [
        ("read", 2, 1),
        ("grep", 1, 0),
    ]
    assert [(each["number"], each["reason"], each["failure"]) for each in run["attempts"]] == [(1, "first", None)]
    assert [notice["message"] for notice in run["notices"]] == ["It was slow."]
    assert run["spent"]["tokens"] == 15
    assert run["spent"]["cost"] == 0.25
    assert run["declared"]["tools"] == ["read", "grep", "find", "ls", "lsp"]
    assert run["actual"]["toolsUsed"] == {"read": 2, "grep": 1}
    assert run["cwd"] == str(place)
    assert run["can"] == {"cancel": False, "steer": False, "extend": False, "resume": True}
    assert run["runs"] == [{name: run[name] for name in ("run", "state", "started", "ended", "elapsed", "task")}]


@VIRTUAL_TIME
async def test_time_breakdown_counts_overlapping_tools_once():
    """Computed from the times of the events alone."""
    from retinue.model.event_codec import EventRecord, EventSource
    from retinue.model.events import (
        AttemptStarted,
        Event,
        MessageEnded,
        RunEnded,
        RunQueued,
        RunStarted,
        ToolCalled,
        ToolReturned,
    )
    from retinue.servers.http.details import ActivityClock

    origin = EventSource(run="r", session="r", root="r", parent_tool_use_id="c")
    story: list[tuple[int, Event]] = [
        (0, RunQueued(name="a", agent="a", task="t", cwd="/", surface="single")),
        (5, RunStarted()),
        (6, AttemptStarted(1, "first")),
        (16, ToolCalled("1", "read", {})),
        (16, ToolCalled("2", "read", {})),
        (16, MessageEnded(stop_reason="tool_use")),
        (20, ToolReturned("2", "read")),
        (23, ToolReturned("1", "read")),
        (30, MessageEnded(stop_reason="stop")),
        (31, RunEnded()),
    ]
    clock = ActivityClock()
    for number, (time, event) in enumerate(story):
        clock.add_event(EventRecord(origin, number, float(time), event))
    assert (clock.queued, clock.other, clock.model, clock.tools) == (5.0, 1.0, 18.0, 7.0)


async def test_failed_run_reports_its_failure(serve):
    async with serve(fail("401 invalid key")) as client:
        begun = (await client.post("runs", TASK)).json["run"]
        async with client.watch():
            await client.hub.wait_final_row(begun["run"])
        run = (await client.get(f"runs/{begun['run']}")).json
    assert (run["state"], run["failure"]["code"], run["doing"]) == ("error", "provider", "")
    assert run["preview"] == run["failure"]["message"].split("\n")[0]
    assert run["attempts"][-1]["failure"]["code"] == "provider"


async def test_live_run_reports_its_current_activity(serve):
    go = anyio.Event()
    async with serve(
        reply("I look around"), call("grep", pattern="x", path="src"), RunCallback(go.wait), reply("done")
    ) as client:
        begun = (await client.post("runs", TASK)).json["run"]
        rows = [
            begun,
            (await client.get("runs?live=1")).json["runs"][0],
            (await client.get("activity")).json["groups"][0]["runs"][0],
            (await client.get(f"runs/{begun['run']}")).json,
        ]
        health = (await client.get("health")).json
        go.set()
        await client.hub.wait_final_row(begun["run"])
        assert (await client.get("runs?live=1")).json["runs"] == []
    for row in rows:
        assert (row["state"], row["doing"], row["tools"], row["ended"]) == ("running", "thinking", 1, None)
        assert row["owner"]["here"]
        assert row["can"] == {"cancel": True, "steer": True, "extend": True, "resume": False}
    assert health["live"] == 1


async def test_tree_lists_parents_before_children(serve, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text("---\nname: lead\ndescription: d\ntools: [read, spawn_subagent]\n---\nLead.")

    def script(spec):
        if spec.agent.name == "lead":
            return [spawn("explorer", "find it"), reply("led")]
        return [reply("found")]

    async with serve(script, settings={"project_agents": "allow"}) as client:
        begun = (await client.post("runs", {"agent": "lead", "task": "lead", "maxDepth": 3})).json["run"]
        await client.hub.wait_final_row(begun["run"])
        tree = (await client.get(f"runs/{begun['run']}/tree")).json
        top, below = tree["runs"]
        detail = (await client.get(f"runs/{below['run']}")).json
        lead = (await client.get(f"runs/{top['run']}")).json
        groups = (await client.get("activity")).json["groups"]
    assert (top["run"], top["parentRun"], below["parentRun"], below["depth"]) == (begun["run"], None, top["run"], 2)
    assert below["parentToolUseId"] not in {None, top["parentToolUseId"]}
    assert [(each["run"], each["agent"]) for each in detail["ancestors"]] == [(top["run"], "lead")]
    assert [child["run"] for child in lead["children"]] == [below["run"]]
    assert groups[0]["runs"] == tree["runs"]
    assert groups[0]["live"] == 0


async def test_resumed_session_keeps_its_place_and_children_in_the_tree(serve, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text("---\nname: lead\ndescription: d\ntools: [read, spawn_subagent]\n---\nLead.")

    def script(spec):
        if spec.task == "again":
            return [HangStep()]
        return (
            [spawn("lead" if spec.task == "top" else "explorer", "below"), reply("led")]
            if "lead" in spec.agent.name and spec.lineage.depth < 3
            else [reply("found")]
        )

    async with serve(script, settings={"project_agents": "allow"}) as client:
        begun = (await client.post("runs", {"agent": "lead", "task": "top", "maxDepth": 3})).json["run"]
        await client.hub.wait_final_row(begun["run"])
        before = (await client.get(f"runs/{begun['run']}/tree")).json["runs"]
        middle = before[1]
        again = (await client.post(f"runs/{middle['run']}/resume", {"task": "again"})).json["run"]
        live = (await client.get("activity")).json["groups"][0]["runs"]
        detail = (await client.get(f"runs/{again['run']}")).json
        await client.post(f"runs/{again['run']}/cancel")
        after = (await client.get("activity")).json["groups"][0]["runs"]
    assert [(row["agent"], row["depth"]) for row in before] == [("lead", 1), ("lead", 2), ("explorer", 3)]
    standing = [(before[0]["run"], None), (again["run"], before[0]["run"]), (before[2]["run"], middle["run"])]
    assert [(row["run"], row["parentRun"]) for row in live] == standing
    assert [(row["run"], row["parentRun"]) for row in after] == standing
    assert (again["parentToolUseId"], again["depth"]) == (middle["parentToolUseId"], 2)
    assert [above["run"] for above in detail["ancestors"]] == [before[0]["run"]]


async def test_children_of_every_run_of_a_session_are_listed_below_it(serve, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text("---\nname: lead\ndescription: d\ntools: [read, spawn_subagent]\n---\nLead.")

    def script(spec):
        return (
            [spawn("explorer", f"below {spec.task}"), reply("led")] if spec.agent.name == "lead" else [reply("found")]
        )

    async with serve(script, settings={"project_agents": "allow", "max_depth": 3}) as client:
        begun = (await client.post("runs", {"agent": "lead", "task": "one"})).json["run"]
        session, runs = begun["session"], [begun["run"]]
        await client.hub.wait_final_row(runs[0])
        for task in ("two", "three"):
            runs.append((await client.post(f"runs/{session}/resume", {"task": task})).json["run"]["run"])
            await client.hub.wait_final_row(runs[-1])
        tree = (await client.get(f"runs/{session}/tree")).json["runs"]
        groups = (await client.get("activity")).json["groups"]
        of_two = tree[2]["run"]
        found = (await client.get("activity?q=below+two")).json["groups"][0]["runs"]
        detail = (await client.get(f"runs/{of_two}")).json
        told = client.hub.find_row(of_two)
    async with serve(script) as client:
        later = (await client.get(f"runs/{session}/tree")).json["runs"]
    below = [(f"below {task}", run, session) for task, run in zip(("one", "two", "three"), runs, strict=True)]
    assert [(row["task"], row["parentRun"], row["parentSession"]) for row in tree] == [("three", None, None), *below]
    assert groups[0]["runs"] == later == tree
    assert [row["task"] for row in found] == ["three", "below two"]
    assert [above["run"] for above in detail["ancestors"]] == [runs[1]]
    assert (told.parent_run, told.parent_session, detail["parentSession"]) == (runs[1], session, session)


async def test_events_of_a_run_come_in_pages(serve):
    async with serve(*[reply(str(number)) for number in range(5)]) as client:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        await client.hub.wait_final_row(run)
        whole = (await client.get(f"runs/{run}/events")).json
        found, after = [], 0
        while after is not None:
            page = (await client.get(f"runs/{run}/events?limit=3&after={after}")).json
            found += page["events"]
            after = page["next"]
        again = (await client.get(f"runs/{run}/events?limit=3&after={found[2]['seq']}")).json
    assert again["events"] == found[3:6]
    assert found == whole["events"]
    assert [event["seq"] for event in found] == sorted({event["seq"] for event in found})
    assert (found[0]["type"], found[-1]["type"], whole["next"]) == ("run_queued", "run_ended", None)


async def test_pages_of_long_events_are_bounded_and_complete(serve):
    texts = [str(number) * 2**20 for number in range(10)]
    async with serve(*(call("read", path=text[0], returns=text) for text in texts), reply("done")) as client:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        await client.hub.wait_final_row(run)
        found, sizes, after = [], [], 0
        while after is not None:
            answer = await client.get(f"runs/{run}/events?after={after}")
            found += answer.json["events"]
            sizes.append(len(answer.body))
            after = answer.json["next"]
    assert max(sizes) < 6 * 2**20
    assert [event["text"] for event in found if event["type"] == "tool_returned"] == texts
    assert (found[0]["type"], found[-1]["type"]) == ("run_queued", "run_ended")


@pytest.mark.parametrize(
    ("form", "kind"), [("md", "text/markdown"), ("txt", "text/plain"), ("jsonl", "application/jsonl")]
)
async def test_transcript_is_a_download_in_each_format(serve, form, kind):
    script = [Thinking("hm"), call("bash", command="ls ```x```", returns="a\n````\nb"), reply("done")]
    async with serve(*script) as client:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        await client.hub.wait_final_row(run)
        answer = await client.get(f"runs/{run}/transcript?format={form}")
        events = (await client.get(f"runs/{run}/events")).json["events"]
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="explorer-{run[:8]}.{form}"'
    text = answer.body.decode()
    if form == "jsonl":
        assert [json.loads(line) for line in text.splitlines()] == events
    else:
        assert "look" in text
        assert "done" in text
    if form == "md":
        assert "`````\na\n````\nb\n`````" in text


async def test_hostile_text_is_sent_without_raw_escape_sequences(serve):
    async with serve(call("read", path=HOSTILE, returns=HOSTILE), reply(HOSTILE)) as client, client.watch() as stream:
        run = (await client.post("runs", {"agent": "explorer", "task": HOSTILE, "name": HOSTILE[:100]})).json["run"][
            "run"
        ]
        await client.hub.wait_final_row(run)
        answers = [
            await client.get("runs"),
            await client.get("activity"),
            await client.get(f"runs/{run}"),
            await client.get(f"runs/{run}/events"),
            await client.get(f"runs/{run}/result"),
            await client.get(f"runs/{run}/transcript?format=jsonl"),
            await client.get(f"runs/{run}/transcript"),
        ]
        await stream.until(lambda m: m.data["event"]["type"] == "run_ended")
    assert all("html" not in answer.headers["content-type"] for answer in answers)
    assert answers[2].json["taskText"] == HOSTILE
    assert b"\x1b" not in b"".join(answer.body for answer in answers)
    assert b"\x1b" not in stream.raw


async def test_lists_are_filtered_and_paged(serve, tmp_path):
    first = await stored(tmp_path / "state", *[(f"root-{n % 3}", f"task {n}", 1000.0 * n) for n in range(1, 8)])
    await stored(tmp_path / "state", ("root-0", "Other " + "x" * 500 + " needle", 500.0), agent="tester")
    async with serve(reply("done")) as client:

        async def tasks(query: str) -> list[str]:
            return [row["task"] for row in (await client.get(f"runs?{query}")).json["runs"]]

        assert await tasks("limit=3") == ["task 7", "task 6", "task 5"]
        assert await tasks("agent=tester") == ["Other " + "x" * 234]
        assert await tasks("q=TASK+3") == ["task 3"]
        assert await tasks("root=root-1") == ["task 7", "task 4", "task 1"]
        assert await tasks("state=error") == []
        assert await tasks("engine=pi") == []
        assert len(await tasks("engine=scripted&state=completed")) == 8
        pages, before = [], ""
        while before is not None:
            page = (await client.get(f"runs?limit=3&before={before}")).json
            pages += [row["run"] for row in page["runs"]]
            before = page["next"]
        assert pages[:7] == first[::-1]
        assert len(pages) == 8
        found = (await client.get("activity?q=needle")).json["groups"]
        assert [(group["root"], len(group["runs"])) for group in found] == [("root-0", 1)]
        groups, before = [], ""
        while before is not None:
            page = (await client.get(f"activity?limit=2&before={before}")).json
            groups += page["groups"]
            before = page["next"]
        assert [group["root"] for group in groups] == ["root-1", "root-0", "root-2"]
        assert [len(group["runs"]) for group in groups] == [3, 3, 2]
        sessions = (await client.get("sessions?limit=2")).json
        assert [each["session"] for each in sessions["sessions"]] == first[::-1][:2]


async def test_live_conversations_are_listed_first_and_once(serve, tmp_path):
    await stored(tmp_path / "state", *[(f"root-{n}", "old", 9e9 + n) for n in range(3)])
    go = anyio.Event()
    async with serve(RunCallback(go.wait), reply("done")) as client:
        begun = (await client.post("runs", TASK)).json["run"]
        page = (await client.get("activity?limit=2")).json
        roots = [group["root"] for group in page["groups"]]
        rest = (await client.get(f"activity?limit=2&before={page['next']}")).json
        live = (await client.get("activity?live=1")).json["groups"]
        go.set()
    assert roots[0] == begun["root"]
    assert sorted(roots[1:] + [group["root"] for group in rest["groups"]]) == ["root-0", "root-1", "root-2"]
    assert [group["root"] for group in live] == [begun["root"]]


async def test_long_conversation_reports_the_number_of_unlisted_runs(serve, tmp_path):
    await stored(tmp_path / "state", *[("root", f"task {n}", float(n)) for n in range(205)])
    async with serve(reply("done")) as client:
        (group,) = (await client.get("activity")).json["groups"]
        run = group["runs"][0]["run"]
        tree = (await client.get(f"runs/{run}/tree")).json
    assert (len(group["runs"]), group["more"]) == (200, 5)
    assert (len(tree["runs"]), tree["more"]) == (205, 0)


async def test_session_lists_all_runs_and_each_can_be_loaded(serve):
    async with serve(reply("answer to {task}")) as client:
        first = (await client.post("runs", {"agent": "explorer", "task": "one"})).json["run"]
        await client.hub.wait_final_row(first["run"])
        for task in ("two", "three"):
            later = (await client.post(f"runs/{first['session']}/resume", {"task": task})).json["run"]
            await client.hub.wait_final_row(later["run"])
        middle = (await client.get(f"sessions/{first['session'][:8]}")).json["runs"][1]["run"]
        details = [
            (await client.get(f"runs/{name}")).json for name in (first["run"], middle, middle[:8], later["run"])
        ]
        by_session = (await client.get(f"runs/{first['session'][:8]}")).json
        session = (await client.get(f"sessions/{first['session'][:8]}")).json
        listed = (await client.get("runs")).json["runs"]
        events = (await client.get(f"runs/{middle}/events")).json["events"]
    assert [each["taskText"] for each in details] == ["one", "two", "two", "three"]
    assert [each["answer"]["text"] for each in details] == [f"answer to {n}" for n in ("one", "two", "two", "three")]
    assert {tuple(run["task"] for run in each["runs"]) for each in details} == {("one", "two", "three")}
    assert by_session["run"] == session["latest"]["run"] == later["run"]
    assert [row["run"] for row in listed] == [later["run"]]
    assert listed[0]["sessionRuns"] == 3
    assert {event["run"] for event in events} == {middle}
    assert listed[0]["root"] == first["root"]


async def test_run_that_ended_unnoticed_is_listed_as_ended(serve, tmp_path):
    """The index is refreshed when the store has changed, and only then."""
    async with serve(reply("done")) as client:
        assert (await client.get("runs")).json["runs"] == []
        async with client.watch("?rows=1") as stream:
            (session,) = await stored(tmp_path / "state", ("root", "quick", 1000.0))
            messages = await stream.until(lambda message: message.data["state"] == "completed")
        listed = (await client.get("runs")).json["runs"]
    assert {message.data["run"] for message in messages} == {session}
    assert [row["run"] for row in listed] == [session]
    assert {**listed[0], "owner": None} == {**messages[-1].data, "owner": None}


async def test_queries_change_no_file(serve, tmp_path):
    state = tmp_path / "state"
    (session,) = await stored(state, ("root", "task", 1000.0))

    def seen() -> dict[str, tuple[int, int]]:
        files = [path for path in state.rglob("*") if path.is_file() and not path.name.startswith("index.sqlite")]
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    async with serve(reply("done")) as client:
        before = seen()
        for path in ("activity", "runs", "sessions", "agents", "engines", "settings", "health", "plans"):
            assert (await client.get(path)).status == 200
        for path in ("", "/tree", "/events", "/result", "/transcript"):
            assert (await client.get(f"runs/{session}{path}")).status == 200
        assert seen() == before


def test_engines_are_described_with_the_model_that_is_used(scratch_home):
    environ = {"HOME": str(scratch_home), "OPENAI_API_KEY": "sk-1", "RETINUE_MODEL": "openai/gpt-5"}
    found = InstallationInfo(Retinue(cwd=scratch_home, environ=environ)).list_engines()
    about = {row.name: row.about for row in found.engines}
    assert about["api"] == "openai/gpt-5 by OPENAI_API_KEY, in this process"
    assert about["offline"].startswith("rules, not a language model")


def test_runs_with_circular_parents_are_listed():
    class Row:
        def __init__(self, run: str, parent: str | None, created: float) -> None:
            self.run, self.session, self.parent_session, self.created = run, run, parent, created

    rows = [
        Row("a", "b", 1),
        Row("b", "a", 2),
        Row("c", None, 3),
        Row("d", "c", 4),
        Row("e", "gone", 0),
        Row("f", "f", 5),
    ]
    assert [row.run for row in sort_by_tree(rows)] == ["e", "c", "d", "f", "a", "b"]  # type: ignore[arg-type]


async def test_partial_activity_reports_its_progress_until_it_is_complete(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.servers.http.run_list.INDEX_STEPS", (0.0, 0.0))  # one record a step
    await stored(tmp_path / "state", *((f"r{number}", "task", 1000.0 * number) for number in range(4)))
    for path in (tmp_path / "state").glob("*.sqlite*"):
        path.unlink()
    async with serve(reply("done")) as client:
        pages = [(await client.get("activity?partial=1")).json for _ in range(5)]
        whole = (await client.get("activity")).json
    assert [page["indexing"] for page in pages][:3] == [{"done": done, "total": 4} for done in (1, 2, 3)]
    assert [len(page["groups"]) for page in pages] == [1, 2, 3, 4, 4]
    assert pages[-1]["indexing"] is None
    assert pages[-1]["groups"] == whole["groups"]


async def test_search_finds_tool_calls_and_reports_where(serve, tmp_path):
    async with JsonlStore(tmp_path / "state") as store:
        session = store.claim()
        found = ToolReturned("c", "grep", "src/mod8.py:3: \x1b[31mclass Bus\x1b[0m")
        await record_run(store, run_spec(session, task="look", root="r"), found, time=1000.0)
    await stored(tmp_path / "state", ("other", "another task", 2000.0))
    async with serve(reply("done")) as client:
        listed = (await client.get("runs?q=MOD8.py")).json["runs"]
        (group,) = (await client.get("activity?q=mod8.py&partial=1")).json["groups"]
        (row,) = (await client.get("sessions?q=mod8.py")).json["sessions"]
        assert (await client.get("facets?q=mod8.py")).json["matching"] == 1
        missing = (await client.get("runs?q=%22OR%22")).json
        assert (missing["runs"], missing["scansRecords"]) == ([], False)
        every = (await client.get("runs")).json["runs"]
    match = {"field": "tool_output", "snippet": "src/mod8.py:3: class Bus"}
    assert [each["match"] for each in (*listed, *group["runs"], row)] == [match] * 3
    assert [each["match"] for each in every] == [None, None]


async def test_search_without_a_full_text_index_is_reported(serve, tmp_path):
    await stored(tmp_path / "state", ("r", "look for the harness", 1000.0))
    (tmp_path / "state" / "index.sqlite").mkdir()
    paths = ("activity", "activity?partial=1", "runs", "sessions")
    async with serve(reply("done")) as client:
        searched = [(await client.get(f"{path}{'&' if '?' in path else '?'}q=harness")).json for path in paths]
        listed = [(await client.get(path)).json for path in paths]
        short = (await client.get("runs?q=ha")).json
    assert [page["scansRecords"] for page in (*searched, *listed, short)] == [True] * 4 + [False] * 5
    assert len(searched[2]["runs"]) == len(searched[3]["sessions"]) == 1


async def test_partial_search_reports_its_progress_until_it_is_complete(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("retinue.servers.http.run_list.INDEX_STEPS", (0.0, 0.0))  # one record a step
    await stored(tmp_path / "state", *((f"r{number}", "task", 1000.0 * number) for number in range(4)))
    async with serve(reply("done")) as client:
        pages = [(await client.get("activity?q=main.py&partial=1")).json for _ in range(9)]
    assert [page["indexing"]["done"] for page in pages if page["indexing"]] == sorted(
        page["indexing"]["done"] for page in pages if page["indexing"]
    )
    assert pages[0]["indexing"]["done"] < 4
    assert (pages[-1]["indexing"], len(pages[-1]["groups"])) == (None, 4)


class SlowRunListCache(RunListCache):
    """A cache whose reads return only after the live runs have ended."""

    def __init__(self, retinue: Retinue, feed: EventFeed, resume: anyio.Event) -> None:
        super().__init__(retinue, feed)
        self._resume = resume

    async def list_under_root(self, root: str, most: int, *, as_indexed: bool = False) -> tuple[list[RunRow], int]:
        found = await super().list_under_root(root, most, as_indexed=as_indexed)
        self._resume.set()
        with anyio.fail_after(PATIENCE):
            while self.live_roots():
                await anyio.lowlevel.checkpoint()
        return found


async def test_conversation_that_ends_during_a_listing_is_listed_once(serve):
    resume = anyio.Event()
    async with serve(RunCallback(resume.wait), reply("done")) as client:
        started = (await client.post("runs", TASK)).json["run"]
        runs = SlowRunListCache(client.retinue, client.hub, resume)
        found = await RunLists(runs, client.hub).list_activity(GroupQuery())
    assert [group.root for group in found.groups] == [started["root"]]
