"""The command that hosts get, under the real uv, uvx and pipx: it starts Retinue after the manager has cleaned up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.hosts.test_programs import REQUIRED

from retinue import __version__

pytestmark = [pytest.mark.process, pytest.mark.real]

ROOT = Path(__file__).parents[2]
REQUIREMENTS = Path(__file__).parent / "programs" / "requirements.txt"
PATIENCE = 300.0
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*command: str | Path, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, env=environ, cwd=cwd, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def managers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the programs of uv and pipx."""
    if not os.environ.get(REQUIRED):
        pytest.skip("uv and pipx are not here: `make test-hosts` installs them from a package registry.")
    folder = tmp_path_factory.mktemp("managers")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", *PIP, "install", "-r", REQUIREMENTS)
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, *PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    return next(folder.glob("retinue-*.whl"))


@pytest.fixture
def environ(managers, tmp_path) -> dict[str, str]:
    """Return the environment of an empty home that uses the registries of this one."""
    names = {"PIP_CONFIG_FILE": ".config/pip/pip.conf", "UV_CONFIG_FILE": ".config/uv/uv.toml"}
    files = {name: str(path) for name, file in names.items() if (path := Path.home() / file).is_file()}
    shims = tmp_path / ".local" / "bin"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RETINUE_", "XDG_", "VIRTUAL"))}
    search_path = os.pathsep.join([str(shims), str(managers), "/usr/bin", "/bin"])
    return {**kept, **files, "HOME": str(tmp_path), "PATH": search_path, "UV_PYTHON": sys.executable}


def read_commands(home: Path) -> list[list[str]]:
    """Return the commands that were written for Claude Code and Codex."""
    claude = json.loads((home / ".claude.json").read_text())["mcpServers"]["retinue"]
    codex = tomllib.loads((home / ".codex" / "config.toml").read_text())["mcp_servers"]["retinue"]
    return [[each["command"], *each["args"]] for each in (claude, codex)]


def install_in_hosts(retinue: Sequence[str | Path], environ: Mapping[str, str], home: Path) -> list[str]:
    """Install Retinue in both hosts and return the command they have, without `mcp`; both have the same."""
    for host in ("claude", "codex"):
        run(*retinue, "install", host, "--dry-run", environ=environ, cwd=home)
        run(*retinue, "install", host, "--yes", environ=environ, cwd=home)
    claude, codex = read_commands(home)
    assert (claude, claude[-1]) == (codex, "mcp")
    return claude[:-1]


def assert_starts(command: Sequence[str], environ: Mapping[str, str]) -> None:
    assert __version__ in run(*command, "--version", environ=environ)


def test_command_of_uv_tool_starts_after_an_update(environ, wheel, tmp_path):
    run("uv", "tool", "install", wheel, environ=environ)
    shim = tmp_path / ".local" / "bin" / "retinue"
    command = install_in_hosts([shim], environ, tmp_path)
    assert command == [str(shim)]
    run("uv", "tool", "install", "--reinstall", wheel, environ=environ)
    assert_starts(command, environ)


def test_command_of_uvx_starts_after_its_cache_was_cleaned(environ, wheel, managers, tmp_path):
    environ["UV_CACHE_DIR"] = str(tmp_path / ".cache" / "uv")
    command = install_in_hosts(["uvx", "--from", wheel, "retinue"], environ, tmp_path)
    assert command[:2] == [str(managers / "uvx"), "--from"]
    assert str(wheel) in command[2]
    run("uv", "cache", "clean", environ=environ)
    assert_starts(command, environ)


def test_command_of_pipx_starts_after_an_update(environ, wheel, tmp_path):
    run("pipx", "install", wheel, environ=environ)
    shim = tmp_path / ".local" / "bin" / "retinue"
    command = install_in_hosts([shim], environ, tmp_path)
    assert command == [str(shim)]
    run("pipx", "install", "--force", wheel, environ=environ)
    assert_starts(command, environ)
