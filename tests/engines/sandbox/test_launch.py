"""What a sandboxed process reaches, with bubblewrap and with Landlock alone, as root and as an ordinary user."""

import os
import socket
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.ordinary_user import as_ordinary_user
from tests.support.sandboxes import LANDLOCK_ALONE, SUPPORT, make_policy, run_script

from retinue.engines.base import EngineError
from retinue.engines.process.command import ChildCommand
from retinue.engines.sandbox.launch import SandboxNeeds, open_sandbox

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not SUPPORT.landlock_abi, reason="Landlock is not active in this kernel"),
]
needs_bubblewrap = pytest.mark.skipif(not SUPPORT.bubblewrap, reason="bubblewrap is not installed or does not work")
SUPPORTS = {"bubblewrap": SUPPORT, "landlock": LANDLOCK_ALONE}
EVERY_MECHANISM = pytest.mark.parametrize("name", [pytest.param("bubblewrap", marks=needs_bubblewrap), "landlock"])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a key, a project that is a repository, and state of ours."""
    for name in (".ssh", "work/.git/hooks", "work/.git/info", "state/sessions", "tools/bin", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".ssh/id_ed25519").write_text("PRIVATE KEY")
    (tmp_path / "state/sessions/one").write_text("PRIVATE SESSION")
    (tmp_path / "data/table").write_text("SHARED TABLE")
    (tmp_path / "work/.git/config").write_text("[core]\n")
    (tmp_path / "work/.git/hooks/pre-commit").write_text("original")
    (tmp_path / "work/README").write_text("hello")
    tool = tmp_path / "tools/bin/tool"
    tool.write_text("#!/bin/sh\necho tool\n")
    tool.chmod(0o755)
    return tmp_path


@EVERY_MECHANISM
async def test_workspace_reads_and_writes_the_working_directory_and_temporary_files(name, home):
    script = "cat README; echo new > file; cat file; echo t > $TMPDIR/t; cat $TMPDIR/t; echo >/dev/null; pwd"
    output = await run_script(script, make_policy(support=SUPPORTS[name]), home / "work", home=home)
    assert output == f"hellonew\nt\n{home}/work\n"
    assert (home / "work/file").read_text() == "new\n"


@EVERY_MECHANISM
async def test_settings_of_the_kernel_cannot_be_changed(name, home):
    # Not by root either, to whom the kernel gives them without capabilities. Nothing is written if it can be opened.
    script = "(: >> /proc/sys/kernel/core_pattern) 2>/dev/null && echo opened; echo done"
    assert await run_script(script, make_policy(support=SUPPORTS[name]), home / "work", home=home) == "done\n"


@EVERY_MECHANISM
async def test_passwords_of_the_system_are_out_of_reach_of_root_and_its_settings_are_not(name, home):
    script = "cat /etc/shadow 2>/dev/null | grep -c : ; ls -d /etc/passwd; cat /etc/hosts >/dev/null && echo hosts"
    output = await run_script(script, make_policy(support=SUPPORTS[name]), home / "work", home=home)
    assert output == "0\n/etc/passwd\nhosts\n"


@EVERY_MECHANISM
async def test_keys_state_and_other_folders_of_the_home_are_out_of_reach(name, home):
    script = (
        f"cat {home}/.ssh/id_ed25519 {home}/state/sessions/one {home}/data/table; ls {home}; "
        f"echo x > {home}/.bashrc; echo x > /etc/x; echo x > /usr/x"
    )
    output = await run_script(script, make_policy(support=SUPPORTS[name]), home / "work", home=home)
    assert "PRIVATE" not in output
    assert "SHARED" not in output
    assert not (home / ".bashrc").exists()
    assert not Path("/etc/x").exists()
    assert not Path("/usr/x").exists()


@EVERY_MECHANISM
async def test_programs_of_the_path_and_the_users_own_paths_can_be_reached(name, home):
    policy = make_policy(support=SUPPORTS[name], read=(f"{home}/data",), write=(f"{home}/tools",))
    script = f"tool; cat {home}/data/table; echo x > {home}/data/x || echo refused; echo y > {home}/tools/y"
    path = f"{home}/tools/bin:{os.defpath}"
    output = await run_script(script, policy, home / "work", home=home, environ={"PATH": path})
    assert output.startswith("tool\nSHARED TABLE")
    assert output.endswith("refused\n")
    assert (home / "tools/y").read_text() == "y\n"


@EVERY_MECHANISM
async def test_link_out_of_the_workspace_leads_nowhere(name, home):
    (home / "work/link").symlink_to(home / ".ssh")
    output = await run_script("cat link/id_ed25519", make_policy(support=SUPPORTS[name]), home / "work", home=home)
    assert "PRIVATE" not in output


@EVERY_MECHANISM
async def test_parent_process_can_be_neither_signalled_nor_inspected(name, home):
    script = f"kill -0 {os.getpid()} && echo signalled; cat /proc/{os.getpid()}/environ && echo inspected"
    output = await run_script(script, make_policy(support=SUPPORTS[name]), home / "work", home=home)
    assert "signalled" not in output
    assert "inspected" not in output


@EVERY_MECHANISM
async def test_abstract_socket_of_another_process_cannot_be_connected_to(name, home):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0retinue-test-{os.getpid()}")
        server.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0retinue-test-{os.getpid()}')"
        output = await run_script(
            f'/usr/bin/python3 -c "{code}" && echo connected', make_policy(support=SUPPORTS[name]), home / "work"
        )
    assert "connected" not in output
    assert "PermissionError" in output


@EVERY_MECHANISM
async def test_variables_that_lead_to_programs_outside_are_removed(name, home):
    variables = ("SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "TMUX")
    script = "env | grep -E 'SSH_AUTH_SOCK|DBUS_SESSION_BUS_ADDRESS|DOCKER_HOST|TMUX'; echo done"
    policy = make_policy(support=SUPPORTS[name])
    assert await run_script(script, policy, home / "work", environ=dict.fromkeys(variables, "/x")) == "done\n"


@EVERY_MECHANISM
async def test_temporary_folder_is_gone_after_the_block(name, home):
    command = ChildCommand(argv=("true",), cwd=str(home / "work"), environ={"PATH": os.defpath, "HOME": str(home)})
    async with open_sandbox(command, make_policy(support=SUPPORTS[name])) as opened:
        folder = next(
            part for part in (*opened.command.argv, opened.command.environ["TMPDIR"]) if "retinue-box-" in part
        )
        assert Path(folder).is_dir()
    assert not Path(folder).exists()


@EVERY_MECHANISM
async def test_working_directory_that_is_the_system_is_refused(name, home):
    command = ChildCommand(argv=("true",), cwd="/", environ={"HOME": str(home)})
    with pytest.raises(EngineError) as refused:
        async with open_sandbox(command, make_policy(support=SUPPORTS[name])):
            pass
    assert refused.value.failure.reason == "sandbox_unavailable"
    assert "the working directory / holds the system" in refused.value.failure.message


async def test_landlock_alone_refuses_a_working_directory_that_holds_keys(home):
    command = ChildCommand(argv=("true",), cwd=str(home), environ={"HOME": str(home)})
    with pytest.raises(EngineError) as refused:
        async with open_sandbox(command, make_policy(support=LANDLOCK_ALONE, hidden=(f"{home}/.ssh",))):
            pass
    assert f"{home}/.ssh lies inside a folder that the run may read" in refused.value.failure.message
    assert "install bubblewrap" in refused.value.failure.message


@needs_bubblewrap
async def test_bubblewrap_hides_keys_and_state_inside_the_working_directory(home):
    policy = make_policy(hidden=(f"{home}/state",))
    script = "cat .ssh/id_ed25519 state/sessions/one; ls -A .ssh state; cat data/table"
    output = await run_script(script, policy, home, home=home)
    assert "PRIVATE" not in output
    assert "SHARED TABLE" in output


@needs_bubblewrap
async def test_bubblewrap_protects_what_makes_git_execute_programs(home):
    script = (
        "echo x > .git/hooks/pre-commit; echo x > .git/config; echo x > .git/info/attributes; rm -rf .git/hooks; "
        "mv .git .other; mkdir .git; mv .git/hooks .git/old; echo fine > .git/HEAD; cat .git/HEAD"
    )
    output = await run_script(script, make_policy(), home / "work", home=home)
    assert output.endswith("fine\n")
    assert (home / "work/.git/hooks/pre-commit").read_text() == "original"
    assert (home / "work/.git/config").read_text() == "[core]\n"
    assert [*(home / "work/.git/info").iterdir()] == []
    assert not (home / "work/.other").exists()


@needs_bubblewrap
async def test_strict_makes_all_of_git_read_only(home):
    script = "echo x > .git/HEAD || echo refused; echo new > file; cat file; cat .git/config"
    output = await run_script(script, make_policy("strict"), home / "work", home=home)
    assert "refused" in output
    assert output.endswith("new\n[core]\n")
    assert not (home / "work/.git/HEAD").exists()


@needs_bubblewrap
async def test_run_that_may_not_write_its_directory_writes_temporary_files_only(home):
    policy = structs.replace(make_policy("strict"), writes_cwd=False, repository_only=True, read=(f"{home}/data",))
    script = f"echo x > file || echo refused; cat README; echo t > /tmp/t; cat /tmp/t; cat {home}/data/table"
    output = await run_script(script, policy, home / "work", home=home)
    assert "refused" in output
    assert "hellot\n" in output
    assert "SHARED" not in output


@needs_bubblewrap
async def test_other_processes_are_not_seen(home):
    output = await run_script("ls -d /proc/[0-9]* | wc -l", make_policy(), home / "work")
    assert int(output) <= 4


@needs_bubblewrap
async def test_socket_that_a_program_needs_can_be_reached_and_its_neighbours_cannot(home):
    folder = home / "run"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as other:
        server.bind(f"{folder}/control")
        other.bind(f"{folder}/agent")
        server.listen()
        other.listen()
        needs = SandboxNeeds(sockets=(f"{folder}/control",))
        code = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print(sys.argv[1])"
        script = "; ".join(f'/usr/bin/python3 -c "{code}" {folder}/{name}' for name in ("control", "agent"))
        output = await run_script(script, make_policy(), home / "work", needs=needs)
    assert output.startswith(f"{folder}/control\n")
    assert "FileNotFoundError" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="root")
@EVERY_MECHANISM
def test_ordinary_user_gets_the_same_sandbox(name):
    """Root skips checks that others have, and others have no rights that root has."""
    code = """
import json, os, sys, tempfile, anyio
from pathlib import Path
from tests.support.sandboxes import *
from tests.support.ordinary_user import drop_rights
import anyio._backends._asyncio, retinue.engines.process.linux_tree
sys.executable = "/usr/bin/python3"  # the interpreter of the tests may be readable by root only
drop_rights()
support = find_support(os.environ) if sys.argv[1] == "bubblewrap" else LANDLOCK_ALONE
home = Path(tempfile.mkdtemp())
(home / ".ssh").mkdir(); (home / ".ssh/key").write_text("PRIVATE"); (home / "work").mkdir()
script = f"id -u; echo new > file; cat file; cat {home}/.ssh/key; kill -0 {os.getpid()}; cat /proc/{os.getpid()}/environ"
output = anyio.run(lambda: run_script(script, make_policy(support=support), home / "work", home=home))
print(json.dumps([make_policy(support=support).report.mechanism, output]))
"""
    mechanism, output = as_ordinary_user(code, name)
    assert mechanism == ("landlock" if name == "landlock" else "bubblewrap+landlock")
    assert output.startswith("65534\nnew\n")
    assert "PRIVATE" not in output
    assert output.count("No such") + output.count("ermi") >= 3, output
