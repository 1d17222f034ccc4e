"""What makes git execute programs is restored after a run that could change it."""

from pathlib import Path

import pytest

from retinue.engines.sandbox.git_guard import MAX_GUARDED_FILES, GitGuard
from retinue.engines.sandbox.guarded_files import TooManyFilesError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("hooks", "info", "objects"):
        (tmp_path / ".git" / name).mkdir(parents=True)
    (tmp_path / ".git/config").write_text("[core]\n")
    hook = tmp_path / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    (tmp_path / ".git/hooks/link").symlink_to("pre-commit")
    return tmp_path


def content(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted((folder / ".git").rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = (path.read_text(), path.stat().st_mode & 0o777)
    return found


def test_unchanged_repository_is_left_alone(repository):
    before = content(repository)
    assert GitGuard(str(repository)).restore() == []
    assert content(repository) == before


def test_changed_added_and_removed_entries_are_restored_and_reported(repository):
    before = content(repository)
    guard = GitGuard(str(repository))
    git = repository / ".git"
    (git / "hooks/pre-commit").write_text("evil")
    (git / "hooks/post-checkout").write_text("evil")
    (git / "hooks/link").unlink()
    (git / "hooks/link").symlink_to("/etc/passwd")
    (git / "info/attributes").write_text("* filter=evil")
    (git / "config").unlink()
    (git / "config.worktree").write_text("[core]\nfsmonitor = evil\n")
    names = ["config", "config.worktree", "hooks/link", "hooks/post-checkout", "hooks/pre-commit", "info/attributes"]
    assert guard.restore() == [f"{git}/{name}" for name in names]
    assert content(repository) == before
    assert guard.restore() == []


def test_mode_of_a_hook_is_restored(repository):
    guard = GitGuard(str(repository))
    (repository / ".git/hooks/pre-commit").chmod(0o600)
    assert guard.restore() == [f"{repository}/.git/hooks/pre-commit"]
    assert (repository / ".git/hooks/pre-commit").stat().st_mode & 0o777 == 0o755


def test_folder_replaced_by_a_link_is_restored(repository, tmp_path_factory):
    before = content(repository)
    guard = GitGuard(str(repository))
    elsewhere = tmp_path_factory.mktemp("evil")
    (elsewhere / "pre-commit").write_text("evil")
    (repository / ".git/hooks").rename(repository / "old")
    (repository / ".git/hooks").symlink_to(elsewhere)
    guard.restore()
    assert content(repository) == before
    assert (elsewhere / "pre-commit").read_text() == "evil"


def test_flood_of_new_hooks_is_removed(repository):
    before = content(repository)
    guard = GitGuard(str(repository))
    for number in range(MAX_GUARDED_FILES + 10):
        (repository / f".git/hooks/{number}").touch()
    guard.restore()
    assert content(repository) == before


def test_repository_with_too_many_hooks_is_refused(repository):
    for number in range(MAX_GUARDED_FILES):
        (repository / f".git/hooks/{number}").touch()
    with pytest.raises(TooManyFilesError):
        GitGuard(str(repository))


def test_folder_that_leads_elsewhere_is_removed_and_nothing_is_restored_through_it(repository, tmp_path_factory):
    before = content(repository)
    elsewhere = tmp_path_factory.mktemp("home")
    (elsewhere / "config").write_text("Host example.org\n")
    (elsewhere / "hooks").mkdir()
    (elsewhere / "hooks/mine").write_text("mine")
    guard = GitGuard(str(repository))
    git = repository / ".git"
    git.rename(repository / "moved")
    git.symlink_to(elsewhere)
    assert guard.restore()[0] == str(git)
    assert content(repository) == {name: entry for name, entry in before.items() if name != ".git/objects"}
    assert {path.name for path in elsewhere.iterdir()} == {"config", "hooks"}
    assert (elsewhere / "config").read_text() == "Host example.org\n"
    assert (elsewhere / "hooks/mine").read_text() == "mine"


def test_another_common_folder_of_the_repository_or_a_working_tree_is_removed(repository):
    for name in ("modules/libs/parser", "worktrees/other"):
        (repository / ".git" / name).mkdir(parents=True)
        (repository / ".git" / name / "HEAD").write_text("ref: refs/heads/main\n")
    (repository / ".git/worktrees/other/commondir").write_text("../..\n")
    before = content(repository)
    guard = GitGuard(str(repository))
    names = ["commondir", "modules/libs/parser/config", "modules/libs/parser/hooks/pre-commit"]
    for name in (*names, "worktrees/other/commondir"):
        path = repository / ".git" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("/evil\n")
    assert guard.restore() == [f"{repository}/.git/{name}" for name in (*names, "worktrees/other/commondir")]
    assert content(repository) == before


def test_guard_of_missing_entries_leaves_the_others_alone(repository):
    guard = GitGuard(str(repository), missing_only=True)
    (repository / ".git/config").write_text("changed by the user meanwhile\n")
    (repository / ".git/commondir").write_text("../evil\n")
    assert guard.restore() == [f"{repository}/.git/commondir"]
    assert (repository / ".git/config").read_text() == "changed by the user meanwhile\n"
