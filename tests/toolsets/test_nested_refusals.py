"""Calls that `spawn_subagent` and `agent_info` refuse, with their messages."""

from __future__ import annotations

import pytest
from msgspec import structs

from retinue.engines.scripted import fail, reply
from retinue.model.tasks import Lineage

SPAWN, INFO = "spawn_subagent", "agent_info"
TASK = {"agent": "explorer", "task": "Look."}
NEITHER = "The input of spawn_subagent must be an object with agent and task, or with tasks"


async def call_tool(open_host, arguments, *, tool=SPAWN, **options):
    """Return the result of a call, and the specs its engine received."""
    async with open_host(reply("done"), toolset="nested", **options) as host:
        return await host.use(arguments, tool=tool), host.specs


@pytest.mark.parametrize(
    ("arguments", "mode", "message"),
    [
        (None, "single", NEITHER),
        ([TASK], "single", NEITHER),
        ({}, "single", "Missing required parameter: agent"),
        ({"agent": "explorer"}, "single", "Missing required parameter: task"),
        ({"agent": "explorer", "task": ""}, "single", "Missing required parameter: task"),
        ({"agent": 7, "task": "Look."}, "single", "Parameter agent must be a string"),
        ({**TASK, "mode": "tree"}, "single", "Unknown mode: tree. Modes: single, chain, parallel"),
        ({**TASK, "mode": "Chain"}, "single", "Unknown mode: Chain. Modes: single, chain, parallel"),
        ({**TASK, "mode": ["chain"]}, "single", "Parameter mode must be a string"),
        ({"tasks": [TASK]}, "single", "Mode single needs agent and task; tasks needs mode chain or parallel"),
        ({"task": "x", "tasks": [TASK]}, "single", "Give agent and task, or tasks: not both task and tasks"),
        (
            {"mode": "chain", "task": "x", "tasks": [TASK]},
            "chain",
            "Give agent and task, or tasks: not both task and tasks",
        ),
        (
            {"mode": "parallel", "agent": "x", "tasks": [TASK]},
            "parallel",
            "Give agent and task, or tasks: not both agent and tasks",
        ),
        ({**TASK, "mode": "chain"}, "chain", "Missing required parameter: tasks. Mode chain needs a list of tasks"),
        (
            {"mode": "parallel", "tasks": TASK},
            "parallel",
            "Parameter tasks must be a list of objects with agent and task",
        ),
        ({"mode": "chain", "tasks": []}, "chain", "A call takes 1 to 16 tasks (max_tasks); this call has 0"),
        (
            {"mode": "parallel", "tasks": [TASK] * 17},
            "parallel",
            "A call takes 1 to 16 tasks (max_tasks); this call has 17",
        ),
        ({"mode": "chain", "tasks": [TASK, "x"]}, "chain", "Task 2: It must be an object with agent and task"),
        ({"mode": "chain", "tasks": [TASK, {"agent": "x"}]}, "chain", "Task 2: Missing required parameter: task"),
        ({"mode": "parallel", "tasks": [{**TASK, "cwd": 1}]}, "parallel", "Task 1: Parameter cwd must be a string"),
        (
            {"mode": "parallel", "tasks": [{**TASK, "timeout": "5"}]},
            "parallel",
            "Task 1: Parameter timeout must be a number of seconds",
        ),
        (
            {"mode": "parallel", "tasks": [{**TASK, "timeout": True}]},
            "parallel",
            "Task 1: Parameter timeout must be a number of seconds",
        ),
        (
            {"mode": "parallel", "tasks": [{**TASK, "timeout": 0}]},
            "parallel",
            "The task has a timeout of 0: it must be a number of seconds, at least 1",
        ),
        (
            {"mode": "chain", "tasks": [{"agent": "explorer", "task": "Use {previous}."}, TASK]},
            "chain",
            (
                "The first step of a chain has no previous answer: remove {previous} from its task, or add a step "
                "before it"
            ),
        ),
        (
            {"mode": "chain", "tasks": [{"agent": "explorer", "task": " {task} "}, TASK]},
            "chain",
            (
                "The first step of a chain is the task that {task} is replaced by: write the task in full instead of "
                "{task}"
            ),
        ),
    ],
)
async def test_spawn_refuses_wrong_input_by_name(open_host, arguments, mode, message):
    result, specs = await call_tool(open_host, arguments)
    assert result.as_json() == {
        "content": [{"type": "text", "text": message}],
        "details": {"mode": mode, "results": [], "error": {"code": "invalid_input", "message": message}},
        "isError": True,
    }
    assert (result.exit_code, specs) == (2, [])


async def test_placeholder_outside_a_chain_is_plain_text(open_host):
    _, (spec,) = await call_tool(open_host, {"agent": "explorer", "task": "What is {previous}?"})
    assert spec.prompt == "What is {previous}?"


async def test_chain_with_an_unusable_agent_does_not_start(open_host):
    tasks = [TASK, {"agent": "nobody", "task": "x"}]
    result, specs = await call_tool(open_host, {"mode": "chain", "tasks": tasks})
    assert result.text.startswith("Chain not started: step 2 (nobody) cannot run. Unknown agent: nobody.")
    assert (result.details["error"]["code"], result.details["results"], specs) == ("unknown_agent", [], [])
    assert (result.is_error, result.exit_code) == (True, 2)


@pytest.mark.parametrize("name", ["nobody", "../../etc/passwd", "..", "explorer/../tester", "a\x1b[2Jb", "x" * 5000])
@pytest.mark.parametrize("tool", [SPAWN, INFO])
async def test_unknown_agent_is_named_and_never_taken_for_a_path(open_host, name, tool):
    result, specs = await call_tool(open_host, {"agent": name, "task": "x"}, tool=tool)
    assert result.text.startswith("Unknown agent: ")
    assert result.text.endswith("Available agents: explorer, researcher, reviewer, implementer, tester")
    assert "\x1b" not in result.text
    assert len(result.text) < 300
    assert (result.is_error, result.exit_code, specs) == (True, 2, [])


@pytest.mark.parametrize("depth", [3, 4])
@pytest.mark.parametrize("tool", [SPAWN, INFO])
@pytest.mark.parametrize("arguments", [TASK, {}, None], ids=["right", "empty", "none"])
async def test_spawn_is_refused_below_the_maximum_depth(open_host, depth, tool, arguments):
    async with open_host(reply("done"), toolset="nested") as host:
        lineage = Lineage(root="r", parent_call="toolu_1", parent_run="a" * 32, depth=depth)
        result = await host.use(arguments, tool=tool, call=structs.replace(host.call(), lineage=lineage))
    assert result.text == f"Subagent depth exceeded ({depth}/3). Nested subagents are not allowed."
    assert (result.details["error"]["code"], result.exit_code, host.specs) == ("depth_exceeded", 2, [])


async def test_child_cannot_raise_the_maximum_depth_of_its_parent(open_host):
    environ = {"PI_SUBAGENT_DEPTH": "1", "PI_SUBAGENT_MAX_DEPTH": "1"}
    result, specs = await call_tool(open_host, TASK, environ=environ, settings={"max_depth": 9})
    assert (result.details["error"]["code"], specs) == ("depth_exceeded", [])


@pytest.mark.parametrize("tool", [SPAWN, INFO])
@pytest.mark.parametrize("arguments", [TASK, {}], ids=["right", "empty"])
async def test_nested_calls_are_refused_where_subagents_are_disabled(open_host, tool, arguments):
    result, _ = await call_tool(open_host, arguments, tool=tool, settings={"enabled": False})
    assert (result.text, result.exit_code) == ("Subagents are disabled in configuration", 2)


async def test_host_calls_are_not_limited_by_max_spawns(open_host):
    async with open_host(reply("done"), toolset="nested", settings={"max_spawns": 1}) as host:
        results = [await host.use({"mode": "parallel", "tasks": [TASK] * 2}, tool=SPAWN) for _ in range(3)]
    assert [result.exit_code for result in results] == [0, 0, 0]
    assert len(host.specs) == 6


async def test_nested_call_beyond_max_spawns_is_refused(open_host):
    in_an_agent = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1"}
    settings = {"max_spawns": 3}
    async with open_host(reply("done"), toolset="nested", settings=settings, environ=in_an_agent) as host:
        await host.use({"mode": "parallel", "tasks": [TASK] * 2}, tool=SPAWN)
        result = await host.use({"mode": "parallel", "tasks": [TASK] * 2}, tool=SPAWN)
    message = (
        "The child runs of this call have started 2 runs and may start 3 (max_spawns); 2 more were refused and "
        "nothing was started. Do the remaining work without delegating, or raise max_spawns in your config.toml."
    )
    error = {"code": "spawn_limit", "message": message}
    assert result.text == message
    assert result.details == {"mode": "parallel", "results": [], "error": error}
    assert len(host.specs) == 2


async def test_unreached_chain_steps_do_not_count_for_max_spawns(open_host):
    in_an_agent = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1"}
    chain, settings = {"mode": "chain", "tasks": [TASK] * 2}, {"max_spawns": 3}
    async with open_host(fail("400"), toolset="nested", settings=settings, environ=in_an_agent) as host:
        for _ in range(2):
            await host.use(chain, tool=SPAWN)
        result = await host.use(chain, tool=SPAWN)
    assert len(host.specs) == 2
    assert result.text.startswith(
        "The child runs of this call have started 2 runs and may start 3 (max_spawns); 2 more"
    )


async def test_nested_refusal_redacts_a_secret_of_the_input(open_host):
    result, _ = await call_tool(open_host, {**TASK, "mode": 'api_key="h7x2k9q4m1z8"'})
    assert "h7x2k9q4m1z8" not in str(result.as_json())


@pytest.mark.parametrize("tool", [SPAWN, INFO])
async def test_nested_refuses_invalid_json_in_the_same_form(open_host, tool):
    async with open_host(toolset="nested") as host:
        result = host.toolset.invalid_json_result(tool, "unexpected end", host.call())
        nowhere = structs.replace(host.call(), max_depth=0)
        assert host.toolset.invalid_json_result(tool, "x", nowhere).details["error"]["code"] == "depth_exceeded"
    assert result.text == f"The input of {tool} is not a JSON object: unexpected end"
    assert (result.is_error, result.exit_code) == (True, 2)


async def test_run_cannot_delegate_its_own_task_unchanged(open_host, workplace):
    (workplace / "below").mkdir()
    (workplace / "link").symlink_to(workplace)

    async def delegate_again(task="Look.", cwd=""):
        tasks = [{**TASK, "task": task, "cwd": f"{workplace}{cwd}"}]
        return await host.use({"mode": "parallel", "tasks": tasks}, tool=SPAWN, call=below)

    async with open_host(reply("done"), toolset="nested") as host:
        await host.use(TASK, tool=SPAWN)
        (spec,) = host.specs
        below = structs.replace(host.call(), lineage=structs.replace(spec.lineage, parent_call="toolu_2"))
        same = await host.use(TASK, tool=SPAWN, call=below)
        spelled = [await delegate_again(cwd=cwd) for cwd in ("", "/", "/.", "/link")]
        others = [await delegate_again(task="Only half of it."), await delegate_again(cwd="/below")]
    assert same.text == (
        "explorer was already given this task, or nearly the same one, by a parent run. Do the task yourself, or "
        "delegate a narrower part of it: name the file, the function or the item."
    )
    for one in (same, *spelled):
        assert one.details["results"][0]["error"]["code"] == "conflict"
        assert (one.is_error, one.exit_code) == (True, 2)
    assert [one.is_error for one in others] == [False, False]
