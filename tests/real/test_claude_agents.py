"""Claude Code's own `Agent` on the real one: every call of it is an ordinary run of ours below the run that made it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.real.claude_install import claude_environ, need_claude
from tests.support.delegation_reports import SPAWN, actual, answers, ends
from tests.support.model_server import script64
from tests.support.nested_contract import ROOT, check_delegation

from retinue import Agent, Retinue
from retinue.model.errors import ErrorCode
from retinue.model.event_codec import EventRecord
from retinue.model.events import RunEnded, RunQueued, RunStarted, ToolCalled, ToolReturned
from retinue.model.tasks import Plan, Task

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

LEAD = Agent(name="lead", body="You lead.", tools=("read", "Task"))
WORKER = Agent(
    name="worker",
    description="Works on anything.",
    body="You work.",
    persona="You are witty.",
    memory="Tea at five.",
    tools=("read",),
)
WORDLESS = Agent(name="wordless", tools=("read",))
THINKERS = [
    Agent(name="thinker", description="Only thinks.", tools=()),
    Agent(name="ponderer", description="Ponders.", no_tools=True),
]
STRANGE = "---\nname: strange\ndescription: Writes.\ntools: Bash\n---\nYou write.\n"
DONE = {"text": "Done."}


@pytest.fixture(autouse=True, scope="module")
def claude():
    need_claude()


@pytest.fixture
def opened(server, project, tmp_path):
    (tmp_path / "vault").mkdir()

    def made(**settings: Any) -> Retinue:
        return Retinue(
            cwd=project,
            engine="claude",
            agents=[LEAD, WORKER, WORDLESS, *THINKERS],
            environ=claude_environ(tmp_path / "home", server.url),
            state=tmp_path / "state",
            root=ROOT,
            settings={"model": "scripted-1", "vault": str(tmp_path / "vault"), **settings},
        )

    return made


def native(agent: str | None, task: Any, **more: Any) -> dict[str, Any]:
    """A call as Claude's models make it."""
    whom = {"subagent_type": agent} if agent else {}
    prompt = task if isinstance(task, str) else script64(task)
    return {"tool": "Agent", "args": {"description": "A task", "prompt": prompt, **whom, **more}}


async def led(retinue: Retinue, *steps: Any) -> tuple[Any, list[EventRecord]]:
    plan = Plan(tasks=(Task(agent="lead", prompt=script64([*steps])),))
    async with retinue.events() as watcher:
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
        return result, list(watcher.drain())


async def test_a_call_of_its_own_agent_is_a_run_below_it_with_the_id_of_that_call(opened, server, project, tmp_path):
    reads = {"text": "I look.", "tool": "Read", "args": {"file_path": str(project / "a.txt")}}
    task = script64(
        [{"text": "I ask.", **native("worker", [reads, {"text": "It is XYZZY."}])}, {"text": "So it is."}]
    )
    async with opened() as retinue:
        events = await check_delegation(retinue, tmp_path / "vault", "lead", task, engines=["claude"] * 2)
    (call,) = [one.event for one in events if isinstance(one.event, ToolCalled) and one.event.name == SPAWN]
    assert call.args.keys() == {"agent", "task"}
    (answer,) = [one.event for one in events if isinstance(one.event, ToolReturned) and one.event.name == SPAWN]
    assert (answer.text, answer.is_error) == ("It is XYZZY.", False)
    lead, worker = server.requests[0], server.requests[1]
    assert "You lead." in lead.system
    assert "You work." in worker.system
    assert "I ask." not in str(worker.body), "its context is its own"


async def test_the_agents_a_run_may_use_are_announced_without_persona_and_memory(opened, server):
    async with opened() as retinue:
        await led(retinue, DONE)
        await retinue.run("worker", script64([DONE]))
    lead, worker = (str(request.body) for request in server.requests)
    listed = lead.partition("Available agent types for the Agent tool:")[2]
    assert "\\n- worker: Works on anything. (Tools: Read)\\n" in listed
    assert "\\n- explorer: Finds where something is" in listed
    assert "\\n- wordless: wordless (Tools: " in listed
    assert "\\n- thinker: Only thinks. (Tools: none)\\n" in listed
    assert "\\n- ponderer: Ponders. (Tools: none)\\n" in listed
    assert not [word for word in ("witty", "Tea at five", "You work.", "- general-purpose: ") if word in lead]
    assert "Works on anything." not in worker, "it does not delegate"
    assert server.requests[1].tools == ("Read",)


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([native("Explore", "x")], "Unknown agent: Explore. Available agents: "),
        ([native(None, "x")], "Missing required parameter: agent"),
        ([native("strange", "x")], 'Agent "strange" '),
        (
            [native("worker", [DONE]), native("worker", "More.")],
            "The agents below this call have started 1 run and may start 1",
        ),
    ],
    ids=["unknown", "nobody", "not accepted", "too many"],
)
async def test_a_call_of_its_own_agent_is_refused_in_our_words(opened, project, steps, sentence):
    of_project = project / ".claude" / "agents"
    of_project.mkdir(parents=True)
    (of_project / "strange.md").write_text(STRANGE)
    async with opened(max_spawns=1) as retinue:
        result, events = await led(retinue, *steps, DONE)
    assert result.text == "Done."
    last = [one.event for one in events if isinstance(one.event, ToolReturned)][-1]
    assert last.is_error
    assert last.text.startswith(sentence)
    assert sum(isinstance(one.event, RunQueued) for one in events) <= 2


async def test_its_own_agent_is_not_there_where_depth_ends(opened, server):
    forced = {"tools": [{**native("worker", "x"), "force": True}]}
    async with opened(max_depth=1) as retinue:
        result, events = await led(retinue, forced, DONE)
    assert (result.text, ends(events)) == ("Done.", [(1, None)])
    assert server.requests[0].tools == ("Read",)
    assert "No such tool available" in server.requests[1].messages[-1].text


async def test_the_task_of_an_ancestor_is_not_handed_on_by_its_own_agent(opened, server):
    server.script = lambda request: DONE if len(request.messages) > 2 else native("lead", "Lead on.")
    async with opened() as retinue, retinue.events(deltas=False) as watcher:
        await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead on."),)), retinue.call("nested"))
        (answer,) = answers(watcher.drain())
    assert answer.startswith("lead was already given this task, or nearly the same one, further up.")


async def test_several_of_its_own_agents_work_side_by_side_and_each_has_its_call(opened):
    calls = [native("worker", [{"text": word}]) for word in ("one", "two", "three")]
    async with opened() as retinue:
        result, events = await led(retinue, {"tools": calls}, DONE)
    assert (result.failure, result.actual.nested_usage.turns) == (None, 3)
    below = [type(one.event) for one in events if one.origin.depth > 1]
    assert [kind for kind in below if kind in {RunQueued, RunEnded}] == [RunQueued] * 3 + [RunEnded] * 3
    told = {one.event.call: one.event.text for one in events if isinstance(one.event, ToolReturned)}
    runs = [one for one in events if isinstance(one.event, RunEnded) and one.origin.depth > 1]
    answered = {one.origin.parent_tool_use_id: one.event.text for one in runs if isinstance(one.event, RunEnded)}
    assert told == answered
    assert sorted(told.values()) == ["one", "three", "two"]


async def test_what_its_own_agent_cannot_do_here_is_said(opened):
    wants = native("worker", [DONE], model="haiku", isolation="worktree", run_in_background=True)
    async with opened() as retinue:
        _, events = await led(retinue, wants, DONE)
    (notice,) = actual(events)[2].notices
    assert notice.startswith("Ignored parameters: model, isolation")


async def test_chains_and_parallel_tasks_are_there_by_our_tool_in_the_same_process(opened):
    tasks = [{"agent": "worker", "task": script64([{"text": word}])} for word in ("one", "two")]
    ours = {"tool": f"mcp__retinue__{SPAWN}"}
    steps = [{**ours, "args": {"mode": mode, "tasks": tasks}} for mode in ("chain", "parallel")]
    asks = {"tool": "mcp__retinue__agent_info", "args": {"agent": "worker"}}
    async with opened() as retinue:
        result, events = await led(retinue, *steps, asks, DONE)
    chain, parallel = answers(events)
    assert chain == "two"
    assert parallel == "=== 1 worker: ok ===\none\n\n=== 2 worker: ok ===\ntwo"
    info = [one.event for one in events if isinstance(one.event, ToolReturned)][-1]
    assert "Works on anything." in info.text
    assert not [word for word in ("witty", "Tea at five") if word in info.text]
    assert result.actual.tools_used == {SPAWN: 2, "agent_info": 1}


async def test_a_long_answer_of_its_own_agent_reaches_the_model_whole(opened, server):
    def decide(request):
        if "You work." in request.system:
            return {"text": "word " * 10_400}
        return DONE if len(request.messages) > 2 else native("worker", "Write.")

    server.script = decide
    async with opened() as retinue:
        plan = Plan(tasks=(Task(agent="lead", prompt="Lead on."),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
    assert result.failure is None
    assert server.requests[-1].messages[-1].text.count("word ") == 10_400


async def test_what_its_own_agents_consume_counts_for_the_budget_above(opened):
    async with opened(max_tokens=8000) as retinue:
        result, events = await led(retinue, *[native("worker", [{"text": str(n)}]) for n in range(9)], DONE)
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.BUDGET, "max_tokens")
    assert result.actual.nested_usage.tokens > 0
    assert 1 < sum(isinstance(one.event, RunStarted) for one in events) < 10
