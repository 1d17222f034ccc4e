"""Programs are found on the PATH, never in the working directory."""

import os

import pytest

from retinue.engines.claude.installation import find_claude
from retinue.engines.pi.installation import find_pi
from retinue.support.programs import find_program


@pytest.mark.parametrize("entries", [("",), (".",), ("bin",), ("", ".", "bin")])
def test_programs_of_the_working_directory_are_not_taken_for_engines(entries, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name in ("pi", "claude", "bin/pi", "bin/claude"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("retinue.engines.claude.installation._find_bundled", lambda: None)
    environ = {"HOME": str(tmp_path), "PATH": os.pathsep.join(entries)}
    assert find_pi(environ) is None
    assert find_claude(environ) is None


def test_program_in_an_absolute_folder_is_found(tmp_path):
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program("tool", f".:{tmp_path}:") == str(program)
    assert find_program("tool", "") is None
