"""Counts over sessions: the choices of filters, and usage by day, agent and model."""

from __future__ import annotations

import time

from tests.servers.http.test_queries import stored

from retinue.engines.scripted import TextStep, fail
from retinue.model.results import Usage
from retinue.sessions.store import SessionFilter

DAY = 86400.0
TASK = {"agent": "explorer", "task": "look"}
PAID = TextStep(text="done", usage=Usage(input=10, output=5, cost=0.25))


def choices(found, name):
    return {each["value"]: each["count"] for each in found[name]}


async def test_facets_count_matches_and_what_each_choice_would_leave(serve, tmp_path):
    now = time.time()
    await stored(tmp_path / "state", ("a", "one", now - 100), ("b", "two", now - 5 * DAY), agent="tester")
    await stored(tmp_path / "state", ("c", "three", now - 50 * DAY), agent="explorer")
    async with serve(PAID) as client:
        begun = (await client.post("runs", TASK)).json["run"]
        await client.hub.wait_final_row(begun["run"])
        every = (await client.get("facets")).json
        narrowed = (await client.get("facets?agent=tester&since=" + str(now - DAY))).json
        searched = (await client.get("facets?q=two")).json
    assert (every["total"], every["matching"]) == (4, 4)
    assert choices(every, "agents") == {"tester": 2, "explorer": 2}
    assert choices(every, "outcomes") == {"completed": 4}
    assert choices(every, "ages") == {"1": 2, "7": 3, "30": 3}
    assert choices(every, "costs") == {"0.01": 1, "0.1": 1}
    assert (narrowed["total"], narrowed["matching"]) == (4, 1)
    assert choices(narrowed, "agents") == {"tester": 1, "explorer": 1}
    assert choices(narrowed, "ages") == {"1": 1, "7": 2, "30": 2}
    assert (searched["total"], choices(searched, "agents")) == (1, {"tester": 1})


async def test_runs_are_filtered_by_outcome_cost_folder_and_date(serve, place):
    def script(spec):
        return [fail("401 invalid key")] if spec.agent.name == "tester" else [PAID]

    async with serve(script) as client:
        for agent in ("explorer", "tester"):
            begun = (await client.post("runs", {**TASK, "agent": agent})).json["run"]
            await client.hub.wait_final_row(begun["run"])

        async def agents(query):
            groups = (await client.get(f"activity?{query}")).json["groups"]
            listed = (await client.get(f"runs?{query}")).json["runs"]
            found = [row["agent"] for group in groups for row in group["runs"]]
            assert sorted(found) == sorted(row["agent"] for row in listed)
            return sorted(found)

        assert await agents("outcome=failed") == ["tester"]
        assert await agents("outcome=completed") == ["explorer"]
        assert await agents("outcome=running") == []
        assert await agents("minCost=0.2") == ["explorer"]
        assert await agents("minElapsed=1000") == []
        assert await agents(f"cwd={place}") == ["explorer", "tester"]
        assert await agents("cwd=/nowhere") == []
        assert await agents(f"since={time.time() - 60}") == ["explorer", "tester"]
        assert await agents(f"until={time.time() - 60}") == []
        assert (await client.get("runs?outcome=odd")).status == 400


async def test_statistics_sum_usage_by_local_day_agent_and_model(serve, tmp_path):
    now = time.time()
    await stored(tmp_path / "state", ("a", "one", now - 3 * DAY), ("b", "two", now - 40 * DAY), agent="tester")
    async with serve(PAID) as client:
        begun = (await client.post("runs", TASK)).json["run"]
        await client.hub.wait_final_row(begun["run"])
        week = (await client.get("statistics?days=7&utcOffset=0")).json
        today = (await client.get("statistics?days=1")).json
        stored_rows = await client.retinue.sessions(SessionFilter())
    assert len(week["days"]) == 7
    assert sum(day["runs"] for day in week["days"]) == 2
    last = week["days"][-1]
    assert (last["runs"], last["failed"], last["cost"], last["tokens"]) == (1, 0, 0.25, 15)
    assert [row["name"] for row in week["agents"]] == ["explorer", "tester"]
    assert [row["runs"] for row in today["agents"]] == [1]
    assert len(stored_rows) == 3
