"""`delegate_to_subagents` when all goes well: what it takes, how many run at once, what it answers and shows."""

from __future__ import annotations

from itertools import count

import anyio
import pytest

from retinue.agents.agent import Agent
from retinue.engines.scripted import CAPABILITIES, HangStep, RunCallback, WaitStep, call, reply
from retinue.model.events import Notice, Text
from retinue.sessions.memory import MemoryStore
from retinue.toolsets.base import ToolResult

WRITER = Agent(
    name="writer", body="You write.", provider="acme", model="m-1", thinking="high", tools=("read", "edit")
)
RESEARCHER = Agent(name="researcher", model="m-2")
WRITER_INFO = "profile: writer, model=acme/m-1, thinking=high, custom-system-prompt, tools=[read, edit]"


def counting():
    """A store whose ids tell in which order they were given."""
    numbers = count(1)
    return MemoryStore(lambda: f"{next(numbers):08x}" + "0123456789abcdef01234567")


def ids(*numbers):
    return [f"{number:08x}01234567" for number in numbers]


# -- the tools -------------------------------------------------------------------------------------


async def test_there_are_four_tools(fanout):
    async with fanout() as host:
        tools = host.tools()
    assert [tool.name for tool in tools] == [
        "delegate_to_subagents",
        "get_subagent_output",
        "get_subagent_session",
        "list_subagent_profiles",
    ]
    assert [tool.description.partition(".")[0] for tool in tools] == [
        "Spawn one or more parallel sub-agents to work on separate tasks concurrently",
        "Retrieve the final assistant text output from a completed sub-agent session",
        "Retrieve the complete session transcript, including all messages, tool calls, and tool results",
        "List all available named sub-agent profiles and their configurations",
    ]


async def test_the_input_of_delegate_is_tasks_and_a_default_profile(fanout):
    async with fanout() as host:
        schema = host.tools()[0].input_schema
    tasks, task = schema["properties"]["tasks"], schema["properties"]["tasks"]["items"]
    assert (set(schema["properties"]), schema["required"]) == ({"tasks", "profile"}, ["tasks"])
    assert (tasks["minItems"], tasks["maxItems"]) == (1, 16)
    assert {name: rule["type"] for name, rule in task["properties"].items()} == {
        "name": "string",
        "prompt": "string",
        "cwd": "string",
        "profile": "string",
        "timeout": "number",
        "resume": "string",
        "files": "array",
    }
    assert task["required"] == ["name", "prompt"]
    assert task["properties"]["timeout"]["minimum"] == 1


async def test_the_input_of_the_other_tools_is_a_session_or_nothing(fanout):
    async with fanout() as host:
        _, output, session, profiles = (tool.input_schema for tool in host.tools())
    assert (session["properties"]["sessionId"]["type"], session["required"]) == ("string", ["sessionId"])
    assert output["required"] == ["sessionId"]
    assert {name: rule["type"] for name, rule in output["properties"].items()} == {
        "sessionId": "string",
        "start": "integer",
        "lines": "integer",
    }
    assert profiles == {"type": "object", "properties": {}}


@pytest.mark.parametrize("options", [{"environ": {"PI_SUBAGENT_DEPTH": "3"}}, {"settings": {"enabled": False}}])
async def test_where_nothing_may_be_delegated_there_is_no_tool(fanout, options):
    async with fanout(**options) as host:
        assert host.tools() == ()


# -- answers ---------------------------------------------------------------------------------------


async def test_each_task_ends_with_a_line_of_its_status_name_session_and_profile(fanout):
    async with fanout(reply("done"), agents=[WRITER], store=counting()) as host:
        result = await host.delegate("build-assets", {"name": "docs", "prompt": "x", "profile": "writer"})
    assert result.as_json()["content"] == [
        {
            "type": "text",
            "text": "✓ build-assets: completed (session: 0000000101234567)\n"
            f"✓ docs: completed (session: 0000000201234567) ({WRITER_INFO})",
        }
    ]
    assert (result.is_error, result.exit_code) == (False, 0)


async def test_the_seeds_two_lines_are_given_to_the_letter(fanout):
    store = MemoryStore(iter([f"a3f7b9c2d1e8f4a1{0:016x}", f"f4e1d8a7c0b39265{0:016x}"]).__next__)
    scripts = {"build-assets": [reply("done")], "run-tests": [HangStep()]}
    settings = {"extend_timeout_debounce": 0}
    async with fanout(lambda spec: scripts[spec.name], store=store, settings=settings) as host:
        result = await host.delegate("build-assets", {"name": "run-tests", "prompt": "x", "timeout": 300})
    assert result.text == (
        "✓ build-assets: completed (session: a3f7b9c2d1e8f4a1)\n"
        "✗ run-tests: error — Timed out after 300s. Consider resuming with a longer timeout. (session: f4e1d8a7c0b39265)"
    )
    assert (result.is_error, result.exit_code) == (False, 124)


async def test_the_details_are_windows_their_size_the_status_of_all_and_the_sessions(fanout):
    script = Text("I look."), call("read", path="x"), reply("done")
    async with fanout(*script, agents=[WRITER], store=counting(), settings={"max_lines_per_window": 2}) as host:
        result = await host.delegate(
            {"name": "docs", "prompt": "x", "profile": "writer", "timeout": 60.5, "files": ["nope"]}
        )
    (window,) = result.details["windows"]
    started, ended = window.pop("startedAt"), window.pop("completedAt")
    assert 0 < started <= ended
    assert {**result.details, "windows": [window]} == {
        "windows": [
            {
                "name": "docs",
                "sessionId": "0000000101234567",
                "status": "completed",
                "lines": ['→ read: {"path":"x"}', "done"],
                "allMessages": ["I look.", '→ read: {"path":"x"}', "done"],
                "exitCode": 0,
                "model": "m-1",
                "stopReason": "stop",
                "errorMessage": None,
                "profileName": "writer",
                "profileInfo": WRITER_INFO,
                "provider": "acme",
                "thinkingLevel": "high",
                "timeout": 60.5,
                "toolCount": 1,
                "fileCount": 1,
                "recentToolCalls": ['read: {"path":"x"}'],
            }
        ],
        "maxLinesPerWindow": 2,
        "globalStatus": "done",
        "sessionIds": ["0000000101234567"],
    }


async def test_a_window_has_fifteen_lines_unless_it_is_set(fanout):
    async with fanout(reply("\n\n".join(map(str, range(20))))) as host:
        details = (await host.delegate("a")).details
    assert details["maxLinesPerWindow"] == 15
    assert details["windows"][0]["lines"] == [str(number) for number in range(5, 20)]


async def test_todos_are_counted_where_the_agent_keeps_a_list(fanout):
    todos = [{"text": "one", "status": "completed"}, {"text": "two", "status": "pending"}]
    async with fanout(call("write_todos", todos=todos), reply("done")) as host:
        (window,) = (await host.delegate("a")).details["windows"]
    assert (window["todoTotal"], window["todoCompleted"]) == (2, 1)


async def test_a_name_may_be_given_twice(fanout):
    async with fanout(reply("done"), store=counting()) as host:
        result = await host.delegate("same", "same")
    assert result.details["sessionIds"] == ids(1, 2)
    assert [line.partition(" (")[0] for line in result.text.splitlines()] == ["✓ same: completed"] * 2


async def test_a_line_stays_a_line_whatever_a_name_or_a_failure_holds(fanout):
    names = "a\n✓ forged: completed (session: 1)", "\x1b[31mred\x1b[0m"
    async with fanout(WaitStep(1), cwd="/") as host:
        result = await host.delegate(*names)
    first, second = result.text.splitlines()
    assert first.startswith("✗ a ✓ forged: completed (session: 1): error — The agent ended")
    assert second.startswith("✗ red: error")


async def test_input_that_means_nothing_is_ignored_and_the_runs_say_so(fanout):
    task = {"name": "a", "prompt": "x", "model": "big", "files": [{"path": "nope", "lines": 3}]}
    async with fanout(reply("done")) as host:
        result = await host.delegate(task, mode="fast")
        events = [stamped.event async for stamped in host.retinue.history(result.details["sessionIds"][0])]
    said = "Ignored parameters: mode, tasks[0].model, tasks[0].files[0].lines"
    assert [event for event in events if isinstance(event, Notice)] == [Notice("planning", said)]
    assert result.text == f"✓ a: completed (session: {result.details['sessionIds'][0]})\n\n{said}"


@pytest.mark.parametrize("tool", ["get_subagent_output", "get_subagent_session", "list_subagent_profiles"])
async def test_retrieval_tools_name_ignored_parameters(fanout, tool):
    async with fanout(reply("done")) as host:
        session = (await host.delegate("a")).details["sessionIds"][0]
        arguments = {} if tool == "list_subagent_profiles" else {"sessionId": session}
        plain = await host.use(arguments, tool=tool)
        result = await host.use({**arguments, "format": "json"}, tool=tool)
    assert result.text == f"{plain.text}\n\nIgnored parameters: format"


async def test_what_models_fill_in_for_nothing_is_nothing(fanout):
    empty = {"name": "a", "prompt": "x", "cwd": "", "profile": "", "resume": "", "timeout": None, "files": None}
    async with fanout(reply("done")) as host:
        result = await host.delegate(empty, profile="")
    assert result.text.startswith("✓ a: completed")


# -- many at once ----------------------------------------------------------------------------------


class Gauge:
    """Counts how many runs are at work."""

    def __init__(self):
        self.now = self.most = 0
        self.names = set()

    def script(self, spec):
        async def work():
            self.now += 1
            self.most = max(self.most, self.now)
            self.names.add(spec.name)
            await anyio.sleep(100)
            self.now -= 1

        return [RunCallback(work), reply("done")]


async def test_four_run_at_once_and_the_others_follow(fanout):
    gauge = Gauge()
    names = [f"task-{number}" for number in range(16)]
    async with fanout(gauge.script, store=counting()) as host:
        result = await host.delegate(*names)
    assert (gauge.most, gauge.names) == (4, set(names))
    assert [line.split()[1].rstrip(":") for line in result.text.splitlines()] == names
    assert result.details["sessionIds"] == ids(*range(1, 17))


async def test_waiting_for_a_slot_costs_no_timeout(fanout):
    tasks = [{"name": str(number), "prompt": "x", "timeout": 101} for number in range(9)]
    async with fanout(Gauge().script) as host:
        result = await host.delegate(*tasks)
    assert {window["status"] for window in result.details["windows"]} == {"completed"}


async def test_results_stand_in_the_order_of_the_tasks_whichever_ends_first(fanout):
    scripts = {"slow": [WaitStep(50), reply("1")], "quick": [reply("2")]}
    async with fanout(lambda spec: scripts[spec.name]) as host:
        result = await host.delegate("slow", "quick")
    assert [window["name"] for window in result.details["windows"]] == ["slow", "quick"]


# -- profiles and what a task runs with ------------------------------------------------------------


async def test_a_tasks_own_profile_wins_over_the_default_one(fanout):
    tasks = {"name": "a", "prompt": "x", "profile": "writer"}, {"name": "b", "prompt": "x"}
    async with fanout(reply("done"), agents=[WRITER, RESEARCHER]) as host:
        await host.delegate(*tasks, profile="researcher")
    assert {spec.name: (spec.agent.name, spec.model) for spec in host.specs} == {
        "a": ("writer", "m-1"),
        "b": ("researcher", "m-2"),
    }


async def test_without_a_profile_the_engine_has_its_own_prompt_and_its_own_tools(fanout):
    async with fanout(reply("done")) as host:
        result = await host.delegate("a")
    (spec,) = host.specs
    assert (spec.system_prompt, spec.append_prompt) == ("", "")
    assert set(spec.grant.tools) == CAPABILITIES.tools
    (window,) = result.details["windows"]
    assert (window["profileName"], window["profileInfo"]) == (None, None)


async def test_the_prompt_is_given_as_it_stands_and_the_name_is_for_the_screen(fanout, tmp_path):
    async with fanout(reply("done")) as host:
        await host.delegate({"name": "a", "prompt": " Do\nthis. ", "cwd": str(tmp_path)})
    (spec,) = host.specs
    assert (spec.name, spec.prompt, spec.cwd, spec.limits.timeout) == ("a", " Do\nthis. ", str(tmp_path), 600)


async def test_a_task_works_where_the_call_was_made_unless_it_says_otherwise(fanout, workplace):
    async with fanout(reply("done")) as host:
        await host.delegate("a")
    assert host.specs[0].cwd == str(workplace)


# -- while they run --------------------------------------------------------------------------------


async def test_partial_results_count_the_tasks_and_show_their_windows_from_the_first(fanout):
    seen: list[ToolResult] = []
    scripts = {
        "good": [WaitStep(5), reply("done")],
        "bad": [WaitStep(9)],
        "worse": [WaitStep(9)],
        "last": [WaitStep(20), reply("x")],
    }
    async with fanout(lambda spec: scripts[spec.name], store=counting()) as host:
        await host.delegate(*scripts, update=seen.append)
    texts = list(dict.fromkeys(partial.text for partial in seen))
    assert texts[0] == "4 running"
    assert "3 running, 1 done" in texts
    assert "1 running, 1 done, 2 errors" in texts
    assert texts[-1] == "2 done, 2 errors"
    first, last = seen[0].details, seen[-1].details
    assert (first["globalStatus"], last["globalStatus"]) == ("running", "done")
    assert first["sessionIds"] == last["sessionIds"] == ids(1, 2, 3, 4)
    assert [window["name"] for window in first["windows"]] == list(scripts)
    assert {window["status"] for window in first["windows"]} == {"running"}
    assert {window["exitCode"] for window in first["windows"]} == {None}


async def test_partial_results_have_what_is_being_said(fanout):
    seen: list[ToolResult] = []
    async with fanout(Text("I look."), WaitStep(1), call("read", path="x"), WaitStep(1), reply("done")) as host:
        await host.delegate("a", update=seen.append)
    lines = [partial.details["windows"][0]["lines"] for partial in seen]
    assert ["I look."] in lines
    assert ["I look.", '→ read: {"path":"x"}'] in lines


async def test_a_window_shows_the_newest_of_long_work_and_stays_small(fanout):
    steps = [reply("x" * 10_000 + str(number)) for number in range(40)]
    async with fanout(*steps) as host:
        (window,) = (await host.delegate("a")).details["windows"]
    assert window["allMessages"][-1].endswith("39")
    assert sum(map(len, window["allMessages"])) <= 2**16
