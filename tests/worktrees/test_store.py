"""Tests of the worktrees of runs, with real git."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.repositories import git, make_repository, snapshot, write_files

from retinue.model.results import WorktreeChanges
from retinue.model.runs import WorktreeSpec
from retinue.worktrees.git import Git, GitError
from retinue.worktrees.store import Worktree, WorktreeError, WorktreeState, WorktreeStore

SESSION = "1f0c2a9e" + "0" * 24


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "shop", {"a.txt": "one\n", "sub/b.txt": "two\n", ".gitignore": "*.log\n.env\n"})


@pytest.fixture
def store(tmp_path: Path) -> WorktreeStore:
    return WorktreeStore(tmp_path / "state", dict(os.environ))


def open_worktree(store: WorktreeStore, repository: Path, session: str = SESSION, **options: object) -> Worktree:
    spec = WorktreeSpec(repository=str(repository), **options)  # type: ignore[arg-type]
    return store.open(spec, session=session, agent="implementer", task="Fix the parser")


def test_worktree_has_uncommitted_and_untracked_files_and_leaves_the_users_byte_equal(store, repository):
    write_files(repository, {"a.txt": "changed\n", "new.txt": "untracked\n", "sub/staged.txt": "staged\n"})
    git(repository, "add", "sub/staged.txt")
    (repository / "sub/b.txt").unlink()
    before = snapshot(repository)
    made = open_worktree(store, repository)
    path = Path(made.path)
    assert {name: (path / name).exists() for name in ("a.txt", "new.txt", "sub/staged.txt", "sub/b.txt")} == {
        "a.txt": True, "new.txt": True, "sub/staged.txt": True, "sub/b.txt": False,
    }  # fmt: skip
    assert (path / "a.txt").read_text() == "changed\n"
    assert git(path, "status", "--porcelain") == ""
    assert snapshot(repository) == before
    assert made.branch == "retinue/implementer-1f0c2a9e"
    assert path.parent.name.startswith("shop-")
    assert path.name == "1f0c2a9e"


def test_worktree_of_the_last_commit_has_none_of_the_uncommitted_changes(store, repository):
    write_files(repository, {"a.txt": "changed\n", "new.txt": "untracked\n"})
    path = Path(open_worktree(store, repository, base="head").path)
    assert (path / "a.txt").read_text() == "one\n"
    assert not (path / "new.txt").exists()


def test_worktree_of_a_repository_without_commits_has_its_files(store, tmp_path):
    repository = tmp_path / "empty"
    repository.mkdir()
    git(repository, "init", "--quiet")
    write_files(repository, {"a.txt": "one\n"})
    assert (Path(open_worktree(store, repository).path) / "a.txt").read_text() == "one\n"


def test_changes_are_committed_on_the_branch_with_counts_and_a_patch(store, repository):
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"a.txt": "one\nmore\n", "new/c.txt": "three\n"})
    (Path(made.path) / "sub/b.txt").unlink()
    closed = store.close(made)
    head = git(repository, "rev-parse", made.branch)
    assert closed.state is WorktreeState.CHANGED
    assert closed.changes == WorktreeChanges(
        path=made.path, branch=made.branch, base=git(repository, "rev-parse", "HEAD"), head=head, files=3,
        insertions=2, deletions=1, patch_file=f"{made.path}.patch",
    )  # fmt: skip
    assert git(repository, "log", "-1", "--format=%an %ae|%s", made.branch) == (
        "Retinue retinue@localhost|implementer: Fix the parser"
    )
    assert "+more" in Path(f"{made.path}.patch").read_text()
    assert git(repository, "status", "--porcelain") == ""


def test_unchanged_worktree_is_removed_with_its_branch_and_stays_known(store, repository):
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"trace.log": "ignored\n"})
    closed = store.close(made)
    assert closed == replace(made, state=WorktreeState.UNCHANGED)
    assert not Path(made.path).exists()
    assert git(repository, "branch", "--list", "retinue/*") == ""
    assert git(repository, "worktree", "list").count("\n") == 0
    assert store.find(SESSION) == closed


def test_resumed_session_gets_its_worktree_back_at_the_same_path(store, repository):
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"a.txt": "first run\n"})
    store.close(made)
    again = open_worktree(store, repository)
    assert (again.path, again.base, again.state) == (made.path, made.base, WorktreeState.ACTIVE)
    write_files(Path(made.path), {"b.txt": "second run\n"})
    changes = store.close(again).changes
    assert changes
    assert changes.files == 2


def test_deleted_folder_of_a_changed_worktree_comes_back_from_its_branch(store, repository):
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"a.txt": "first run\n"})
    store.close(made)
    subprocess.run(["rm", "-rf", made.path], check=True)
    again = open_worktree(store, repository)
    assert (Path(again.path) / "a.txt").read_text() == "first run\n"


def test_session_whose_worktree_was_unchanged_gets_a_new_one_at_the_same_path(store, repository):
    made = store.close(open_worktree(store, repository))
    write_files(repository, {"a.txt": "edited since\n"})
    again = open_worktree(store, repository)
    assert again.path == made.path
    assert (Path(again.path) / "a.txt").read_text() == "edited since\n"


def test_commits_and_branches_of_the_agent_end_on_the_branch_of_the_worktree(store, repository):
    made = open_worktree(store, repository)
    path = Path(made.path)
    git(path, "checkout", "--quiet", "-b", "own")
    write_files(path, {"a.txt": "committed\n"})
    git(path, "commit", "--quiet", "--all", "--message", "by the agent")
    write_files(path, {"b.txt": "left over\n"})
    closed = store.close(made)
    assert git(repository, "log", "--format=%s", f"HEAD..{made.branch}").splitlines() == [
        "implementer: Fix the parser",
        "by the agent",
    ]
    assert git(path, "symbolic-ref", "--short", "HEAD") == made.branch
    assert closed.changes
    assert closed.changes.files == 2


def test_subfolder_of_the_caller_exists_in_the_worktree_even_if_it_is_empty(store, repository):
    (repository / "empty/deep").mkdir(parents=True)
    made = open_worktree(store, repository, folder="empty/deep")
    assert Path(made.cwd) == Path(made.path, "empty/deep")
    assert Path(made.cwd).is_dir()


def test_ignored_files_come_only_by_worktreeinclude_and_are_not_committed(store, repository):
    write_files(repository, {".env": "KEY=1\n", "x.log": "log\n", ".worktreeinclude": ".env\nsub/*.txt\n"})
    (repository / "link.log").symlink_to("/etc/passwd")
    made = open_worktree(store, repository)
    path = Path(made.path)
    assert (path / ".env").read_text() == "KEY=1\n"
    assert not (path / "x.log").exists()
    write_files(path, {"a.txt": "changed\n"})
    store.close(made)
    assert ".env" not in git(repository, "ls-tree", "-r", "--name-only", made.branch)


def hostile_program(folder: Path, name: str) -> Path:
    """Return a program that leaves a file when it runs."""
    program = folder / name
    program.write_text(f"#!/bin/sh\ntouch {folder}/ran-{name}\ncat\n")
    program.chmod(0o755)
    return program


def test_no_program_of_a_hostile_repository_runs(store, repository, tmp_path):
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "post-commit"):
        hook = repository / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {evil}/ran-{name}\n")
        hook.chmod(0o755)
    write_files(repository, {".gitattributes": "*.txt filter=evil diff=evil\n"})
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv",
                "diff.external", "core.sshCommand", "gpg.program", "core.pager", "diff.evil.command"):  # fmt: skip
        git(repository, "config", key, str(hostile_program(evil, key)), config=())
    git(repository, "config", "filter.evil.required", "true", config=())
    git(repository, "config", "commit.gpgSign", "true", config=())
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"a.txt": "changed\n"})
    closed = store.close(made)
    store.read_patch(closed)
    store.merge(closed)
    assert sorted(path.name for path in evil.glob("ran-*")) == []
    assert (repository / "a.txt").read_text() == "changed\n"


def test_configuration_that_the_agent_adds_starts_nothing_when_its_changes_are_committed(store, repository, tmp_path):
    evil = tmp_path / "evil"
    evil.mkdir()
    made = open_worktree(store, repository)
    path = Path(made.path)
    git(path, "config", "filter.late.clean", str(hostile_program(evil, "late")), config=())
    write_files(path, {".gitattributes": "* filter=late\n", "a.txt": "changed\n"})
    (path / ".git").write_text(f"gitdir: {evil}\n")
    assert store.close(made).state is WorktreeState.CHANGED
    assert not list(evil.glob("ran-*"))


def test_filters_of_the_user_still_apply(store, repository, tmp_path, monkeypatch):
    config = tmp_path / "gitconfig"
    config.write_text('[filter "upper"]\n\tclean = tr a-z A-Z\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(config.read_text())
    store = WorktreeStore(tmp_path / "state", {**os.environ, "HOME": str(home)})
    write_files(repository, {".gitattributes": "*.txt filter=upper\n", "new.txt": "quiet\n"})
    made = open_worktree(store, repository)
    assert (Path(made.path) / "new.txt").read_text() == "QUIET\n"


def test_merge_applies_all_changes_to_the_users_files_and_removes_the_worktree(store, repository):
    write_files(repository, {"a.txt": "uncommitted\n"})
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"sub/b.txt": "two\nthree\n", "c.bin": "\0binary"})
    merged = store.merge(store.close(made))
    assert merged.state is WorktreeState.MERGED
    assert (repository / "a.txt").read_text() == "uncommitted\n"
    assert (repository / "sub/b.txt").read_text() == "two\nthree\n"
    assert (repository / "c.bin").read_bytes() == b"\0binary"
    assert not Path(made.path).exists()
    assert git(repository, "branch", "--list", "retinue/*") == ""


def test_merge_that_does_not_fit_changes_nothing_and_names_the_branch(store, repository):
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"a.txt": "theirs\n", "sub/b.txt": "fits\n"})
    closed = store.close(made)
    write_files(repository, {"a.txt": "mine\n"})
    before = snapshot(repository)
    with pytest.raises(WorktreeError, match=f"do not fit.*git merge {made.branch}"):
        store.merge(closed)
    assert snapshot(repository) == before
    assert Path(made.path).is_dir()


def test_discard_leaves_nothing(store, repository, tmp_path):
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"a.txt": "theirs\n", "locked/c.txt": "x"})
    Path(made.path, "locked").chmod(0o500)
    store.discard(store.close(made))
    assert store.list_all() == []
    assert [path.name for path in (tmp_path / "state/worktrees").rglob("*") if path.is_file()] == [".lock"]
    assert git(repository, "branch", "--list", "retinue/*") == ""


def test_directory_in_a_worktree_stands_for_the_users_directory(store, repository):
    made = open_worktree(store, repository)
    assert store.find_source(f"{made.path}/sub") == f"{repository}/sub"
    assert store.find_source(made.path) == str(repository)
    assert store.find_source(str(repository)) == str(repository)
    assert store.find_source("/") == "/"


def test_folder_outside_a_repository_is_refused(store, tmp_path):
    with pytest.raises(GitError, match="not a git repository"):
        store.find_repository(str(tmp_path), "tree")


def test_missing_git_is_named(tmp_path):
    store = WorktreeStore(tmp_path, {"PATH": str(tmp_path)})
    with pytest.raises(GitError, match="git is not installed"):
        store.find_repository(str(tmp_path), "tree")


def test_failed_creation_leaves_nothing(store, repository, tmp_path):
    git(repository, "update-ref", "refs/heads/retinue", "HEAD")  # no branch can be below it
    with pytest.raises(WorktreeError, match=r"No worktree of .* could be made"):
        open_worktree(store, repository)
    assert store.list_all() == []
    assert git(repository, "worktree", "list").count("\n") == 0
    assert not list((tmp_path / "state/worktrees").glob("*/1f0c2a9e*"))


def test_record_that_names_another_folder_is_ignored(store, repository, tmp_path):
    made = open_worktree(store, repository)
    record = Path(f"{made.path}.json")
    record.write_bytes(record.read_bytes().replace(made.path.encode(), str(repository).encode()))
    assert store.list_all() == []


KILLING_GIT = """#!/bin/sh
number=$(($(cat {folder}/calls 2>/dev/null || echo 0) + 1))
echo $number > {folder}/calls
{git} "$@"
code=$?
[ $number = "$KILL_AT" ] && kill -9 $PPID
exit $code
"""
OPEN_ONE = """
import os, sys
from pathlib import Path
from retinue.model.runs import WorktreeSpec
from retinue.worktrees.store import WorktreeStore
store = WorktreeStore(Path(sys.argv[1]), dict(os.environ))
store.open(WorktreeSpec(repository=sys.argv[2]), session=sys.argv[3], agent="a", task="t")
"""


@pytest.mark.process
def test_process_killed_while_it_makes_a_worktree_leaves_nothing_that_is_not_listed(store, repository, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(KILLING_GIT.format(folder=programs, git=shutil.which("git")))
    (programs / "git").chmod(0o755)
    argv = [sys.executable, "-c", OPEN_ONE, str(tmp_path / "state"), str(repository), SESSION]
    for number in range(1, 40):
        (programs / "calls").unlink(missing_ok=True)
        environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "KILL_AT": str(number)}
        code = subprocess.run(argv, env=environ, check=False).returncode
        (listed,) = store.list_all()
        assert git(repository, "worktree", "list").count("\n") <= 1
        store.discard(listed)
        assert git(repository, "worktree", "list").count("\n") == 0
        assert git(repository, "branch", "--list", "retinue/*") == ""
        if code == 0:
            assert number > 3
            return
    pytest.fail("the worktree was never made")


def test_repository_whose_configuration_names_another_folder_is_refused(store, repository, tmp_path):
    home = make_repository(tmp_path / "home", {".ssh/key": "PRIVATE KEY"})
    git(repository, "config", "core.worktree", str(home))
    with pytest.raises(GitError, match=r"core\.worktree of .* names .*home, which belongs to another"):
        store.find_repository(str(repository), "tree")
    assert git(home, "worktree", "list").count("\n") == 0


def test_submodule_and_linked_working_tree_are_repositories_of_their_own(store, repository, tmp_path):
    inner = make_repository(tmp_path / "inner", {"c.txt": "three\n"})
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "libs/inner")
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"))
    tops = [repository / "libs/inner", tmp_path / "linked"]
    assert [store.find_repository(str(top), "head").repository for top in tops] == [str(top) for top in tops]


def test_folder_that_an_earlier_run_made_a_link_is_not_entered_again(store, repository, tmp_path):
    (tmp_path / "home").mkdir()
    made = open_worktree(store, repository, folder="sub")
    shutil.rmtree(made.cwd)
    Path(made.cwd).symlink_to(tmp_path / "home")
    closed = store.close(made)
    with pytest.raises(WorktreeError, match=f"{made.cwd} is a link to {tmp_path}/home"):
        open_worktree(store, repository, folder="sub")
    assert store.find(SESSION) == closed


def test_link_of_the_last_commit_in_place_of_the_working_directory_is_refused(store, repository, tmp_path):
    (tmp_path / "home").mkdir()
    (repository / "data").symlink_to(tmp_path / "home")
    git(repository, "add", "data")
    git(repository, "commit", "--quiet", "--message", "link")
    with pytest.raises(WorktreeError, match="data is a link to"):
        open_worktree(store, repository, folder="data", base="head")
    assert store.list_all() == []


def test_included_file_is_not_copied_through_a_link_of_the_last_commit(store, repository, tmp_path):
    (tmp_path / "home").mkdir()
    (repository / "data").symlink_to(tmp_path / "home")
    git(repository, "add", "data")
    git(repository, "commit", "--quiet", "--message", "link")
    (repository / "data").unlink()
    write_files(repository, {"data/.env": "planted\n", ".worktreeinclude": ".env\n"})
    with pytest.raises(WorktreeError, match=r"names data/\.env, which a link in the last commit leads elsewhere"):
        open_worktree(store, repository, base="head")
    assert list((tmp_path / "home").iterdir()) == []


def test_worktree_that_an_agent_moved_to_another_repository_is_not_committed_there(store, repository, tmp_path):
    other = make_repository(tmp_path / "other", {"a.txt": "one\n"})
    made = open_worktree(store, repository)
    write_files(Path(made.path), {"a.txt": "changed\n"})
    Path(made.git_dir, "commondir").write_text(f"{other}/.git\n")
    Path(made.git_dir, "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(WorktreeError, match="was changed to belong to"):
        store.close(made)
    assert git(other, "branch", "--list") == "* main"


def test_remote_that_is_a_command_is_not_run_where_the_repository_allows_it(repository, tmp_path):
    git(repository, "remote", "add", "origin", f"ext::sh -c touch% {tmp_path}/executed")
    git(repository, "config", "protocol.ext.allow", "always")
    with pytest.raises(GitError, match="transport 'ext' not allowed"):
        Git(repository, dict(os.environ)).run("fetch", "origin")
    assert not (tmp_path / "executed").exists()
