"""No secret of any kind reaches an extension of a host."""

import json

import pytest
from tests.support.secret_examples import find_leaks, make_leaking_text

pytestmark = pytest.mark.process

SEED = 21
LEAK = make_leaking_text(SEED)
SCRIPT = [{"call": "bash", "args": {"command": LEAK}, "returns": LEAK}, {"say": LEAK, "deltas": 500}]


@pytest.mark.parametrize(
    ("toolset", "tool", "arguments"),
    [
        ("single", "subagent", {"agent": "explorer", "task": "look"}),
        ("fanout", "delegate_to_subagents", {"tasks": [{"name": "n", "prompt": "p"}]}),
    ],
)
def test_no_message_to_an_extension_has_a_secret_of_an_agent(extension, toolset, tool, arguments):
    bridge = extension(toolset=toolset, script=SCRIPT)
    bridge.call("a", tool, arguments, partials=True)
    messages = json.dumps(bridge.receive_until("result"))
    assert "REDACTED" in messages
    assert find_leaks(SEED, messages) == []
