"""No secret of any kind reaches an MCP client."""

import pytest
from tests.support.secret_examples import find_leaks, make_leaking_text

from retinue.engines.scripted import call, reply

SEED = 20
LEAK = make_leaking_text(SEED)


@pytest.mark.parametrize(
    ("surface", "tool", "arguments"),
    [
        ("single", "subagent", {"agent": "explorer", "task": "look"}),
        ("fanout", "delegate_to_subagents", {"tasks": [{"name": "a", "prompt": "b"}]}),
        ("nested", "spawn_subagent", {"agent": "explorer", "task": "look"}),
    ],
)
async def test_no_result_of_a_tool_has_a_secret_of_an_agent(connect, surface, tool, arguments):
    async with connect(call("bash", command=LEAK, returns=LEAK), reply(LEAK), surfaces=(surface,)) as client:
        result = await client.call_tool(tool, arguments)
    shown = result.model_dump_json()
    assert "REDACTED" in shown
    assert find_leaks(SEED, shown) == []
