"""Each program itself says that it sees us, once we are installed in it, and that it does not, once we are not.

Claude Code comes with the development requirements; `make test-hosts` installs the others, which are large.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import Struct
from tests.hosts.install import FOLDER, PROGRAMS
from tests.hosts.test_installing import sample_config
from tests.real.install import MissingError, node_and_npm, skip

from retinue.engines.claude.installation import find_claude
from retinue.hosts.hosts import HOSTS, HostMachine

pytestmark = [pytest.mark.process, pytest.mark.real]

TOOLS = Path(__file__).parents[2] / ".tools"
MODULES = TOOLS / FOLDER / "node_modules"
PATIENCE = 120.0
REQUIRED = "REQUIRE_HOSTS"
"""Set by `make test-hosts`: then nothing is skipped."""


class HostProgram(Struct, frozen=True, kw_only=True):
    """The program of a host, and its output about a server it can use."""

    name: str
    file: str
    """Path of the program below the folder of modules."""
    sees: str
    of_project: str | None = None
    """Its output about a server of a project; None if it is the same."""
    environ: Mapping[str, str] = {}
    needs_node: bool = False


PROGRAMS_BY_NAME = {
    program.name: program
    for program in (
        HostProgram(
            name="claude",
            file="@anthropic-ai/claude-code-*/claude",
            sees=r"retinue: \S+ mcp - ✔ Connected",
            of_project=r"retinue: \S+ mcp - ⏸ Pending approval",
            environ={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
        ),
        HostProgram(
            name="codex",
            file="@openai/codex/bin/codex.js",
            sees=r"retinue +\S+ +mcp +HTTPS_PROXY=\*+, HTTP_PROXY=\*+, NO_PROXY=\*+ +- +enabled",
            needs_node=True,
        ),
        HostProgram(
            name="gemini",
            file="@google/gemini-cli/bundle/gemini.js",
            sees=r"✓ retinue: \S+ mcp \(stdio\) - Connected",
            environ={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
            needs_node=True,
        ),
        HostProgram(
            name="opencode",
            file="opencode-*/bin/opencode",
            sees=r"✓ retinue .*connected",
            environ={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", "NO_COLOR": "1"},
        ),
    )
}
NOWHERE = {"HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
"""Keeps requests of the programs on this machine."""


@pytest.fixture(params=PROGRAMS_BY_NAME)
def program(request) -> HostProgram:
    return PROGRAMS_BY_NAME[request.param]


def command(program: HostProgram) -> list[str]:
    found = sorted(MODULES.glob(program.file)) if PROGRAMS.is_in(TOOLS) else []
    if not found and program.name == "claude" and (bundled := find_claude({"PATH": ""})):
        return [str(bundled)]
    if not found:
        sentence = f"{program.name} is not here: `make test-hosts` installs it from a package registry."
        pytest.fail(sentence) if os.environ.get(REQUIRED) else pytest.skip(sentence)
    try:
        return [str(node_and_npm()[0]), str(found[0])] if program.needs_node else [str(found[0])]
    except MissingError as error:
        skip(str(error))


class HostHome:
    """A home folder with a project for one program."""

    def __init__(self, program: HostProgram, place: Path) -> None:
        self.command = command(program)
        self.name = program.name
        self.home, self.project = place / "home", place / "home" / "project"
        self.project.mkdir(parents=True)
        bin_ = self.home / "bin"
        bin_.mkdir()
        (bin_ / "npx").write_text("#!/bin/sh\nexit 1\n")  # of the other server in a recorded file: it is not fetched
        (bin_ / "npx").chmod(0o755)
        path = os.pathsep.join([str(bin_), str(Path(self.command[0]).parent), "/usr/local/bin", "/usr/bin", "/bin"])
        own = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "TERM": "dumb"}
        self.environ = {**own, **NOWHERE, **program.environ}
        self.file = HOSTS[program.name].config_path(HostMachine(self.environ), None)

    def list_servers(self) -> str:
        """Return the servers the program lists."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self._run(*self.command, "mcp", "list"))

    def retinue(self, verb: str, *more: str) -> None:
        self._run(sys.executable, "-m", "retinue", verb, self.name, "--yes", *more)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=self.project, env=self.environ, capture_output=True, timeout=PATIENCE, check=True
        )
        # The path of this home has the name of the test, in which a test would find what it looks for.
        return (done.stdout + done.stderr).decode().replace(str(self.home), "~")


def test_program_lists_retinue_while_it_is_installed(program, tmp_path):
    place = HostHome(program, tmp_path)
    assert "retinue" not in place.list_servers()
    place.retinue("install")
    assert re.search(program.sees, said := place.list_servers()), said
    place.retinue("uninstall")
    assert "retinue" not in place.list_servers()


def test_program_lists_retinue_in_a_trusted_project(program, tmp_path):
    place = HostHome(program, tmp_path)
    if program.name == "codex":
        place.file.parent.mkdir()
        place.file.write_text(f'[projects."{place.project}"]\ntrust_level = "trusted"\n')
    place.retinue("install", "--project")
    assert re.search(program.of_project or program.sees, said := place.list_servers()), said
    place.retinue("uninstall", "--project")
    assert "retinue" not in place.list_servers()


@pytest.mark.parametrize("program", ["gemini", "opencode"], indirect=True)
def test_program_lists_retinue_in_a_file_with_comments(program, tmp_path):
    place = HostHome(program, tmp_path)
    place.file.parent.mkdir(parents=True, exist_ok=True)
    place.file.write_text('{\n  // mine\n  "theme": "dark" /* for now */\n}\n')
    place.list_servers()  # whatever it writes into its own file it has written now
    before = place.file.read_bytes()
    place.retinue("install")
    assert re.search(program.sees, said := place.list_servers()), said
    assert b"// mine" in place.file.read_bytes()
    place.retinue("uninstall")
    assert place.file.read_bytes() == before


def test_file_read_by_the_program_is_restored_byte_for_byte(program, tmp_path):
    place = HostHome(program, tmp_path)
    place.file.parent.mkdir(parents=True, exist_ok=True)
    place.file.write_bytes(sample_config(HOSTS[program.name]))
    place.list_servers()  # whatever it writes into its own file it has written now
    before = place.file.read_bytes()
    place.retinue("install")
    place.list_servers()
    place.retinue("uninstall")
    assert place.file.read_bytes() == before
