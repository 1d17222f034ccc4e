"""Tool lists: names, schemas, annotations and token cost."""

from __future__ import annotations

import json

import jsonschema
import pytest
from tests.servers.mcp.tokenizers import real_tokens
from tests.support.retinue_factory import stage

from retinue.engines.scripted import reply
from retinue.servers.lifecycle import ServerStartError
from retinue.servers.mcp import toolset_server
from retinue.servers.mcp.background import BackgroundToolset
from retinue.servers.mcp.toolset_server import OUTPUT_SCHEMAS

MAX_TOKENS = 1500
DEFAULT = [
    "subagent",
    "delegate_to_subagents",
    "get_subagent_output",
    "get_subagent_session",
    "list_subagent_profiles",
]
BACKGROUND = ["subagent_start", "subagent_status", "subagent_wait", "subagent_steer", "subagent_cancel"]


def to_json(tools):
    return [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]


async def test_tools_of_the_mounted_toolsets_are_listed(connect):
    async with connect(reply("done")) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == DEFAULT
    async with connect(reply("done"), surfaces=("sticky", "nested"), background=True) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["subagent", "spawn_subagent", "agent_info", *BACKGROUND]


@pytest.mark.parametrize("surfaces", [("single", "fanout"), ("sticky", "nested")])
async def test_every_tool_has_a_description_schemas_and_annotations(connect, surfaces):
    async with connect(reply("done"), surfaces=surfaces, background=True) as client:
        tools = to_json((await client.list_tools()).tools)
    for tool in tools:
        assert tool["description"]
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            assert schema["type"] == "object"
            jsonschema.Draft202012Validator.check_schema(schema)
        assert set(tool["annotations"]) == {"readOnlyHint", "openWorldHint"}


async def test_query_tools_and_read_only_agents_are_marked_read_only(connect):
    async with connect(reply("done")) as client:
        hints = {tool.name: tool.annotations.read_only_hint for tool in (await client.list_tools()).tools}
    assert hints == {**dict.fromkeys(DEFAULT, True), "delegate_to_subagents": False}
    async with connect(reply("done"), settings={"allow_write": True}) as client:
        hints = {tool.name: tool.annotations.read_only_hint for tool in (await client.list_tools()).tools}
    assert hints["subagent"] is False


@pytest.mark.real
@pytest.mark.process
async def test_default_tool_list_costs_few_tokens(connect):
    async with connect(reply("done")) as client:
        listed = to_json((await client.list_tools()).tools)
    (cost,) = real_tokens([json.dumps(listed, separators=(",", ":"))])
    assert cost <= MAX_TOKENS


async def test_no_tools_are_listed_when_dispatching_is_disabled(connect):
    async with connect(reply("done"), background=True, settings={"enabled": False}) as client:
        assert (await client.list_tools()).tools == []


async def test_server_sends_its_name_and_instructions(connect):
    async with connect(reply("done")) as client:
        assert client.server_info.name == "retinue"
        assert client.instructions == "Be kind."


async def test_toolsets_with_equal_tool_names_cannot_be_mounted_together(workplace):
    async with stage(workplace, reply("done")) as retinue:
        with pytest.raises(ServerStartError) as clash:
            async with toolset_server.open_tool_server(retinue, ["single", "sticky"], roots=[]):
                pass
    assert str(clash.value) == "The toolsets single and sticky both have a tool subagent: choose one of the toolsets."


async def test_every_tool_has_an_output_schema(workplace):
    async with stage(workplace, reply("done")) as retinue:
        families = [retinue.toolset(name) for name in retinue.toolsets]
        known = {(family.name, tool) for family in families for tool in family.handlers}
    assert known | {(BackgroundToolset.name, tool) for tool in BACKGROUND} == OUTPUT_SCHEMAS.keys()
