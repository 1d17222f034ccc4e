"""Calls that the `single` tool refuses: messages, codes and precedence."""

from __future__ import annotations

import pytest
from msgspec import structs

from retinue.engines.scripted import reply
from retinue.model.errors import ErrorCode
from retinue.toolsets.single import ERROR_CODES, FAILED_CODE

BUILT_IN = "explorer, researcher, reviewer, implementer, tester"
LEGACY = ["chain", "tasks", "async", "share", "worktree", "action", "id", "sessionDir", "control", "model", "skills"]
GOOD = {"agent": "explorer", "task": "Find auth code"}
TOO_LONG = (
    "The task has 1048577 bytes; the limit is 1048576 (max_task_bytes). "
    "Put long texts into a file and name the file in the task."
)
DISABLED = "Subagents are disabled in configuration"


def refusal(code, message, mode="single"):
    """Return the expected result of a call that started nothing."""
    return {
        "content": [{"type": "text", "text": message}],
        "details": {"mode": mode, "results": [], "error": {"code": code, "message": message}},
    }


def too_deep(depth, deepest):
    message = f"Subagent depth exceeded ({depth}/{deepest}). Nested subagents are not allowed."
    return refusal("SUBAGENT_DEPTH_EXCEEDED", message, "management")


async def call_subagent(open_host, arguments, **options):
    async with open_host(reply("done"), **options) as host:
        answer = (await host.use(arguments)).as_json()
    assert bool(host.specs) == bool(answer["details"]["results"])
    return answer


# -- input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agent", "task"])
async def test_missing_parameter_is_refused_by_name(open_host, name):
    expected = refusal("INVALID_INPUT", f"Missing required parameter: {name}")
    absent = {key: value for key, value in GOOD.items() if key != name}
    for arguments in (absent, {**GOOD, name: None}, {**GOOD, name: ""}):
        assert await call_subagent(open_host, arguments) == expected


@pytest.mark.parametrize("name", ["agent", "task"])
@pytest.mark.parametrize("value", [1, True, ["x"], {"x": 1}, 0, False, []], ids=repr)
async def test_parameter_that_is_no_string_is_refused_by_name(open_host, name, value):
    expected = refusal("INVALID_INPUT", f"Parameter {name} must be a string")
    assert await call_subagent(open_host, {**GOOD, name: value}) == expected


async def test_unknown_parameter_is_refused_by_name(open_host):
    expected = refusal("INVALID_INPUT", "Unknown parameter: cwd. Supported parameters: agent, task")
    assert await call_subagent(open_host, {**GOOD, "cwd": None}) == expected


@pytest.mark.parametrize("name", LEGACY)
async def test_legacy_fields_are_refused(open_host, name):
    expected = refusal("INVALID_INPUT", f"Unknown parameter: {name}. Supported parameters: agent, task")
    assert await call_subagent(open_host, {**GOOD, name: "x"}) == expected


@pytest.mark.parametrize("arguments", [None, "explorer", ["explorer", "x"], 7], ids=repr)
async def test_input_that_is_no_object_is_refused(open_host, arguments):
    answer = await call_subagent(open_host, arguments)
    assert answer["details"]["error"]["code"] == "INVALID_INPUT"
    assert answer == refusal("INVALID_INPUT", answer["content"][0]["text"])
    async with open_host() as host:
        unreadable = host.toolset.invalid_json_result("subagent", "unexpected end of data", host.call()).as_json()
    assert unreadable == refusal(
        "INVALID_INPUT", "The input of subagent is not a JSON object: unexpected end of data"
    )


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (" \n ", "The task is empty: write what the agent is to do"),
        ("a\0b", "The task contains a NUL byte: remove the byte, or name the file that contains it"),
        ("\ud800", "The task contains half a character (a lone surrogate): remove that character"),
        ("x" * (2**20 + 1), TOO_LONG),
    ],
    ids=["blank", "NUL", "surrogate", "long"],
)
async def test_unusable_task_is_refused_with_the_reason(open_host, task, message):
    assert await call_subagent(open_host, {**GOOD, "task": task}) == refusal("INVALID_INPUT", message)


# -- settings and depth --------------------------------------------------------------------------------


async def test_disabled_subagents_are_refused_by_every_setting(open_host, devkit_config):
    expected = refusal("SUBAGENTS_DISABLED", DISABLED)
    assert await call_subagent(open_host, GOOD, settings={"enabled": False}) == expected
    assert await call_subagent(open_host, GOOD, environ={"RETINUE_ENABLED": "false"}) == expected
    devkit_config(enabled=False)
    assert await call_subagent(open_host, GOOD) == expected


async def test_exceeded_depth_is_refused_in_mode_management(open_host):
    assert await call_subagent(open_host, GOOD, environ={"PI_SUBAGENT_CHILD": "1"}) == too_deep(1, 1)


@pytest.mark.parametrize(
    ("environ", "depth", "deepest"),
    [
        ({"PI_SUBAGENT_DEPTH": "1"}, 1, 1),
        ({"PI_SUBAGENT_DEPTH": "7"}, 7, 1),
        ({"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "0"}, 1, 1),
        ({"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "2"}, 2, 1),
        ({"PI_SUBAGENT_MAX_DEPTH": "0"}, 0, 0),
    ],
)
async def test_depth_is_read_from_the_environment(open_host, environ, depth, deepest):
    assert await call_subagent(open_host, GOOD, environ=environ) == too_deep(depth, deepest)


async def test_depth_is_read_from_the_lineage_without_environment(open_host):
    async with open_host(reply("done")) as host:
        call = host.call()
        nested = structs.replace(call, lineage=structs.replace(call.lineage, depth=1))
        answer = await host.ask(call=nested)
    assert answer == too_deep(1, 1)


@pytest.mark.parametrize(
    ("environ", "settings", "deepest"),
    [
        ({"PI_SUBAGENT_MAX_DEPTH": "9"}, {}, 1),
        ({"PI_SUBAGENT_MAX_DEPTH": "1"}, {"max_depth": 9}, 1),
        ({"PI_SUBAGENT_MAX_DEPTH": "0"}, {"max_depth": 9}, 0),
    ],
)
async def test_child_cannot_raise_its_maximum_depth(open_host, environ, settings, deepest):
    child = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1", **environ}
    assert await call_subagent(open_host, GOOD, environ=child, settings=settings) == too_deep(1, deepest)


@pytest.mark.parametrize("junk", ["", "x", "-1", "1.5", "0x1", " 1", "١", "1e3"], ids=repr)
async def test_invalid_depth_in_the_environment_is_ignored(open_host, junk):
    root = {"PI_SUBAGENT_CHILD": "0", "PI_SUBAGENT_DEPTH": junk, "PI_SUBAGENT_MAX_DEPTH": junk}
    assert (await call_subagent(open_host, GOOD, environ=root))["content"][0]["text"] == "done"
    child = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": junk, "PI_SUBAGENT_MAX_DEPTH": junk}
    assert await call_subagent(open_host, GOOD, environ=child) == too_deep(1, 1)


async def test_maximum_depth_is_one_by_default(open_host, devkit_config):
    assert "error" not in (await call_subagent(open_host, GOOD))["details"]
    assert await call_subagent(open_host, GOOD, settings={"max_depth": 0}) == too_deep(0, 0)
    devkit_config(maxDepth=0)
    assert await call_subagent(open_host, GOOD) == too_deep(0, 0)


async def test_first_of_several_refusals_is_reported(open_host):
    child, off = {"PI_SUBAGENT_CHILD": "1"}, {"enabled": False}
    bad, unknown = {"task": 7, "x": 1}, {"agent": "nobody", "task": "x"}
    codes = [
        (await call_subagent(open_host, bad, environ=child, settings=off))["details"]["error"]["code"],
        (await call_subagent(open_host, bad, settings=off))["details"]["error"]["code"],
        (await call_subagent(open_host, {**unknown, "x": 1}))["details"]["error"]["code"],
        (await call_subagent(open_host, unknown))["details"]["error"]["code"],
    ]
    assert codes == ["SUBAGENT_DEPTH_EXCEEDED", "SUBAGENTS_DISABLED", "INVALID_INPUT", "UNKNOWN_AGENT"]


async def test_refusals_except_depth_have_mode_single(open_host):
    for arguments, options in ((GOOD, {"settings": {"enabled": False}}), ({}, {}), ({**GOOD, "agent": "nobody"}, {})):
        assert (await call_subagent(open_host, arguments, **options))["details"]["mode"] == "single"


# -- agents -------------------------------------------------------------------------------------------


async def test_unknown_agent_is_refused_with_the_available_agents(open_host, agent_file, workplace, scratch_home):
    agent_file(scratch_home / ".pi" / "agent" / "agents", "zoe")
    agent_file(scratch_home / ".pi" / "agent" / "agents", "anna")
    agent_file(workplace / ".pi" / "agents", "local", "tools: read")
    agent_file(workplace / ".pi" / "agents", "unsafe", "tools: bash")
    expected = f"Unknown agent: Explorer. Available agents: {BUILT_IN}, anna, zoe, local"
    answer = await call_subagent(open_host, {**GOOD, "agent": "Explorer"})
    assert answer == refusal("UNKNOWN_AGENT", expected)


async def test_agent_disabled_by_its_file_is_refused(open_host, agent_file, scratch_home):
    agent_file(scratch_home / ".pi" / "agent" / "agents", "scribe", "enabled: false")
    answer = await call_subagent(open_host, {**GOOD, "agent": "scribe"})
    message = (
        'Agent "scribe" is disabled in ~/.pi/agent/agents/scribe.md. Nothing was started. '
        "Remove `enabled: false` there, or call another agent."
    )
    assert answer == refusal("SUBAGENT_DISABLED", message)


async def test_untrusted_project_agent_is_refused(open_host, agent_file, workplace):
    path = agent_file(workplace / ".pi" / "agents", "scribe", "tools: bash")
    asked = await call_subagent(open_host, {**GOOD, "agent": "scribe"})
    assert asked == refusal(
        "SUBAGENT_DISABLED",
        f'Agent "scribe" belongs to this project ({path}) and has not been approved, or has changed since you '
        "approved it. Nothing was started. Review and approve it with `retinue agents trust scribe`, or set "
        'project_agents = "allow".',
    )
    denied = await call_subagent(open_host, {**GOOD, "agent": "scribe"}, settings={"project_agents": "deny"})
    assert denied["details"]["error"]["code"] == "SUBAGENT_DISABLED"


async def test_accepted_project_agent_runs(open_host, agent_file, workplace, tmp_path):
    path = agent_file(workplace / ".pi" / "agents", "scribe", "tools: bash")
    asking = {**GOOD, "agent": "scribe"}
    assert (await call_subagent(open_host, asking, settings={"project_agents": "allow"}))["details"]["results"]
    async with open_host(reply("done"), environ={"RETINUE_STATE": str(tmp_path / "state")}) as host:
        waiting = host.retinue.roster().find_awaiting_trust("scribe")
        host.retinue.trust.accept(waiting)
        assert (await host.ask("scribe"))["details"]["results"]
        path.write_text(path.read_text() + "And more.\n")
        assert (await host.ask("scribe"))["details"]["error"]["code"] == "SUBAGENT_DISABLED"


async def test_harmless_project_agent_runs_without_acceptance(open_host, agent_file, workplace):
    agent_file(workplace / ".pi" / "agents", "looker", "tools: read, grep")
    assert (await call_subagent(open_host, {**GOOD, "agent": "looker"}))["details"]["results"]


async def test_untrusted_agent_shadows_no_other(open_host, agent_file, workplace):
    agent_file(workplace / ".pi" / "agents", "explorer", "tools: bash")
    async with open_host(reply("done")) as host:
        answer = await host.ask("explorer")
    assert answer["content"][0]["text"] == "done"
    assert host.specs[0].agent.layer == "builtin"


async def test_contradictory_agent_is_refused(open_host, agent_file, scratch_home):
    agent_file(scratch_home / ".pi" / "agent" / "agents", "scribe", "tools: read", "denied_tools: bash")
    answer = await call_subagent(open_host, {**GOOD, "agent": "scribe"})
    message = (
        'Agent "scribe" (~/.pi/agent/agents/scribe.md) has both an allow list and a deny list of tools. '
        "Nothing was started. Keep one of the two."
    )
    assert answer == refusal("SUBAGENT_FAILED", message)


async def test_single_call_beyond_max_spawns_is_refused(open_host):
    in_an_agent = {"PI_SUBAGENT_CHILD": "1", "PI_SUBAGENT_DEPTH": "1", "PI_SUBAGENT_MAX_DEPTH": "3"}
    settings = {"max_spawns": 1, "max_depth": 2}
    async with open_host(reply("done"), settings=settings, environ=in_an_agent) as host:
        first, second = await host.ask(), await host.ask()
    assert first["content"][0]["text"] == "done"
    message = (
        "The child runs of this call have started 1 run and may start 1 (max_spawns); 1 more was refused and nothing "
        "was started. Do the remaining work without delegating, or raise max_spawns in your config.toml."
    )
    assert second == refusal("SUBAGENT_FAILED", message)


# -- codes -----------------------------------------------------------------------------------------


def test_every_error_code_has_a_code_of_the_toolset():
    words = {code.value: ERROR_CODES.get(code, FAILED_CODE) for code in ErrorCode}
    assert {code: word for code, word in words.items() if word != "SUBAGENT_FAILED"} == {
        "invalid_input": "INVALID_INPUT",
        "disabled": "SUBAGENTS_DISABLED",
        "unknown_agent": "UNKNOWN_AGENT",
        "agent_disabled": "SUBAGENT_DISABLED",
        "agent_untrusted": "SUBAGENT_DISABLED",
        "depth_exceeded": "SUBAGENT_DEPTH_EXCEEDED",
        "timeout": "SUBAGENT_TIMEOUT",
        "idle_timeout": "SUBAGENT_TIMEOUT",
        "output_limit": "SUBAGENT_OUTPUT_TRUNCATED",
    }
