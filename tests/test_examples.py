"""Tests of the examples: each runs and prints the expected lines."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from tests.support.model_server import ModelServer, ScriptedTurn

ROOT = Path(__file__).parents[1]
EXAMPLES = {
    "one_run": ["src/retinue/guards/loop.py:", "answered by offline-rules", "session: "],
    "in_parallel": ["✓ explorer: ", "✓ reviewer: ", "✓ tester: ", "✗ nobody: Unknown agent: nobody."],
    "a_chain": ["--- step 1: explorer", "--- step 2: reviewer", "--- step 3: implementer"],
    "watching": [" started", " → grep ", " ended after "],
    "an_agent_of_your_own": ["has 2 runs, the last about: And which describe settings?"],
    "with_a_key": ["Set the key of a provider first, e.g. export ANTHROPIC_API_KEY=…"],
    "testing_without_a_model": ["attempt 1 (first) failed: overloaded", "attempt 2 (retry) answered"],
}


def test_every_example_has_expected_output():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.process
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_prints_the_expected_lines(name, tmp_path):
    printed = run_example(name, HOME=str(tmp_path))
    for expected in EXAMPLES[name]:
        assert expected in printed


@pytest.mark.process
def test_example_with_a_key_prints_the_answer_of_the_model_and_its_cost(tmp_path):
    serving = ModelServer([ScriptedTurn(text="In src/retinue/guards/loop.py.")])
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving) as server:
        key = {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": f"{server.url}/v1"}
        printed = run_example("with_a_key", HOME=str(tmp_path), **key)
    assert "In src/retinue/guards/loop.py.\n\nanswered by openai/gpt-6.1-terra in " in printed
    assert re.search(r"tokens: \d+, cost: \$0\.\d{4}$", printed, re.MULTILINE)


def run_example(name, **environ):
    """Run an example without errors and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8", **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_has_at_most_forty_lines(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 40
