"""No secret of any kind reaches stdout, stderr, a stored file, a list, a transcript or an export."""

import json
import os
import subprocess
import sys

import pytest
from tests.support.secret_examples import find_leaks, make_leaking_text

SEED = 18
LEAK = make_leaking_text(SEED)
STEPS = {
    "answer": [
        {"call": "bash", "args": {"command": LEAK}, "returns": LEAK},
        {"call": "read", "args": {"path": LEAK}, "returns": LEAK, "isError": True},
        {"say": LEAK, "deltas": 500},
    ],
    "failure": [{"call": "read", "args": {}, "returns": LEAK}, {"fail": f"401: {LEAK}"}],
}


@pytest.fixture
def retinue(tmp_path):
    """Return `retinue(*argv)`, which runs the command and returns its stdout and stderr."""

    def run(*argv):
        environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "RETINUE_SCRIPT": str(tmp_path / "script.json")}
        command = [sys.executable, "-m", "retinue", *argv]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, timeout=60, check=False)
        return {f"stdout of {argv}": done.stdout, f"stderr of {argv}": done.stderr}

    return run


@pytest.mark.parametrize("kind", STEPS)
def test_no_output_of_a_command_has_a_secret_of_an_agent(retinue, tmp_path, kind):
    (tmp_path / "script.json").write_text(json.dumps({"steps": STEPS[kind]}))
    run = ("run", "explorer", "look", "--engine", "scripted")
    outputs = {
        **retinue(*run),
        **retinue(*run, "--json"),
        **retinue("sessions", "list", "--json"),
        **retinue("sessions", "show", "last"),
        **retinue("sessions", "show", "last", "--json"),
        **retinue("sessions", "show", "last", "--events"),
        **retinue("sessions", "show", "last", "--html", "-"),
        **{str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".json"},
    }
    assert sum(b"REDACTED" in output for output in outputs.values()) >= 6
    assert {place: leaks for place, output in outputs.items() if (leaks := find_leaks(SEED, output))} == {}


def test_search_for_leaks_finds_every_secret():
    assert len(find_leaks(SEED, LEAK)) == len(find_leaks(SEED, json.dumps({"text": LEAK}))) > 250
