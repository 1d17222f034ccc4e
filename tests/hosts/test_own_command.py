"""Tests of the command that is written for hosts: it lasts under pip, pipx, uv tool and uvx."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.hosts import own_command as module
from retinue.hosts.own_command import own_command, temporary_problem

NO_PROGRAMS = {"PATH": "/nowhere"}


def make_script(folder: Path, name: str = "retinue") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch(0o755)
    return folder / name


@pytest.fixture
def plain_package(monkeypatch):
    """Make this the package of an index, without extras."""
    monkeypatch.setattr(module, "_requirement", lambda: "retinue")


def test_own_command_is_the_script_or_python(tmp_path):
    python = str(tmp_path / "python")
    assert own_command(python, NO_PROGRAMS) == (python, "-P", "-m", "retinue")
    for folder in ("Scripts", "."):
        script = make_script(tmp_path / folder)
        assert own_command(python, NO_PROGRAMS) == (str(script),)


@pytest.mark.parametrize("venv", ["share/uv/tools/retinue/bin", "share/pipx/venvs/retinue/bin"])
def test_link_on_the_path_is_written_for_uv_tool_and_pipx(tmp_path, venv):
    script = make_script(tmp_path / venv)
    shims = tmp_path / "bin"
    shims.mkdir()
    (shims / "retinue").symlink_to(script)
    environ = {"PATH": str(shims)}
    assert own_command(str(script.with_name("python")), environ) == (str(shims / "retinue"),)
    assert own_command(str(script.with_name("python")), NO_PROGRAMS) == (str(script),)


def test_script_of_another_installation_on_the_path_is_not_written(tmp_path):
    ours, other = make_script(tmp_path / "ours"), make_script(tmp_path / "other")
    assert own_command(str(ours.with_name("python")), {"PATH": str(other.parent)}) == (str(ours),)


UVX_FOLDERS = [
    ".cache/uv/archive-v0/A5Mwl/bin",
    ".cache/uv/environments-v2/x/bin",
    "AppData/Local/uv/cache/archive-v0/A/bin",
]


@pytest.mark.parametrize("folder", UVX_FOLDERS)
def test_uvx_itself_is_written_for_an_environment_in_its_cache(tmp_path, plain_package, folder):
    python = str(make_script(tmp_path / folder).with_name("python"))
    uvx = make_script(tmp_path / "uv-bin", "uvx")
    for environ in ({"PATH": str(uvx.parent)}, {**NO_PROGRAMS, "UV": str(uvx.with_name("uv"))}):
        assert own_command(python, environ) == (str(uvx), "retinue")
        assert temporary_problem(python, environ) is None


def test_uvx_gets_the_source_and_the_extras_of_the_package(tmp_path, monkeypatch):
    python = str(make_script(tmp_path / ".cache/uv/archive-v0/x/bin").with_name("python"))
    uvx = make_script(tmp_path / "bin", "uvx")
    monkeypatch.setattr(module, "_direct_address", lambda: "file:///tmp/retinue.whl")
    monkeypatch.setattr(module, "_EXTRAS", {"claude": "json", "providers": "no_such_module"})
    assert own_command(python, {"PATH": str(uvx.parent)}) == (
        str(uvx),
        "--from",
        "retinue[claude] @ file:///tmp/retinue.whl",
        "retinue",
    )


@pytest.mark.parametrize("folder", [".local/share/pipx/.cache/ab12/bin", ".cache/pipx/ab12/bin"])
def test_pipx_run_is_written_for_its_temporary_environment(tmp_path, plain_package, folder):
    python = str(make_script(tmp_path / folder).with_name("python"))
    pipx = make_script(tmp_path / "bin", "pipx")
    assert own_command(python, {"PATH": str(pipx.parent)}) == (str(pipx), "run", "retinue")


@pytest.mark.parametrize(
    ("folder", "advice"),
    [(".cache/uv/archive-v0/x/bin", "uv tool install retinue"), (".cache/pipx/x/bin", "pipx install retinue")],
)
def test_temporary_environment_without_its_program_is_a_problem_with_what_to_do(tmp_path, folder, advice):
    python = str(tmp_path / folder / "python")
    assert (temporary_problem(python, NO_PROGRAMS) or "").endswith(f"Install Retinue first: {advice}")


def test_lasting_installation_is_no_problem(tmp_path):
    assert (
        temporary_problem(str(tmp_path / "share" / "uv" / "tools" / "retinue" / "bin" / "python"), NO_PROGRAMS)
        is None
    )
