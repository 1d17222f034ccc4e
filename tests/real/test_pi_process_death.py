"""Death of a real pi process during a run: the answer of every toolset names exit code and reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.real.programs import pi_program
from tests.support.model_server import script64

pytestmark = [pytest.mark.real, pytest.mark.process, pytest.mark.timeout(90)]

EXIT = 'console.error("the extension gives up"); process.exit(3);'
THROW = 'setImmediate(() => { throw new Error("boom in the extension"); }); await new Promise(() => {});'
ABORT = 'console.error("FATAL ERROR: JavaScript heap out of memory"); process.abort();'

TASK = script64([{"tool": "read", "args": {"path": "a.txt"}}, {"text": "never"}])
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "single": ("subagent", {"agent": "explorer", "task": TASK}),
    "sticky": ("subagent", {"agent": "scout", "task": TASK}),
    "fanout": ("delegate_to_subagents", {"tasks": [{"name": "a", "prompt": TASK}]}),
    "nested": ("spawn_subagent", {"agent": "scout", "task": TASK}),
}


@pytest.fixture
def call_on_crashing_pi(pi, server, make_caller, tmp_path):
    """Make a call of a toolset on a pi with an extension that runs this code at its first tool call."""
    call = make_caller(pi_program(pi, tmp_path / "home", server.url))

    async def make_call(code: str, toolset: str, event: str = 'pi.on("tool_call", async () => { %s });'):
        extensions = tmp_path / "home" / "agent" / "extensions"
        extensions.mkdir(parents=True)
        (extensions / "dying.js").write_text(f"export default async (pi) => {{ {event % code} }};")
        tool, arguments = CALLS[toolset]
        status, (answer,) = await call(arguments, toolset, tool=tool)
        return status, answer

    return make_call


@pytest.mark.parametrize(
    ("pi", "toolset"), [("pi_0_87", "single"), *(("pi_1_5", toolset) for toolset in CALLS)], indirect=["pi"]
)
async def test_exit_code_and_stderr_are_in_the_answer_of_every_toolset(call_on_crashing_pi, toolset, tmp_path):
    status, answer = await call_on_crashing_pi(EXIT, toolset)
    assert status != 0
    for shown in (answer["content"][0]["text"], json.dumps(answer["details"])):
        assert "ended with exit code 3" in shown
        assert "the extension gives up" in shown
    stored = "".join(file.read_text() for file in (tmp_path / "state").rglob("*.jsonl"))
    assert '"end":{"code":3,"stderr":"the extension gives up"}' in stored


@pytest.mark.parametrize(
    ("code", "how", "why"), [(THROW, "exit code", "boom in the extension"), (ABORT, "signal 6", "heap out of memory")]
)
async def test_crash_of_pi_is_named_with_the_end_of_its_stderr(call_on_crashing_pi, code, how, why):
    status, answer = await call_on_crashing_pi(code, "single")
    assert status != 0
    assert how in answer["details"]["error"]["message"]
    assert why in answer["details"]["error"]["message"]


async def test_pi_that_exits_at_its_start_is_a_spawn_failure_with_its_reason(call_on_crashing_pi):
    _, answer = await call_on_crashing_pi(EXIT, "fanout", event="%s")
    text = answer["content"][0]["text"]
    assert text.startswith(
        "✗ a: error — Failed to spawn sub-agent process: pi could not start: the extension gives up"
    )
