"""A program that cannot be started: which, why, and what to do."""

import os
from pathlib import Path

import pytest
from tests.support.processes import nothing_open_is_left, python, read_all

from retinue.engines.base import EngineError
from retinue.engines.process.child import ChildCommand, open_child
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor
from retinue.model.errors import ErrorCode, Failure

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]


async def failure(*argv: str, cwd: str = "/", **environ: str) -> Failure:
    """Why it does not start, the same with and without control groups."""
    failures = []
    with nothing_open_is_left():
        for kind in (ContainmentKind.CGROUP, ContainmentKind.MARKER):
            async with ProcessSupervisor(max_containment=kind) as keeper:
                command = ChildCommand(argv=argv, cwd=cwd, environ={"PATH": os.environ["PATH"], **environ})
                with pytest.raises(EngineError) as caught:
                    async with open_child(command, keeper):
                        pytest.fail("it started")
                failures.append(caught.value.failure)
    assert failures[0] == failures[1]
    assert failures[0].code is ErrorCode.SPAWN_FAILED
    return failures[0]


async def test_a_missing_program():
    assert await failure("no-such-program") == Failure(
        ErrorCode.SPAWN_FAILED,
        "Could not start no-such-program: No such file or directory (ENOENT). Nothing was run. "
        "Install it, or name it by its full path.",
        "spawn_failed",
    )


async def test_a_missing_folder_is_told_from_a_missing_program(tmp_path):
    gone = str(tmp_path / "gone")
    assert await failure("true", cwd=gone) == Failure(
        ErrorCode.SPAWN_FAILED,
        f"Could not start true in {gone}: No such file or directory (ENOENT). Nothing was run. "
        "Choose a folder that exists.",
        "cwd_missing",
    )


async def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "file"
    file.touch()
    found = await failure("true", cwd=str(file))
    assert found.reason == "cwd_missing"
    assert "ENOTDIR" in found.message


def script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def test_a_file_that_is_not_executable(tmp_path):
    found = await failure(script(tmp_path / "tool", "#!/bin/sh\n", 0o644))
    assert "Permission denied (EACCES)" in found.message
    assert "Make it an executable file" in found.message


async def test_a_script_whose_interpreter_is_missing(tmp_path):
    found = await failure(script(tmp_path / "tool", "#!/no/such/interpreter\n"))
    assert "(ENOENT)" in found.message
    assert "The file is there" in found.message


async def test_a_file_that_is_no_program(tmp_path):
    found = await failure(script(tmp_path / "tool", "echo hello\n"))
    assert "(ENOEXEC)" in found.message


async def test_arguments_that_are_too_long():
    found = await failure("true", "x" * 2**20)
    assert "(E2BIG)" in found.message
    assert "shorter task" in found.message


async def test_a_nul_in_an_argument():
    found = await failure("true", "a\0b")
    assert "NUL" in found.message


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
async def test_no_more_processes_are_allowed(tmp_path):
    program = Path(__file__).with_name("process_limit_program.py")
    async with ProcessSupervisor() as keeper, open_child(python(program), keeper) as process:
        said = (await read_all(process)).decode()
        assert "(EAGAIN)" in said, process.stderr_tail
        assert "run fewer agents at once" in said
