"""Tools of this process in a sandbox: the same paths and hosts as for processes."""

import pytest
from anyio import CapacityLimiter
from tests.support.sandboxes import SUPPORT, make_policy

from retinue.engines.toolbox import ToolError
from retinue.engines.tools import make_local_toolbox
from retinue.engines.tools.fetch import FetchContext, fetch_content
from retinue.model.runs import ToolUse
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxPolicy, SandboxReport


def in_process(mode: SandboxMode, **options: object) -> SandboxPolicy:
    report = SandboxReport(mode=mode, mechanism=SandboxMechanism.IN_PROCESS)
    return SandboxPolicy(report=report, **options)  # type: ignore[arg-type]


async def call(folder, policy, tool, **arguments):
    toolbox = make_local_toolbox(str(folder), CapacityLimiter(1), sandbox=policy)
    return await toolbox.call(ToolUse("1", tool, arguments))


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", ".git/config", ".GIT/Config", ".git", "sub/.git/info/x"])
async def test_write_to_what_makes_git_execute_programs_is_refused(tmp_path, path):
    answer = await call(tmp_path, in_process(SandboxMode.WORKSPACE), "write", path=path, content="x")
    assert answer.is_error
    assert answer.text == f"Access denied: {path} is read-only in the sandbox of this run."
    assert [*tmp_path.iterdir()] == []


async def test_working_directory_that_became_a_link_after_the_run_was_planned_is_not_read(tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/one").write_text("PRIVATE KEY")
    (tmp_path / "work").symlink_to(tmp_path / "keys")
    policy = in_process(SandboxMode.WORKSPACE, folder=str(tmp_path / "work"))
    answer = await call(tmp_path / "work", policy, "read", path="one")
    assert answer.is_error
    assert answer.text == "Access denied: the working directory was replaced by a link after the run was planned."


async def test_workspace_writes_other_files_of_git_and_strict_none(tmp_path):
    modes = (SandboxMode.WORKSPACE, SandboxMode.STRICT)
    answers = [await call(tmp_path, in_process(mode), "write", path=".git/HEAD", content="x") for mode in modes]
    assert [answer.is_error for answer in answers] == [False, True]


async def test_run_that_may_not_write_its_directory_is_refused_to(tmp_path):
    policy = in_process(SandboxMode.WORKSPACE, writes_cwd=False)
    answer = await call(tmp_path, policy, "write", path="file", content="x")
    assert answer.is_error
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": ".ssh/key"}),
        ("grep", {"pattern": "PRIVATE"}),
        ("find", {"pattern": "key"}),
        ("ls", {"path": ".ssh"}),
    ],
)
async def test_keys_inside_the_working_directory_are_out_of_reach(tmp_path, tool, arguments):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/key").write_text("PRIVATE")
    policy = in_process(SandboxMode.WORKSPACE, hidden=(f"{tmp_path}/.ssh",))
    answer = await call(tmp_path, policy, tool, **arguments)
    assert "PRIVATE" not in answer.text.replace("PRIVATE')", "")
    assert ".ssh/key" not in answer.text or "Access denied" in answer.text


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [("docs.example.org", True), ("example.org", False), ("github.com", True), ("github.com:8080", False)],
)
async def test_strict_fetches_the_users_hosts_only(host, is_allowed):
    reached = []

    async def resolve(name, port):
        reached.append(name)
        raise OSError("not here")

    context = FetchContext(hosts=("*.example.org", "github.com"), resolve=resolve)
    with pytest.raises(ToolError) as refused:
        await fetch_content(context, f"https://{host}/")
    assert bool(reached) == is_allowed
    assert is_allowed or "does not allow it. Only the user can allow hosts, with the setting sandbox_hosts" in str(
        refused.value
    )


@pytest.mark.process
@pytest.mark.skipif(not SUPPORT.landlock_abi, reason="Landlock is not active in this kernel")
async def test_commands_of_bash_run_in_the_sandbox(tmp_path):
    from retinue.engines.process.supervisor import ProcessSupervisor
    from retinue.engines.tools.bash import CommandContext, bash

    (tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("PRIVATE")
    async with ProcessSupervisor() as supervisor:

        async def open_supervisor():
            return supervisor

        context = CommandContext(
            cwd=str(tmp_path / "work"),
            environ={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            open_supervisor=open_supervisor,
            sandbox=make_policy(),
        )
        output = await bash(context, "echo hello > file; cat file; cat ../secret || echo refused")
    assert output.startswith("hello\n")
    assert output.endswith("refused")
    assert "PRIVATE" not in output
    assert (tmp_path / "work/file").read_text() == "hello\n"
