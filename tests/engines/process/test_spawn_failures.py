"""A program that cannot be started: the failure names it, the reason and what to do."""

import os
from pathlib import Path

import anyio
import pytest
from tests.support.processes import assert_nothing_left_open, python, read_all, shell, use_up_descriptors

from retinue.engines.base import EngineError
from retinue.engines.process.child import open_child
from retinue.engines.process.command import ChildCommand, StdinMode
from retinue.engines.process.supervisor import ContainmentKind, ProcessSupervisor
from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import ProcessEnd

pytestmark = [pytest.mark.process, pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux")]


async def spawn_failure(*argv: str, cwd: str = "/", **environ: str) -> Failure:
    """Return the spawn failure, which is the same with and without control groups."""
    failures = []
    with assert_nothing_left_open():
        for kind in (ContainmentKind.CGROUP, ContainmentKind.SUBREAPER):
            async with ProcessSupervisor(max_containment=kind) as supervisor:
                command = ChildCommand(argv=argv, cwd=cwd, environ={"PATH": os.environ["PATH"], **environ})
                with pytest.raises(EngineError) as caught:
                    async with open_child(command, supervisor):
                        pytest.fail("it started")
                failures.append(caught.value.failure)
    assert failures[0] == failures[1]
    assert failures[0].code is ErrorCode.SPAWN_FAILED
    return failures[0]


async def test_missing_program_fails_with_spawn_failed():
    assert await spawn_failure("no-such-program") == Failure(
        ErrorCode.SPAWN_FAILED,
        "Could not start no-such-program: No such file or directory (ENOENT). Nothing was run. "
        "Install it, or give its full path.",
        "spawn_failed",
    )


async def test_missing_cwd_fails_with_cwd_missing(tmp_path):
    gone = str(tmp_path / "gone")
    assert await spawn_failure("true", cwd=gone) == Failure(
        ErrorCode.SPAWN_FAILED,
        f"Could not start true in {gone}: No such file or directory (ENOENT). Nothing was run. "
        "Choose a folder that exists.",
        "cwd_missing",
    )


async def test_file_as_cwd_fails_with_cwd_missing(tmp_path):
    file = tmp_path / "file"
    file.touch()
    found = await spawn_failure("true", cwd=str(file))
    assert found.reason == "cwd_missing"
    assert "ENOTDIR" in found.message


def write_script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def test_program_without_execute_permission_fails_with_eacces(tmp_path):
    found = await spawn_failure(write_script(tmp_path / "tool", "#!/bin/sh\n", 0o644))
    assert "Permission denied (EACCES)" in found.message
    assert "Make it an executable file" in found.message


async def test_script_without_its_interpreter_fails_with_enoent(tmp_path):
    found = await spawn_failure(write_script(tmp_path / "tool", "#!/no/such/interpreter\n"))
    assert "(ENOENT)" in found.message
    assert "The file exists" in found.message


async def test_text_file_as_program_fails_with_enoexec(tmp_path):
    found = await spawn_failure(write_script(tmp_path / "tool", "echo hello\n"))
    assert "(ENOEXEC)" in found.message


async def test_too_long_arguments_fail_with_e2big():
    found = await spawn_failure("true", "x" * 2**20)
    assert "(E2BIG)" in found.message
    assert "shorten the task" in found.message


async def test_nul_in_an_argument_fails_with_advice():
    found = await spawn_failure("true", "a\0b")
    assert "NUL" in found.message


async def test_sandbox_that_cannot_be_applied_fails_with_sandbox():
    command = ChildCommand(
        argv=("true",), cwd="/", environ={"PATH": os.environ["PATH"]}, sandbox={"proxy": {"port": ""}}
    )
    async with ProcessSupervisor() as supervisor:
        with pytest.raises(EngineError) as caught:
            async with open_child(command, supervisor):
                pytest.fail("it started")
    assert (caught.value.failure.code, caught.value.failure.reason) == (ErrorCode.SPAWN_FAILED, "sandbox")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
async def test_process_limit_fails_with_eagain(tmp_path):
    program = Path(__file__).with_name("process_limit_program.py")
    async with ProcessSupervisor() as supervisor, open_child(python(program), supervisor) as process:
        printed = (await read_all(process)).decode()
        assert "(EAGAIN)" in printed, process.stderr_tail
        assert "run fewer agents at once" in printed


async def test_start_without_free_descriptors_waits_for_a_sibling_to_end():
    ends = []

    async def start(supervisor: ProcessSupervisor) -> None:
        async with open_child(shell("exit 3"), supervisor) as process:
            ends.append(await process.wait())

    async with (
        ProcessSupervisor() as supervisor,
        anyio.create_task_group() as group,
        open_child(shell("read x", stdin=StdinMode.PIPE), supervisor) as sibling,
    ):
        held = use_up_descriptors()
        group.start_soon(start, supervisor)
        await anyio.wait_all_tasks_blocked()
        assert ends == []
        for descriptor in held:
            os.close(descriptor)
        sibling.close_stdin()
        await sibling.wait()
    assert ends == [ProcessEnd(code=3)]


async def test_start_without_free_descriptors_and_siblings_fails_with_emfile():
    async with ProcessSupervisor() as supervisor:
        held = use_up_descriptors()
        with pytest.raises(EngineError) as caught:
            async with open_child(shell("true"), supervisor):
                pytest.fail("it started")
        for descriptor in held:
            os.close(descriptor)
    assert caught.value.failure == Failure(
        ErrorCode.SPAWN_FAILED,
        "Could not start sh: Too many open files (EMFILE). Nothing was run. Too many files are open in this process: "
        "run fewer agents at once, or raise `ulimit -n`.",
        "spawn_failed",
    )
