"""The documented examples of the `single` tool."""

from __future__ import annotations

import json

import pytest

from retinue.engines.scripted import call, reply
from retinue.model.results import Usage
from retinue.sessions.jsonl import JsonlStore

INPUTS = [
    {"agent": "explorer", "task": "Find where authentication middleware is implemented"},
    {"agent": "reviewer", "task": "Review the LSP tool error handling and report risks only"},
    {"agent": "researcher", "task": "Find the current official API docs for TypeBox schema options"},
]

SUCCESS = r"""
{
  "content": [
    {
      "type": "text",
      "text": "## Findings\n- src/server/auth.ts contains the middleware."
    }
  ],
  "details": {
    "mode": "single",
    "runId": "abc12345",
    "results": [
      {
        "agent": "explorer",
        "task": "Find auth code",
        "exitCode": 0,
        "usage": {
          "input": 1000,
          "output": 500,
          "cacheRead": 0,
          "cacheWrite": 0,
          "cost": 0.01,
          "turns": 3
        },
        "sessionFile": "/path/to/session.jsonl",
        "output": "## Findings\n- src/server/auth.ts contains the middleware."
      }
    ]
  }
}
"""

FAILURE = """
{
  "content": [
    {
      "type": "text",
      "text": "Unknown agent: invalid-agent. Available agents: explorer, researcher, reviewer, implementer, tester"
    }
  ],
  "details": {
    "mode": "single",
    "results": [],
    "error": {
      "code": "UNKNOWN_AGENT",
      "message": "Unknown agent: invalid-agent. Available agents: explorer, researcher, reviewer, implementer, tester"
    }
  }
}
"""


@pytest.fixture
def anyio_backend():
    return "asyncio"  # the store writes files in threads, which a virtual clock would overtake


@pytest.mark.parametrize("arguments", INPUTS, ids=lambda arguments: arguments["agent"])
async def test_documented_input_examples_run(open_host, arguments):
    async with open_host(reply("{agent}: {task}")) as host:
        answer = (await host.use(arguments)).as_json()
    assert answer["content"][0]["text"] == "{agent}: {task}".format(**arguments)
    assert answer["details"]["results"][0]["exitCode"] == 0


async def test_documented_success_example_is_reproduced(open_host, tmp_path):
    expected = json.loads(SUCCESS)
    (found,) = expected["details"]["results"]
    look = [call("grep", pattern="auth", returns="src/server/auth.ts:1"), call("read", path="src/server/auth.ts")]
    script = [*look, reply(found["output"], usage=Usage(input=1000, output=500, cost=0.01))]
    async with (
        JsonlStore(tmp_path / "state", new_id=lambda: "abc12345" * 4) as store,
        open_host(*script, store=store) as host,
    ):
        answer = await host.ask("explorer", "Find auth code")
    (result,) = answer["details"]["results"]
    found["sessionFile"] = result["sessionFile"]
    assert [item["type"] for item in result.pop("displayItems")] == ["toolCall", "toolCall", "text"]
    assert answer == expected


async def test_documented_failure_example_is_reproduced(open_host):
    async with open_host() as host:
        assert await host.ask("invalid-agent") == json.loads(FAILURE)
