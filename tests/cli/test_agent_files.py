"""Tests of `agents edit`, which checks the edited file, and `agents delete`, which asks first."""

from __future__ import annotations

import json
import sys

import pytest

MINE = "---\nname: mine\ndescription: Mine\ntools: read\napiKey: sk-very-secret\n---\nDo it.\n"


@pytest.fixture
def mine(scratch_home):
    path = scratch_home / ".config" / "retinue" / "agents" / "mine.md"
    path.parent.mkdir(parents=True)
    path.write_text(MINE)
    return path


@pytest.fixture
def theirs(place):
    """Return the file of a read-only project agent of the same name, which is used."""
    (place / ".git").mkdir()
    path = place / ".retinue" / "agents" / "mine.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: mine\ndescription: The project's\ntools: read\n---\nx\n")
    return path


@pytest.fixture
def editor(tmp_path):
    """Return a function that sets an editor which replaces one text by another: `editor("read", "bash")`."""

    def set_editor(before, after):
        program = tmp_path / "my editor.py"
        program.write_text(
            "import sys, pathlib\n"
            "path = pathlib.Path(sys.argv[1])\n"
            f"path.write_text(path.read_text().replace({before!r}, {after!r}))\n"
        )
        return f"{sys.executable} '{program}'"

    return set_editor


# -- edit ------------------------------------------------------------------------------------------


def test_agents_edit_opens_the_file_and_checks_it(cli, mine, editor):
    result = cli("agents", "edit", "mine", EDITOR=editor("Do it.", "Do it well."))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{mine} has no problems.\n"
    assert mine.read_text() == MINE.replace("Do it.", "Do it well.")


def test_agents_edit_reports_problems_and_keeps_the_file(cli, mine, editor):
    result = cli("agents", "edit", "mine", EDITOR=editor("tools: read", "toolz: read\nreadonly: perhaps"))
    assert result.exit_code == 1
    assert result.stdout == f"{mine}:5: readonly: 'perhaps' is not true or false\n"
    assert "has 1 problem" in result.stderr
    assert "perhaps" in mine.read_text()


def test_agents_edit_finds_a_broken_file_by_its_name(cli, mine, editor):
    mine.write_text(MINE.replace("tools: read", "readonly: perhaps"))
    result = cli("agents", "edit", "mine", "--json", EDITOR=editor("perhaps", "true"))
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"name": "mine", "file": str(mine), "problems": []}


def test_agents_edit_opens_the_definition_that_is_used(cli, mine, theirs, editor):
    assert cli("agents", "edit", "mine", EDITOR=editor("x", "y"), RETINUE_PROJECT_AGENTS="allow").exit_code == 0
    assert theirs.read_text().endswith("y\n")
    assert mine.read_text() == MINE


def test_agents_edit_reports_that_a_project_agent_needs_trust_again(cli, theirs, editor):
    result = cli("agents", "edit", "mine", EDITOR=editor("tools: read", "tools: bash"))
    assert "approve its current version with `retinue agents trust mine`" in result.stderr


@pytest.mark.parametrize("editor_words", ["false", "/nonexistent/editor"])
def test_agents_edit_reports_an_editor_that_fails(cli, mine, editor_words):
    result = cli("agents", "edit", "mine", EDITOR=editor_words)
    assert result.exit_code == 1
    assert "Editing failed" in result.stderr


def test_agents_edit_reports_a_file_that_the_editor_removed(cli, mine):
    assert cli("agents", "edit", "mine", EDITOR="rm").stderr == f"{mine} no longer exists.\n"


# -- delete ----------------------------------------------------------------------------------------


def test_agents_delete_without_a_terminal_needs_yes(cli, mine):
    result = cli("agents", "delete", "mine")
    assert result.exit_code == 2
    assert f"pass --yes to delete {mine}." in " ".join(result.stderr.split())
    assert mine.exists()


def test_agents_delete_removes_a_file_of_the_user(cli, mine):
    result = cli("agents", "delete", "mine", "--yes", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"name": "mine", "file": str(mine), "deleted": True}
    assert not mine.exists()
    assert cli("agents", "show", "mine").exit_code == 2


def test_agents_delete_names_the_definition_that_is_used_now(cli, mine, theirs):
    result = cli("agents", "delete", "mine", "--yes", RETINUE_PROJECT_AGENTS="allow")
    assert result.stderr == f"{theirs} was deleted.\nThe user agent mine is used now ({mine}).\n"


@pytest.mark.parametrize("command", [("edit",), ("delete", "--yes")])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "explorer",
            "explorer is built in and has no file that you can change. `retinue agents new explorer` creates one",
        ),
        ("nobody", "Unknown agent: nobody. Available agents: explorer"),
        ("../../etc/passwd", "Unknown agent: ../../etc/passwd."),
    ],
)
def test_built_in_agents_cannot_be_edited_or_deleted(cli, command, name, told):
    result = cli("agents", command[0], name, *command[1:], EDITOR="false")
    assert result.exit_code == 2
    assert told in result.stderr


def test_vault_agents_cannot_be_edited_or_deleted(cli, place):
    folder = place / "vault" / "agents" / "sage"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: sage\ndescription: Wise\n")
    (folder / "AGENTS.md").write_text("You are wise.\n")
    result = cli("agents", "delete", "sage", "--yes", RETINUE_VAULT=str(place / "vault"))
    assert result.exit_code == 2
    assert f"sage belongs to the vault ({folder}): change it there." in result.stderr
