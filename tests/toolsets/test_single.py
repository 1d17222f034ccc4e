"""Successful calls of the `single` tool: schema, result and usage."""

from __future__ import annotations

import anyio

from retinue.engines.scripted import HangStep, ScriptedEngine, WaitStep, call, fail, reply
from retinue.model.events import MessageEnded, ProcessEnded, Text, Thinking
from retinue.model.results import ProcessEnd, Usage
from retinue.sessions.memory import MemoryStore

ANSWER = "## Findings\n- src/server/auth.ts contains the middleware."
ZERO = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "cost": 0, "turns": 0}


async def test_single_tool_is_named_subagent(open_host):
    async with open_host() as host:
        (tool,) = host.tools()
    assert tool.name == "subagent"
    lines = tool.description.splitlines()
    agents = [line.partition(":")[0] for line in lines[lines.index("Agents:") + 1 :]]
    assert agents == ["- explorer", "- researcher", "- reviewer", "- implementer", "- tester"]


async def test_single_schema_is_the_documented_one(open_host):
    async with open_host() as host:
        (tool,) = host.tools()
    properties = tool.input_schema["properties"]
    rules = {name: {"type": rule["type"], "minLength": rule["minLength"]} for name, rule in properties.items()}
    assert rules == {"agent": {"type": "string", "minLength": 1}, "task": {"type": "string", "minLength": 1}}
    assert tool.input_schema["required"] == ["agent", "task"]
    assert tool.input_schema["additionalProperties"] is False


async def test_agent_gets_the_task_and_its_last_text_is_the_answer(open_host):
    async with open_host(reply("{agent} was asked: {task}")) as host:
        answer = await host.ask("reviewer", "Review the error handling")
    (spec,) = host.specs
    assert (spec.agent.name, spec.prompt) == ("reviewer", "Review the error handling")
    assert answer["content"] == [{"type": "text", "text": "reviewer was asked: Review the error handling"}]


async def test_single_call_returns_when_the_run_has_ended(ask):
    before = anyio.current_time()
    answer = await ask(WaitStep(170), reply("early", stop_reason="length"), WaitStep(170), reply("late"))
    assert answer["content"][0]["text"] == "late"
    assert anyio.current_time() - before == 340


async def test_single_call_has_one_result(open_host):
    async with open_host(reply("done")) as host:
        answer = await host.ask()
    assert len(host.specs) == 1
    assert [result["output"] for result in answer["details"]["results"]] == ["done"]


async def test_every_run_id_has_eight_digits_and_is_unique(open_host):
    async with open_host(reply("done")) as host:
        first, second = [(await host.ask())["details"]["runId"] for _ in range(2)]
        found = await host.retinue.session(first)
    assert len(first) == len(second) == 8
    assert first != second
    assert found.session.startswith(first)


async def test_completed_result_has_exactly_the_documented_fields(ask):
    store = MemoryStore(lambda: "abc12345" * 4)
    script = call("grep", pattern="auth", returns="src/server/auth.ts"), reply(ANSWER, usage=Usage(input=9, cost=0.5))
    assert await ask(*script, store=store) == {
        "content": [{"type": "text", "text": ANSWER}],
        "details": {
            "mode": "single",
            "runId": "abc12345",
            "results": [
                {
                    "agent": "explorer",
                    "task": "Find auth code",
                    "exitCode": 0,
                    "usage": {**ZERO, "input": 9, "cost": 0.5, "turns": 2},
                    "output": ANSWER,
                    "displayItems": [
                        {"type": "toolCall", "name": "grep", "args": {"pattern": "auth"}},
                        {"type": "text", "text": ANSWER},
                    ],
                }
            ],
        },
    }


async def test_completed_run_has_no_error(ask):
    details = (await ask(reply("done")))["details"]
    assert "error" not in details
    assert "error" not in details["results"][0]


# -- the answer ------------------------------------------------------------------------------------


async def test_answer_is_the_last_message_that_did_not_stop_for_a_tool(ask):
    answer = await ask(
        reply("a first idea"), Text("let me look"), call("read", path="x", returns="x"), reply("the answer")
    )
    assert answer["details"]["results"][0]["output"] == "the answer"


async def test_answer_has_all_text_blocks_of_its_message(ask):
    answer = await ask(Thinking("hm"), Text("one"), Text(""), Text("two"), MessageEnded(stop_reason="stop"))
    assert answer["content"][0]["text"].split() == ["one", "two"]


async def test_answer_is_a_success_despite_a_later_process_failure(ask):
    hung = await ask(reply("done"), HangStep())
    exited_badly = await ask(reply("done"), ProcessEnded(ProcessEnd(code=3)))
    killed = await ask(reply("done"), ProcessEnded(ProcessEnd(signal=9)))
    for answer in (hung, exited_badly, killed):
        assert answer["content"][0]["text"] == "done"
        assert answer["details"]["results"][0]["exitCode"] == 0
        assert "error" not in answer["details"]


async def test_display_items_are_texts_and_tool_calls_in_order(ask):
    script = [Text("I look."), call("ls", path="src", returns="a.py"), call("read", path="src/a.py"), reply("Found.")]
    answer = await ask(*script)
    assert answer["details"]["results"][0]["displayItems"] == [
        {"type": "text", "text": "I look."},
        {"type": "toolCall", "name": "ls", "args": {"path": "src"}},
        {"type": "toolCall", "name": "read", "args": {"path": "src/a.py"}},
        {"type": "text", "text": "Found."},
    ]


# -- usage -----------------------------------------------------------------------------------------


async def test_usage_is_summed_over_all_messages(ask):
    one = reply("one", usage=Usage(input=1000, output=20, cache_read=300, cache_write=4, cost=0.25))
    two = reply("two", usage=Usage(input=1, output=2, cache_read=3, cache_write=4))
    three = reply("three", usage=Usage(input=10, cost=0.5))
    answer = await ask(one, two, three)
    assert answer["details"]["results"][0]["usage"] == {
        "input": 1011,
        "output": 22,
        "cacheRead": 303,
        "cacheWrite": 8,
        "cost": 0.75,
        "turns": 3,
    }


async def test_usage_is_zero_if_no_provider_reports_it(ask):
    answer = await ask(reply("done"))
    silent = await ask(HangStep(), settings={"timeout": 5})
    assert answer["details"]["results"][0]["usage"] == {**ZERO, "turns": 1}
    assert silent["details"]["results"][0]["usage"] == ZERO


async def test_usage_is_summed_over_attempts(ask):
    half, whole = reply("half", usage=Usage(input=5, output=1)), reply("whole", usage=Usage(input=7, output=2))
    engine = ScriptedEngine.from_scripts([half, fail("503 overloaded")], [whole])
    answer = await ask(engine.script_for)
    assert answer["content"][0]["text"] == "whole"
    assert answer["details"]["results"][0]["usage"] == {**ZERO, "input": 12, "output": 3, "turns": 2}
