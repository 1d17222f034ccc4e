"""Tests of the examples: each runs and prints the expected lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = {
    "one_run": ["src/retinue/guards/loop.py:", "answered by offline-rules", "session: "],
    "in_parallel": ["✓ explorer: ", "✓ reviewer: ", "✓ tester: ", "✗ nobody: Unknown agent: nobody."],
    "a_chain": ["--- step 1: explorer", "--- step 2: reviewer", "--- step 3: implementer"],
    "watching": [" started", " → grep ", " ended after "],
    "an_agent_of_your_own": ["has 2 runs, the last about: And which describe settings?"],
    "testing_without_a_model": ["attempt 1 (first) failed: overloaded", "attempt 2 (retry) answered"],
}


def test_every_example_has_expected_output():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.process
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_prints_the_expected_lines(name, tmp_path):
    path = ROOT / "examples" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for expected in EXAMPLES[name]:
        assert expected in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_has_at_most_forty_lines(name):
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 40
