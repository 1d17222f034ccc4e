"""The native `Agent` tool of the real Claude Code: each call is an ordinary child run of Retinue."""

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
def make_retinue(server, project, tmp_path):
    (tmp_path / "vault").mkdir()

    def make(**settings: Any) -> Retinue:
        return Retinue(
            cwd=project,
            engine="claude",
            agents=[LEAD, WORKER, WORDLESS, *THINKERS],
            environ=claude_environ(tmp_path / "home", server.url),
            state=tmp_path / "state",
            root=ROOT,
            settings={"model": "scripted-1", "vault": str(tmp_path / "vault"), **settings},
        )

    return make


def native_call(agent: str | None, task: Any, **more: Any) -> dict[str, Any]:
    """Return a call of `Agent` as Claude's models make it."""
    whom = {"subagent_type": agent} if agent else {}
    prompt = task if isinstance(task, str) else script64(task)
    return {"tool": "Agent", "args": {"description": "A task", "prompt": prompt, **whom, **more}}


async def run_lead(retinue: Retinue, *steps: Any) -> tuple[Any, list[EventRecord]]:
    plan = Plan(tasks=(Task(agent="lead", prompt=script64([*steps])),))
    async with retinue.events() as watcher:
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
        return result, list(watcher.drain())


async def test_native_agent_call_is_a_child_run_with_the_id_of_the_call(make_retinue, server, project, tmp_path):
    reads = {"text": "I look.", "tool": "Read", "args": {"file_path": str(project / "a.txt")}}
    task = script64(
        [{"text": "I ask.", **native_call("worker", [reads, {"text": "It is XYZZY."}])}, {"text": "So it is."}]
    )
    async with make_retinue() as retinue:
        events = await check_delegation(retinue, tmp_path / "vault", "lead", task, engines=["claude"] * 2)
    (call,) = [one.event for one in events if isinstance(one.event, ToolCalled) and one.event.name == SPAWN]
    assert call.args.keys() == {"agent", "task"}
    (answer,) = [one.event for one in events if isinstance(one.event, ToolReturned) and one.event.name == SPAWN]
    assert (answer.text, answer.is_error) == ("It is XYZZY.", False)
    lead, worker = server.requests[0], server.requests[1]
    assert "You lead." in lead.system
    assert "You work." in worker.system
    assert "I ask." not in str(worker.body), "its context is its own"


async def test_available_agents_are_announced_without_persona_and_memory(make_retinue, server):
    async with make_retinue() as retinue:
        await run_lead(retinue, DONE)
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
        ([native_call("Explore", "x")], "Unknown agent: Explore. Available agents: "),
        ([native_call(None, "x")], "Missing required parameter: agent"),
        ([native_call("strange", "x")], 'Agent "strange" '),
        (
            [native_call("worker", [DONE]), native_call("worker", "More.")],
            "The child runs of this call have started 1 run and may start 1",
        ),
    ],
    ids=["unknown", "nobody", "not accepted", "too many"],
)
async def test_refused_native_agent_call_has_the_message_of_retinue(make_retinue, project, steps, sentence):
    of_project = project / ".claude" / "agents"
    of_project.mkdir(parents=True)
    (of_project / "strange.md").write_text(STRANGE)
    async with make_retinue(max_spawns=1) as retinue:
        result, events = await run_lead(retinue, *steps, DONE)
    assert result.text == "Done."
    last = [one.event for one in events if isinstance(one.event, ToolReturned)][-1]
    assert last.is_error
    assert last.text.startswith(sentence)
    assert sum(isinstance(one.event, RunQueued) for one in events) <= 2


async def test_native_agent_tool_is_absent_at_the_maximum_depth(make_retinue, server):
    forced = {"tools": [{**native_call("worker", "x"), "force": True}]}
    async with make_retinue(max_depth=1) as retinue:
        result, events = await run_lead(retinue, forced, DONE)
    assert (result.text, ends(events)) == ("Done.", [(1, None)])
    assert server.requests[0].tools == ("Read",)
    assert "No such tool available" in server.requests[1].messages[-1].text


async def test_native_agent_call_with_the_task_of_an_ancestor_is_refused(make_retinue, server):
    server.script = lambda request: DONE if len(request.messages) > 2 else native_call("lead", "Lead on.")
    async with make_retinue() as retinue, retinue.events(deltas=False) as watcher:
        await retinue.run_plan(Plan(tasks=(Task(agent="lead", prompt="Lead on."),)), retinue.call("nested"))
        (answer,) = answers(watcher.drain())
    assert answer.startswith("lead was already given this task, or nearly the same one, by a parent run.")


async def test_parallel_native_agent_calls_are_runs_with_their_own_call_ids(make_retinue):
    calls = [native_call("worker", [{"text": word}]) for word in ("one", "two", "three")]
    async with make_retinue() as retinue:
        result, events = await run_lead(retinue, {"tools": calls}, DONE)
    assert (result.failure, result.actual.nested_usage.turns) == (None, 3)
    below = [type(one.event) for one in events if one.origin.depth > 1]
    assert [kind for kind in below if kind in {RunQueued, RunEnded}] == [RunQueued] * 3 + [RunEnded] * 3
    told = {one.event.call: one.event.text for one in events if isinstance(one.event, ToolReturned)}
    runs = [one for one in events if isinstance(one.event, RunEnded) and one.origin.depth > 1]
    answered = {one.origin.parent_tool_use_id: one.event.text for one in runs if isinstance(one.event, RunEnded)}
    assert told == answered
    assert sorted(told.values()) == ["one", "three", "two"]


async def test_unsupported_native_agent_options_are_reported(make_retinue):
    wants = native_call("worker", [DONE], model="haiku", run_in_background=True)
    async with make_retinue() as retinue:
        _, events = await run_lead(retinue, wants, DONE)
    ignored, model = actual(events)[2].notices
    assert ignored.startswith("Ignored parameters: run_in_background. ")
    assert model == "Ignored model: the setting models lists no model that a call may choose"


async def test_spawn_subagent_runs_chains_and_parallel_tasks_in_the_same_process(make_retinue):
    tasks = [{"agent": "worker", "task": script64([{"text": word}])} for word in ("one", "two")]
    ours = {"tool": f"mcp__retinue__{SPAWN}"}
    steps = [{**ours, "args": {"mode": mode, "tasks": tasks}} for mode in ("chain", "parallel")]
    info_call = {"tool": "mcp__retinue__agent_info", "args": {"agent": "worker"}}
    async with make_retinue() as retinue:
        result, events = await run_lead(retinue, *steps, info_call, DONE)
    chain, parallel = answers(events)
    assert chain == "two"
    assert parallel == "=== 1 worker: ok ===\none\n\n=== 2 worker: ok ===\ntwo"
    info = [one.event for one in events if isinstance(one.event, ToolReturned)][-1]
    assert "Works on anything." in info.text
    assert not [word for word in ("witty", "Tea at five") if word in info.text]
    assert result.actual.tools_used == {SPAWN: 2, "agent_info": 1}


async def test_long_answer_of_a_native_agent_call_reaches_the_model_whole(make_retinue, server):
    def decide(request):
        if "You work." in request.system:
            return {"text": "word " * 10_400}
        return DONE if len(request.messages) > 2 else native_call("worker", "Write.")

    server.script = decide
    async with make_retinue() as retinue:
        plan = Plan(tasks=(Task(agent="lead", prompt="Lead on."),))
        (result,) = await retinue.run_plan(plan, retinue.call("nested"))
    assert result.failure is None
    assert server.requests[-1].messages[-1].text.count("word ") == 10_400


async def test_usage_of_native_agent_calls_counts_for_the_parent_budget(make_retinue):
    async with make_retinue(max_tokens=8000) as retinue:
        result, events = await run_lead(retinue, *[native_call("worker", [{"text": str(n)}]) for n in range(9)], DONE)
    assert result.failure
    assert (result.failure.code, result.failure.reason) == (ErrorCode.BUDGET, "max_tokens")
    assert result.actual.nested_usage.tokens > 0
    assert 1 < sum(isinstance(one.event, RunStarted) for one in events) < 10
