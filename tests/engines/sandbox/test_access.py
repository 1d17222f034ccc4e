"""Which paths a sandbox has: of programs on the PATH, of linked working trees, and of folders that hold too much."""

import os
import subprocess
from pathlib import Path

import pytest

from retinue.engines.sandbox import access as access_module
from retinue.engines.sandbox.access import (
    SandboxAccessError,
    compute_access,
    find_git_folders,
    find_installation,
    list_secrets,
)
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxPolicy, SandboxReport


def policy(mode: SandboxMode = SandboxMode.WORKSPACE, **options: object) -> SandboxPolicy:
    report = SandboxReport(mode=mode, mechanism=SandboxMechanism.BUBBLEWRAP)
    return SandboxPolicy(report=report, **options)  # type: ignore[arg-type]


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)


def test_prefix_of_a_program_folder_can_be_read_unless_it_holds_more_than_programs(tmp_path):
    make(tmp_path, "work", ".local/bin", ".local/lib", ".local/state/retinue", ".nvm/node/bin", "bin", "tools")
    path = os.pathsep.join(
        [
            "relative/bin",
            "/usr/bin",
            *(f"{tmp_path}/{name}" for name in (".local/bin", ".nvm/node/bin", "bin", "tools")),
        ]
    )
    environ = {"HOME": str(tmp_path), "PATH": path}
    hidden = (f"{tmp_path}/.local/state/retinue", *list_secrets(environ))
    access = compute_access(policy(hidden=hidden), str(tmp_path / "work"), environ)
    assert sorted(access.read) == [
        f"{tmp_path}/{name}" for name in (".local/bin", ".local/lib", ".nvm/node", "bin", "tools")
    ]
    assert access.write == (f"{tmp_path}/work",)
    assert access.hidden == ()


def test_agent_that_nobody_accepted_gets_no_path_of_the_user(tmp_path):
    make(tmp_path, "work/.git", "work/sub", "data", "tools/bin")
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/tools/bin"}
    confined = policy(SandboxMode.STRICT, repository_only=True, writes_cwd=False, read=(f"{tmp_path}/data",))
    access = compute_access(confined, str(tmp_path / "work/sub"), environ)
    assert (access.read, access.write) == ((f"{tmp_path}/work",), ())


def test_repository_around_the_home_is_not_readable_from_a_folder_of_the_home(tmp_path):
    make(tmp_path, ".git", "work", "documents")
    access = compute_access(policy(), str(tmp_path / "work"), {"HOME": str(tmp_path)})
    assert (access.read, access.write) == ((), (f"{tmp_path}/work",))


def test_working_directory_that_became_a_link_after_the_run_was_planned_is_refused(tmp_path):
    make(tmp_path, "work", ".ssh")
    planned = policy(folder=f"{tmp_path}/work/sub")
    (tmp_path / "work/sub").symlink_to(tmp_path / ".ssh")
    with pytest.raises(SandboxAccessError, match=r"work/sub was .*/work/sub when .*, and is a link to .*/\.ssh now"):
        compute_access(planned, f"{tmp_path}/work/sub", {"HOME": str(tmp_path)})


def test_path_that_the_user_names_is_not_hidden_and_what_it_contains_is(tmp_path):
    make(tmp_path, "work", ".config/gh", ".config/app", ".ssh")
    environ = {"HOME": str(tmp_path)}
    granted = (f"{tmp_path}/.ssh", f"{tmp_path}/.config")
    access = compute_access(policy(read=granted, hidden=list_secrets(environ)), str(tmp_path / "work"), environ)
    assert set(granted) <= {*access.read}
    assert access.hidden == (f"{tmp_path}/.config/gh",)


@pytest.mark.parametrize("cwd", ["/", "/usr", "/etc"])
def test_folder_of_the_system_is_no_workspace(cwd):
    with pytest.raises(SandboxAccessError, match="holds the system"):
        compute_access(policy(), cwd, {"HOME": "/root"})


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """Return a linked working tree of a repository."""
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for command in (
        ["init", "-q", "main"],
        ["-C", "main", *identity, "commit", "-q", "--allow-empty", "-m", "x"],
        ["-C", "main", "worktree", "add", "-q", "../linked"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True, env={"PATH": os.defpath, "HOME": str(tmp_path)})
    return tmp_path / "linked"


def test_linked_working_tree_writes_its_repository_and_not_what_git_executes(linked, tmp_path):
    common = f"{tmp_path}/main/.git"
    access = compute_access(policy(), str(linked), {"HOME": str(tmp_path / "home")})
    assert access.write == (str(linked), common)
    assert {f"{linked}/.git", f"{common}/config", f"{common}/hooks", f"{common}/info"} <= {*access.protected}
    assert compute_access(policy(SandboxMode.STRICT), str(linked), {"HOME": "/x"}).write == (str(linked),)


def test_file_that_names_the_repository_of_another_gives_no_right_to_it(tmp_path):
    make(tmp_path, "victim/.git/hooks", "work")
    (tmp_path / "work/.git").write_text(f"gitdir: {tmp_path}/victim/.git\n")
    access = compute_access(policy(), str(tmp_path / "work"), {"HOME": str(tmp_path / "home")})
    assert access.write == (f"{tmp_path}/work",)
    assert f"{tmp_path}/work/.git" in access.protected
    assert not find_git_folders(str(tmp_path / "work")).is_linked


@pytest.mark.parametrize("own", ["work/fake", "work"])
def test_planted_git_folder_in_the_working_directory_opens_no_other_folder(own, tmp_path):
    make(tmp_path, "work/fake", "objects", "worktrees")
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "work/.git").write_text(f"gitdir: {tmp_path}/{own}\n")
    (tmp_path / own / "commondir").write_text(f"{tmp_path}\n")
    (tmp_path / own / "gitdir").write_text(f"{tmp_path}/work/.git\n")
    access = compute_access(policy(), str(tmp_path / "work"), {"HOME": str(tmp_path / "home")})
    assert access.write == (f"{tmp_path}/work",)


def test_git_folders_of_submodules_and_other_working_trees_are_protected(linked, tmp_path):
    common = tmp_path / "main/.git"
    make(common, "modules/libs/parser/modules/inner", "modules/libs/parser/hooks")
    for name in ("modules/libs/parser", "modules/libs/parser/modules/inner"):
        (common / name / "HEAD").write_text("ref: refs/heads/main\n")
        (common / name / "config").write_text("[core]\n")
    access = compute_access(policy(), str(tmp_path / "main"), {"HOME": str(tmp_path / "home")})
    inside = {path.removeprefix(f"{common}/") for path in access.protected}
    assert inside == {
        "config", "hooks", "info", "modules/libs/parser/config", "modules/libs/parser/hooks",
        "modules/libs/parser/modules/inner/config", "worktrees/linked/commondir", "worktrees/linked/gitdir",
    }  # fmt: skip


def test_too_many_git_folders_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(access_module, "MAX_GIT_FOLDERS", 4)
    make(tmp_path, "work/.git", *(f"work/.git/modules/{number}" for number in range(4)))
    with pytest.raises(SandboxAccessError, match="more than 4 folders"):
        compute_access(policy(), str(tmp_path / "work"), {"HOME": str(tmp_path / "home")})


def test_installation_of_a_package_is_its_outermost_node_modules(tmp_path):
    make(tmp_path, "lib/node_modules/pi/node_modules/x", "bin")
    script = tmp_path / "lib/node_modules/pi/node_modules/x/cli.js"
    script.write_text("#!/usr/bin/env node\n")
    (tmp_path / "bin/pi").symlink_to(script)
    assert find_installation(f"{tmp_path}/bin/pi", str(tmp_path)) == (f"{tmp_path}/lib/node_modules",)


def test_secrets_below_a_folder_of_the_system_are_hidden(tmp_path, monkeypatch):
    make(tmp_path, "opt/service/.ssh", "opt/service/work", "opt/service/data")
    monkeypatch.setattr(access_module, "SYSTEM_PATHS", (f"{tmp_path}/opt",))
    environ = {"HOME": f"{tmp_path}/opt/service"}
    found = compute_access(policy(hidden=list_secrets(environ)), f"{tmp_path}/opt/service/work", environ)
    assert found.hidden == (f"{tmp_path}/opt/service/.ssh",)
