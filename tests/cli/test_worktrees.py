"""Tests of `retinue worktrees`, and of `--isolation worktree`."""

import json
from pathlib import Path

import pytest
from tests.support.repositories import git, make_repository, write_files

from retinue.model.runs import WorktreeSpec
from retinue.worktrees.store import WorktreeStore

SCRIPT = [{"text": "done"}]


@pytest.fixture
def repository(place: Path) -> Path:
    return make_repository(place, {"a.txt": "one\n"})


@pytest.fixture
def changed(cli, repository, scratch_home) -> str:
    """Return the id of a session whose worktree has changes."""
    done = cli("run", "explorer", "look", "--isolation", "worktree", "--json", "--engine", "scripted", script=SCRIPT)
    session: str = json.loads(done.stdout)["session"]
    store = WorktreeStore(
        Path(scratch_home, ".local/state/retinue"), {"HOME": str(scratch_home), "PATH": "/usr/bin:/bin"}
    )
    (record,) = store.list_all()
    assert record.session == session
    again = store.open(WorktreeSpec(repository=str(repository)), session=session, agent="explorer", task="look")
    write_files(Path(again.path), {"a.txt": "two\n"})
    store.close(again)
    return session[:8]


def test_list_without_worktrees_names_the_option_that_makes_them(cli, repository):
    done = cli("worktrees")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "--isolation worktree" in done.stderr


def test_run_without_changes_leaves_a_record_that_only_all_lists(cli, repository):
    cli("run", "explorer", "look", "--isolation", "worktree", "--engine", "scripted", script=SCRIPT)
    assert json.loads(cli("worktrees", "list", "--json").stdout) == {"worktrees": []}
    (record,) = json.loads(cli("worktrees", "list", "--all", "--json").stdout)["worktrees"]
    assert (record["state"], record["agent"], record["task"]) == ("unchanged", "explorer", "look")


def test_list_and_show_print_the_changes_of_a_worktree(cli, changed):
    (_, row) = cli("worktrees", "list").stdout.splitlines()
    assert row.split()[0] == changed
    assert "1 file +1 -1" in row
    assert row.endswith(f"retinue/explorer-{changed}")
    shown = cli("worktrees", "show", changed).stdout
    assert "-one\n+two\n" in shown
    patch = cli("worktrees", "show", changed, "--patch").stdout
    assert patch.startswith("diff --git a/a.txt b/a.txt")


def test_merge_changes_the_users_files_and_removes_the_worktree(cli, repository, changed):
    done = cli("worktrees", "merge", changed)
    assert done.exit_code == 0
    assert "Applied 1 file +1 -1" in done.stderr
    assert (repository / "a.txt").read_text() == "two\n"
    assert git(repository, "branch", "--list", "retinue/*") == ""
    again = cli("worktrees", "merge", changed)
    assert again.exit_code == 2
    assert "has no changes to merge (state: merged)" in again.stderr


def test_merge_that_does_not_fit_is_refused_with_the_branch(cli, repository, changed):
    write_files(repository, {"a.txt": "mine\n"})
    done = cli("worktrees", "merge", changed)
    assert done.exit_code == 2
    assert f"git merge retinue/explorer-{changed}" in done.stderr
    assert (repository / "a.txt").read_text() == "mine\n"


def test_discard_asks_first_and_then_leaves_nothing(cli, repository, changed):
    asked = cli("worktrees", "discard", changed)
    assert asked.exit_code == 2
    assert "pass --yes" in asked.stderr
    assert cli("worktrees", "discard", changed, "--yes").exit_code == 0
    assert json.loads(cli("worktrees", "list", "--all", "--json").stdout) == {"worktrees": []}
    assert git(repository, "worktree", "list").count("\n") == 0


def test_prune_keeps_changes_that_are_nowhere_else(cli, repository, changed):
    done = cli("worktrees", "prune", "--json")
    assert [session[:8] for session in json.loads(done.stdout)["kept"]] == [changed]
    git(repository, "merge", "--quiet", f"retinue/explorer-{changed}")
    done = cli("worktrees", "prune", "--json")
    assert [session[:8] for session in json.loads(done.stdout)["removed"]] == [changed]


def test_prune_by_age_deletes_changes_only_with_consent(cli, repository, changed):
    refused = cli("worktrees", "prune", "--older-than", "0")
    assert refused.exit_code == 2
    assert f"1 worktree with changes will be deleted: {changed}" in refused.stderr
    assert cli("worktrees", "prune", "--older-than", "0", "--yes").exit_code == 0
    assert json.loads(cli("worktrees", "list", "--json").stdout) == {"worktrees": []}


@pytest.mark.parametrize("command", ["show", "merge", "discard"])
def test_unknown_id_is_refused_with_the_command_that_lists(cli, repository, command):
    done = cli("worktrees", command, "nosuch1d")
    assert done.exit_code == 2
    assert 'Session "nosuch1d" has no worktree. `retinue worktrees list`' in done.stderr


def test_changes_of_a_run_are_printed_with_the_command_that_applies_them(cli, repository, changed):
    done = cli("resume", changed, "more", "--engine", "scripted", script=SCRIPT)
    assert f"1 file changed (+1 −1) on branch retinue/explorer-{changed}" in done.stderr
    assert f"tip: `retinue worktrees merge {changed}` applies them to your files." in done.stderr


def test_last_session_of_the_directory_includes_those_in_worktrees(cli, repository, changed):
    done = cli("run", "-c", "more", "--engine", "scripted", "--json", script=SCRIPT)
    assert json.loads(done.stdout)["session"][:8] == changed


def test_run_that_changes_nothing_reports_that_its_worktree_was_removed(cli, repository):
    done = cli("run", "explorer", "look", "--isolation", "worktree", "--engine", "scripted", script=SCRIPT)
    assert "explorer: nothing was changed in its worktree, which was removed" in done.stderr.splitlines()


def test_sessions_show_states_where_the_changes_are(cli, repository, changed):
    cli("resume", changed, "more", "--engine", "scripted", script=SCRIPT)
    lines = cli("sessions", "show", changed).stdout.splitlines()
    (fact, report) = [line.split(maxsplit=1)[1] for line in lines if line.startswith("worktree ")]
    assert fact == f"changed, branch retinue/explorer-{changed} of {repository}"
    assert report.startswith(f"1 file changed (+1 −1) on branch retinue/explorer-{changed}, in ")


def test_merge_that_does_not_fit_names_the_cause_in_a_sentence_of_its_own(cli, repository, changed):
    write_files(repository, {"a.txt": "three\n"})
    done = cli("worktrees", "merge", changed)
    assert done.exit_code == 2
    assert "a.txt: patch does not apply. Nothing was changed. Merge them by hand with `git merge" in done.stderr
