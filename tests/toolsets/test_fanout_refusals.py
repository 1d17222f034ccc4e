"""Calls that `fanout` refuses as a whole, with the documented message."""

from __future__ import annotations

import anyio
import pytest
from msgspec import structs

from retinue.agents.agent import Agent
from retinue.engines.scripted import HangStep, reply
from retinue.sessions.memory import MemoryStore

GOOD = {"name": "a", "prompt": "x"}
ID = "a1b2c3d4e5f6a7b8" + "0" * 16
TOO_MANY = "A call takes 1 to 16 tasks (max_tasks); this call has {}"
SLICE = "must be a whole number, at least 1"


async def refusal_text(fanout, *tasks, **options):
    """Return the message of a call that must start nothing, not even its valid first task."""
    async with fanout(reply("done"), **options) as host:
        result = await host.delegate({"name": "innocent", "prompt": "x"}, *tasks)
        assert await host.retinue.sessions() == []
    assert host.specs == []
    return message_of(result)


def message_of(result):
    """Return the message of a refusal after checking its form."""
    (content,) = result.as_json()["content"]
    message = content["text"]
    assert (result.is_error, result.exit_code) == (True, 2)
    assert result.as_json()["isError"] is True
    assert result.details["error"]["message"] == message
    return message


# -- input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (None, "The input of delegate_to_subagents must be an object"),
        ([GOOD], "The input of delegate_to_subagents must be an object"),
        ({}, "Missing required parameter: tasks"),
        ({"tasks": None}, "Missing required parameter: tasks"),
        ({"tasks": GOOD}, "Parameter tasks must be an array of tasks"),
        ({"tasks": "[]"}, "Parameter tasks must be an array of tasks"),
        ({"tasks": []}, TOO_MANY.format(0)),
        ({"tasks": [GOOD] * 17}, TOO_MANY.format(17)),
        ({"tasks": [GOOD], "profile": 7}, "Parameter profile must be a string"),
        ({"tasks": [GOOD, "x"]}, "Parameter tasks[1] must be an object with name and prompt"),
        ({"tasks": [{"prompt": "x"}]}, "Missing required parameter: tasks[0].name"),
        ({"tasks": [{**GOOD, "name": ""}]}, "Missing required parameter: tasks[0].name"),
        ({"tasks": [{**GOOD, "name": 1}]}, "Parameter tasks[0].name must be a string"),
        ({"tasks": [{"name": "a"}]}, "Missing required parameter: tasks[0].prompt"),
        ({"tasks": [{**GOOD, "prompt": ["x"]}]}, "Parameter tasks[0].prompt must be a string"),
        ({"tasks": [{**GOOD, "prompt": " \n"}]}, "The task is empty: write what the agent is to do"),
        ({"tasks": [{**GOOD, "cwd": 1}]}, "Parameter tasks[0].cwd must be a string"),
        ({"tasks": [{**GOOD, "profile": {}}]}, "Parameter tasks[0].profile must be a string"),
        ({"tasks": [{**GOOD, "resume": 7}]}, "Parameter tasks[0].resume must be a string"),
        ({"tasks": [{**GOOD, "timeout": "60"}]}, "Parameter tasks[0].timeout must be a number"),
        ({"tasks": [{**GOOD, "timeout": True}]}, "Parameter tasks[0].timeout must be a number"),
        (
            {"tasks": [GOOD, {**GOOD, "timeout": 0}]},
            "Task 2 has a timeout of 0: it must be a number of seconds, at least 1",
        ),
        ({"tasks": [{**GOOD, "files": "a.txt"}]}, "Parameter tasks[0].files must be an array of files"),
        ({"tasks": [{**GOOD, "files": [1]}]}, "Parameter tasks[0].files[0] must be a path, or an object with a path"),
        ({"tasks": [{**GOOD, "files": [{"head": 1}]}]}, "Missing required parameter: tasks[0].files[0].path"),
        ({"tasks": [{**GOOD, "files": [{"path": "f", "head": 0}]}]}, f"Parameter tasks[0].files[0].head {SLICE}"),
        ({"tasks": [{**GOOD, "files": [{"path": "f", "tail": 1.5}]}]}, f"Parameter tasks[0].files[0].tail {SLICE}"),
        ({"tasks": [{**GOOD, "files": [{"path": "f", "start": -1}]}]}, f"Parameter tasks[0].files[0].start {SLICE}"),
        (
            {"tasks": [{**GOOD, "files": [{"path": "f", "end": "9"}]}]},
            "Parameter tasks[0].files[0].end must be a number",
        ),
    ],
)
async def test_delegate_refuses_missing_or_mistyped_fields_by_name(fanout, arguments, message):
    async with fanout(reply("done")) as host:
        result = await host.use(arguments, tool="delegate_to_subagents")
    assert message_of(result) == message
    assert host.specs == []


async def test_max_tasks_limits_the_tasks_of_a_call(fanout):
    async with fanout(reply("done"), settings={"max_tasks": 2}) as host:
        assert host.tools()[0].input_schema["properties"]["tasks"]["maxItems"] == 2
        assert (
            message_of(await host.delegate("a", "b", "c")) == "A call takes 1 to 2 tasks (max_tasks); this call has 3"
        )


@pytest.mark.parametrize("tool", ["get_subagent_output", "get_subagent_session"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Missing required parameter: sessionId"),
        ({"sessionId": 7}, "Parameter sessionId must be a string"),
        ("x", "The input of {tool} must be an object"),
    ],
)
async def test_session_tools_refuse_ids_that_are_no_strings(fanout, tool, arguments, message):
    async with fanout() as host:
        assert message_of(await host.use(arguments, tool=tool)) == message.format(tool=tool)


async def test_fanout_refuses_invalid_json_in_the_same_form(fanout):
    async with fanout() as host:
        result = host.toolset.invalid_json_result("get_subagent_output", "it ends too early", host.call())
    assert message_of(result) == "The input of get_subagent_output is not a JSON object: it ends too early"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"environ": {"PI_SUBAGENT_DEPTH": "3"}},
            "Subagent depth exceeded (3/3). Nested subagents are not allowed.",
        ),
        ({"settings": {"enabled": False}}, "Subagents are disabled in configuration"),
    ],
)
async def test_every_fanout_tool_is_refused_where_delegation_is_disabled(fanout, options, message):
    async with fanout(reply("done"), **options) as host:
        answers = [await run(None, host.call(), None) for run in host.toolset.handlers.values()]
    assert [message_of(answer) for answer in answers] == [message] * 4


async def test_fanout_refusal_redacts_a_secret_of_the_input(fanout):
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    assert "a1B2c3" not in await refusal_text(fanout, {**GOOD, "resume": secret})


# -- sessions --------------------------------------------------------------------------------------


async def test_resuming_an_unknown_session_refuses_the_call(fanout):
    assert await refusal_text(fanout, {**GOOD, "resume": "a1b2c3d4e5f6a7b8"}) == (
        'Cannot resume: session "a1b2c3d4e5f6a7b8" not found. The session may have expired or the ID is incorrect.'
    )


@pytest.mark.parametrize("name", ["../../etc/passwd", "a" * 5000, "*", "a1b2c3d4e5f6a7b\n"])
async def test_resuming_an_invalid_session_id_refuses_the_call(fanout, name):
    assert "not found. The session may have expired" in await refusal_text(fanout, {**GOOD, "resume": name})


async def test_resuming_a_running_session_refuses_the_call(fanout):
    async with fanout(HangStep(), store=MemoryStore(lambda: ID)) as host, anyio.create_task_group() as group:
        group.start_soon(host.delegate, "a")
        await anyio.sleep(1)
        answer = await host.delegate("innocent", {**GOOD, "resume": "a1b2c3d4e5f6a7b8"})
        group.cancel_scope.cancel()
    assert message_of(answer) == (
        'Cannot resume: session "a1b2c3d4e5f6a7b8" is still running. Wait for it to complete before resuming.'
    )
    assert len(host.specs) == 1


async def test_resuming_a_session_twice_in_a_call_is_refused(fanout):
    async with fanout(reply("done")) as host:
        (session,) = (await host.delegate("a")).details["sessionIds"]
        answer = await host.delegate({**GOOD, "resume": session}, {**GOOD, "resume": session})
    assert message_of(answer).endswith("is named by 2 tasks of this call. Resume it once.")
    assert len(host.specs) == 1


# -- profiles that contradict themselves -----------------------------------------------------------

PROFILE = Agent(name="name")
EXCLUSIVE = "set. These are mutually exclusive —"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"suggested_skills": ("x",), "no_skills": True},
            f'has both "suggestedSkills" and "noSkills" {EXCLUSIVE} --no-skills would override --skill flags.',
        ),
        (
            {"load_skills": ("x",), "no_skills": True},
            f'has both "loadSkills" and "noSkills" {EXCLUSIVE} --no-skills disables skill discovery.',
        ),
        (
            {"tools": ("read",), "denied_tools": ("bash",)},
            f'has both "tools" (allowlist) and "excludeTools" (blacklist) {EXCLUSIVE} choose one or the other.',
        ),
    ],
)
async def test_contradictory_profile_refuses_the_call(fanout, fields, message):
    profile = structs.replace(PROFILE, **fields)
    assert await refusal_text(fanout, {**GOOD, "profile": "name"}, agents=[profile]) == f'Profile "name" {message}'


@pytest.mark.parametrize(
    "restriction",
    [{"tools": ("read",)}, {"denied_tools": ("bash",)}, {"no_tools": True}, {"readonly": True}],
    ids=["tools", "excludeTools", "noTools", "readonly"],
)
@pytest.mark.parametrize(
    "argument",
    ["--tools", "-t", "--no-tools", "-nt", "--tools=bash", "-t=bash", "--no-tools=", "-nt=1", "-xt", "-nbt",
     "--exclude-tools=read", "--no-builtin-tools", "--tools read"],
)  # fmt: skip
async def test_extra_arg_that_overrides_tool_restrictions_refuses_the_call(fanout, restriction, argument):
    profile = structs.replace(PROFILE, extra_args=("--verbose", argument), **restriction)
    assert await refusal_text(fanout, {**GOOD, "profile": "name"}, agents=[profile]) == (
        f'Refusing extraArg "{argument}" which would override profile tool restrictions. '
        "Use the dedicated profile fields instead."
    )


async def test_extra_arg_outside_the_allow_list_refuses_the_call(fanout):
    profile = structs.replace(PROFILE, extra_args=("--api-key", "x"))
    message = await refusal_text(fanout, {**GOOD, "profile": "name"}, agents=[profile])
    assert message.startswith('Refusing extraArg "--api-key" of agent "name": it is not among the arguments')
