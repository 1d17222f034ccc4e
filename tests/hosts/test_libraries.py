"""MCP clients of agent libraries with the settings of docs/mcp.md: an agent may take longer than their timeouts."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.hosts.test_in_package_managers import PIP, run
from tests.hosts.test_programs import REQUIRED

pytestmark = [pytest.mark.process, pytest.mark.real]

LIBRARIES = Path(__file__).parent / "programs" / "libraries.txt"
PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
PATIENCE = 120.0
SLOW = {"steps": [{"wait": 6}, {"say": "A slow answer."}]}
"""Longer than the five seconds that openai-agents waits by default."""

Play = Callable[[str], str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment with the libraries."""
    if not os.environ.get(REQUIRED):
        pytest.skip("The libraries are not here: `make test-hosts` installs them from a package registry.")
    folder = tmp_path_factory.mktemp("libraries")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", *PIP, "install", "-r", LIBRARIES)
    return folder / "bin" / "python"


@pytest.fixture
def play(python, tmp_path) -> Play:
    """Return a function that runs a program with a `retinue` on its PATH whose agents answer slowly."""
    # The libraries pass no variables of ours on.
    wrapper = tmp_path / "bin" / "retinue"
    wrapper.parent.mkdir()
    script = shlex.quote(json.dumps(SLOW))
    wrapper.write_text(
        f'#!/bin/sh\nRETINUE_SCRIPT={script} RETINUE_ENGINE=scripted exec {sys.executable} -m retinue "$@"\n'
    )
    wrapper.chmod(0o755)
    environ = {"HOME": str(tmp_path), "PATH": f"{wrapper.parent}{os.pathsep}{os.defpath}"}

    def play_program(code: str) -> str:
        command = [python, "-c", code]
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return done.stdout if done.returncode == 0 else done.stderr

    return play_program


def example(library: str) -> str:
    """Return the program of the page for a library."""
    program: str
    (program,) = re.findall(rf"^{library}:\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return program


def test_openai_agents_gives_up_on_an_agent_without_the_setting_of_the_page(play):
    program = example("openai-agents").replace(", client_session_timeout_seconds=3600", "")
    assert "timed out" in play(program)


@pytest.mark.parametrize("library", ["openai-agents", "fastmcp", "pydantic-ai"])
def test_library_reads_a_slow_answer_with_the_setting_of_the_page(play, library):
    assert "A slow answer." in play(example(library))


def test_progress_reaches_a_client_of_fastmcp_before_the_answer(play):
    lines = play(example("fastmcp")).splitlines()
    assert lines[0] == "explorer: started"
    assert lines[-1] == "A slow answer."
