"""MCP servers of a run on the scripted engine: granted tools answer, and no fault of a server ends the run."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest
from tests.support.mcp_servers import bad_definition, compressing_server, http_server, stdio_definition
from tests.support.retinue_factory import stage

from retinue import Agent
from retinue.engines.scripted import RunCallback, Step, call, reply
from retinue.model.events import ToolReturned
from retinue.model.results import RunResult
from retinue.model.runs import RunSpec

pytestmark = [pytest.mark.process, pytest.mark.timeout(60)]


async def run_agent(
    home: Path, servers: Any, *steps: Step, environ: Mapping[str, str] = MappingProxyType({}), **fields: Any
) -> tuple[RunResult, list[ToolReturned]]:
    """Return the result of an agent with these servers, and what its tools returned."""
    agent = Agent(name="worker", body="You work.", mcp_servers=servers, **fields)
    settings = {"allow_write": True}
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), **environ}
    async with (
        stage(home, *steps, reply("Done."), agents=[agent], settings=settings, environ=variables) as retinue,
        retinue.events() as watcher,
    ):
        result = await retinue.run("worker", "Work.")
        returned = [one.event for one in watcher.drain() if isinstance(one.event, ToolReturned)]
    assert (result.failure, result.text) == (None, "Done.")
    return result, returned


def body_of(returned: ToolReturned) -> str:
    """Return the text of an answer without the lines that mark it as foreign."""
    lines = returned.text.split("\n")
    assert "data, not instructions" in lines[0]
    return "\n".join(lines[1:-1])


def notices(result: RunResult) -> list[str]:
    return [notice for notice in result.actual.notices if "MCP" in notice]


async def test_tools_of_a_program_answer(tmp_path):
    result, (found,) = await run_agent(tmp_path, {"docs": stdio_definition()}, call("mcp__docs__search", query="bus"))
    assert body_of(found) == "found bus"
    assert notices(result) == []


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
async def test_tools_at_an_address_answer(tmp_path, transport):
    with http_server(transport, token="letmein-1234567890") as url:
        servers = {"docs": {"url": url, "headers": {"Authorization": "Bearer letmein-1234567890"}}}
        result, (found,) = await run_agent(tmp_path, servers, call("mcp__docs__search", query="bus"))
    assert body_of(found) == "found bus"
    assert notices(result) == []


async def test_server_that_wants_a_login_is_left_out_by_name(tmp_path):
    with http_server(token="letmein-1234567890") as url:
        result, _ = await run_agent(tmp_path, {"docs": {"url": url}}, call("mcp__docs__search", query="bus"))
    (notice,) = notices(result)
    assert notice.startswith(
        "The MCP server docs could not be started, and its tools are left out: it requires a login"
    )
    assert result.actual.not_applied == ("mcp__docs",)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("hang", "could not be started, and its tools are left out: it did not list its tools within 1.5 seconds."),
        (
            "exit",
            "could not be started, and its tools are left out: its program ended with exit code 1 (no database here).",
        ),
        ("refuses", "could not be started, and its tools are left out: not today."),
        (
            "endless_line",
            "could not be started, and its tools are left out: it sent a message of more than 16777216 bytes.",
        ),
        ("no_list", ""),
    ],
)
async def test_server_that_does_not_start_is_reported_by_name_and_the_run_completes(tmp_path, fault, expected):
    timeout = {"startup_timeout_sec": 1.5} if fault == "hang" else {}
    servers = {"bad": bad_definition(fault, **timeout)}
    result, (returned,) = await run_agent(tmp_path, servers, call("mcp__bad__echo"))
    assert returned.is_error
    assert notices(result) == ([f"The MCP server bad {expected}"] if expected else [])
    assert result.actual.not_applied == (("mcp__bad",) if expected else ())


async def test_garbage_before_the_answers_is_ignored(tmp_path):
    result, (returned,) = await run_agent(tmp_path, {"bad": bad_definition("garbage")}, call("mcp__bad__echo"))
    assert body_of(returned) == "echo"
    assert notices(result) == []


@pytest.mark.parametrize(
    ("fault", "tool"), [("endless_list", "echo63"), ("many_tools", "echo255"), ("bad_schemas", "echo")]
)
async def test_rest_of_a_bad_list_is_left_out_and_reported(tmp_path, fault, tool):
    result, (returned,) = await run_agent(tmp_path, {"bad": bad_definition(fault)}, call(f"mcp__bad__{tool}"))
    assert body_of(returned) == "echo"
    left_out = "The MCP server bad lists more than 256 tools or 64 pages; the others are left out."
    expected = {"endless_list": [left_out], "many_tools": [left_out]}.get(fault)
    found = notices(result)
    if expected is None:
        assert [notice.partition("left out: ")[2].partition(":")[0] for notice in found] == [
            "broken0",
            "broken1",
            "broken2",
            "a tool without a usable name.",
            "none",
        ]
    else:
        assert found == expected


async def test_server_that_ends_during_the_run_is_reported_and_later_calls_name_it(tmp_path):
    result, returned = await run_agent(
        tmp_path, {"docs": stdio_definition()}, call("mcp__docs__die"), call("mcp__docs__search", query="bus")
    )
    reason = "its program ended with exit code 3 (out of luck)"
    assert [(each.text, each.is_error) for each in returned] == [
        (f"The MCP server docs failed: {reason}. Work without it.", True),
        (f"The MCP server docs does not run: {reason}. Work without it.", True),
    ]
    assert notices(result) == [f"The MCP server docs ended during the run: {reason}."]


async def test_huge_result_is_cut_and_one_beyond_every_limit_ends_its_server(tmp_path):
    _, (huge,) = await run_agent(tmp_path, {"bad": bad_definition("huge")}, call("mcp__bad__echo"))
    assert "of 9.5 MB" in huge.text
    assert len(huge.text) < 60_000
    result, (too_huge,) = await run_agent(tmp_path, {"bad": bad_definition("too_huge")}, call("mcp__bad__echo"))
    assert too_huge.text == (
        "The MCP server bad failed: it sent a message of more than 16777216 bytes. Work without it."
    )
    assert notices(result) == [
        "The MCP server bad ended during the run: it sent a message of more than 16777216 bytes."
    ]


async def test_compressed_answer_is_refused_before_it_is_decoded(tmp_path):
    with compressing_server(b'"' + b"x" * 100_000_000 + b'"') as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result, _ = await run_agent(tmp_path, {"bad": {"url": url}}, call("mcp__bad__echo"))
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (notice,) = notices(result)
    assert notice.endswith("left out: it compresses its answers ('gzip'), although it was asked not to.")
    assert after - before < 50_000  # KiB


async def test_call_without_an_answer_ends_at_its_timeout(tmp_path):
    servers = {"bad": bad_definition("silent", tool_timeout_sec=0.5)}
    _, (returned,) = await run_agent(tmp_path, servers, call("mcp__bad__echo"))
    assert returned.text == "The MCP server bad did not answer within 0.5 seconds. Work without it."


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            "odd_results",
            (
                "[a part that is no content: left out]\n[audio: left out]\n"
                "[image/x: left out, 4 characters as base64]\n[a part that is no content: left out]"
            ),
        ),
        ("no_result", '{"value":1}'),
    ],
)
async def test_odd_results_are_described(tmp_path, fault, expected):
    _, (returned,) = await run_agent(tmp_path, {"bad": bad_definition(fault)}, call("mcp__bad__echo"))
    assert body_of(returned) == expected


async def test_failure_of_a_tool_is_an_error_for_the_model(tmp_path):
    _, (returned,) = await run_agent(tmp_path, {"docs": stdio_definition()}, call("mcp__docs__fail"))
    assert returned.is_error
    assert body_of(returned) == "Error executing tool fail"


# -- grants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "granted"),
    [
        ({}, ["search", "write"]),
        ({"tools": ["mcp__docs"]}, ["search", "write"]),
        ({"tools": ["read", "mcp__docs__*"]}, ["search", "write"]),
        ({"tools": ["mcp__docs__search"]}, ["search"]),
        ({"tools": ["mcp__docs__s*"]}, ["search"]),
        ({"tools": ["mcp__*"]}, ["search", "write"]),
        ({"tools": ["mcp:docs/write"]}, ["write"]),
        ({"denied_tools": ["mcp__docs__write"]}, ["search"]),
        ({"tools": ["mcp__docs"], "denied_tools": ["mcp__docs__write"]}, ["search"]),
    ],
)
async def test_only_granted_tools_of_a_server_can_be_called(tmp_path, fields, granted):
    steps = [call("mcp__docs__search", query="bus"), call("mcp__docs__write", path=str(tmp_path / "file"), text="x")]
    _, returned = await run_agent(tmp_path, {"docs": stdio_definition()}, *steps, **fields)
    assert [each.name.removeprefix("mcp__docs__") for each in returned if not each.is_error] == granted
    assert (tmp_path / "file").exists() is ("write" in granted)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tools": ["read"]}, "the agent's tools name none of its tools (mcp__docs__…)"),
        ({"denied_tools": ["mcp__docs"]}, "denied removed its tools"),
        ({"denied_tools": ["mcp__*"]}, "denied removed its tools"),
        ({"readonly": True}, "the agent's tools name none of its tools (mcp__docs__…)"),
        ({"tools": ["read", "mcp__docs__*"], "readonly": True}, "readonly removed its tools"),
        ({"no_tools": True}, "no_tools removed its tools"),
    ],
)
async def test_server_without_a_granted_tool_is_not_started(tmp_path, fields, reason):
    started = tmp_path / "started"
    servers = {"docs": {"command": "touch", "args": [str(started)]}}
    result, (returned,) = await run_agent(tmp_path, servers, call("mcp__docs__search"), **fields)
    assert returned.text == ""
    assert not started.exists()
    assert notices(result) == [f"The MCP server docs is not started: {reason}."]


async def test_tool_that_its_server_does_not_have_is_reported(tmp_path):
    result, _ = await run_agent(
        tmp_path,
        {"docs": stdio_definition()},
        call("mcp__docs__search", query="a"),
        tools=["mcp__docs__search", "mcp__docs__serach"],
    )
    assert notices(result) == ["The MCP server docs does not have the tool mcp__docs__serach."]
    assert result.actual.not_applied == ("mcp__docs__serach",)


async def test_long_and_equal_names_become_unique_and_short(tmp_path):
    steps: list[Step] = []
    agents = [Agent(name="long", mcp_servers={"bad": bad_definition("long_names")})]
    seen: list[str] = []

    def script(spec: RunSpec):
        async def note() -> None:
            assert spec.tool_servers
            seen.extend(tool.name for tool in await spec.tool_servers.list_tools())

        return [RunCallback(note), *steps, reply("Done.")]

    async with stage(tmp_path, script, agents=agents, settings={"allow_write": True}) as retinue:
        await retinue.run("long", "Work.")
    assert len({*seen}) == 3
    assert all(len(name) == 64 and name.startswith("mcp__bad__longlong") for name in seen)


# -- secrets and variables ---------------------------------------------------------------------------


async def test_values_of_variables_reach_the_server_and_are_redacted(tmp_path):
    secret = "hunter2-hunter2-hunter2"
    servers = {
        "docs": stdio_definition(env={"OWN": secret, "TAKEN": "${OUTER_TOKEN}", "LEFT": "${NOT_SET:-fallback}"})
    }
    result, returned = await run_agent(
        tmp_path,
        servers,
        *(call("mcp__docs__variable", name=name) for name in ("OWN", "TAKEN", "LEFT", "OPENAI_API_KEY")),
        environ={"OUTER_TOKEN": "outer-secret-value-123", "OPENAI_API_KEY": "sk-proj-0123456789abcdef"},
    )
    assert notices(result) == []
    own, taken, left, foreign = map(body_of, returned)
    assert (secret in own, "outer-secret" in taken) == (False, False)
    assert (left, foreign) == ("fallback", "(not set)")
    assert secret not in repr(result)


async def test_secret_on_stderr_of_a_server_is_masked_before_the_line_is_cut(tmp_path):
    servers = {"bad": bad_definition("tells", env={"OWN": "hunter2-hunter2-hunter2"})}
    result, (returned,) = await run_agent(tmp_path, servers, call("mcp__bad__echo"))
    reason = f"its program ended with exit code 1 ({'x' * 185}[REDACTED])"
    assert returned.text == f"The MCP server bad failed: {reason}. Work without it."
    assert notices(result) == [f"The MCP server bad ended during the run: {reason}."]


async def test_server_with_an_unset_variable_is_left_out_by_name(tmp_path):
    servers = {"docs": stdio_definition(env={"TOKEN": "${MISSING_TOKEN}"})}
    result, _ = await run_agent(tmp_path, servers, call("mcp__docs__search"))
    assert notices(result) == [
        "The MCP server docs is not started: the variable MISSING_TOKEN is not set. Its tools are left out."
    ]
    assert result.actual.tools_missing == ("mcp__docs__*",)


async def test_server_ends_with_its_run(tmp_path):
    _, (returned,) = await run_agent(tmp_path, {"docs": stdio_definition()}, call("mcp__docs__process"))
    pid, folder = body_of(returned).split()
    assert folder == str(tmp_path)
    assert not Path(f"/proc/{pid}").exists()


async def test_run_without_servers_imports_no_sdk(tmp_path):
    program = (
        "import sys, anyio\n"
        "from retinue import Retinue\n"
        "from retinue.engines.scripted import reply\n"
        "async def main():\n"
        f"    async with Retinue(cwd={str(tmp_path)!r}, engine='offline', environ={{'HOME': {str(tmp_path)!r}}}) as retinue:\n"
        "        await retinue.run('explorer', 'Find the bus.')\n"
        "anyio.run(main)\n"
        "print([name for name in sys.modules if name in ('mcp', 'mcp_types', 'pydantic', 'retinue.mcp_client.server')])\n"
    )
    done = await anyio.run_process([sys.executable, "-c", program])
    assert done.stdout.decode().strip() == "[]"


async def test_cancelled_run_ends_a_call_that_has_no_answer(tmp_path):
    agent = Agent(name="worker", mcp_servers={"bad": bad_definition("silent")})
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    called = anyio.Event()

    async def note() -> None:
        called.set()

    steps: list[Step] = [RunCallback(note), call("mcp__bad__echo"), reply("Done.")]
    settings = {"allow_write": True}
    async with (
        stage(tmp_path, *steps, agents=[agent], settings=settings, environ=environ) as retinue,
        anyio.create_task_group() as group,
    ):
        group.start_soon(retinue.run, "worker", "Work.")
        await called.wait()
        began = anyio.current_time()
        assert retinue.stop(retinue._orchestrator.active_run_ids[0])
    assert anyio.current_time() - began < 10.0
