"""`agents edit` and `agents delete`: files of one's own, checked after they were changed, asked about before they go."""

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
    """A project's agent of the same name, which is used as it only reads."""
    (place / ".git").mkdir()
    path = place / ".retinue" / "agents" / "mine.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: mine\ndescription: The project's\ntools: read\n---\nx\n")
    return path


@pytest.fixture
def editor(tmp_path):
    """An editor that replaces one text by another: `editor("read", "bash")`."""

    def made(before, after):
        program = tmp_path / "my editor.py"
        program.write_text(
            "import sys, pathlib\n"
            "path = pathlib.Path(sys.argv[1])\n"
            f"path.write_text(path.read_text().replace({before!r}, {after!r}))\n"
        )
        return f"{sys.executable} '{program}'"

    return made


# -- edit ------------------------------------------------------------------------------------------


def test_a_file_is_opened_and_checked_afterwards(cli, mine, editor):
    result = cli("agents", "edit", "mine", EDITOR=editor("Do it.", "Do it well."))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{mine} is in order.\n"
    assert mine.read_text() == MINE.replace("Do it.", "Do it well.")


def test_what_is_wrong_afterwards_is_said_and_kept(cli, mine, editor):
    result = cli("agents", "edit", "mine", EDITOR=editor("tools: read", "toolz: read\nreadonly: perhaps"))
    assert result.exit_code == 1
    assert result.stdout == f"{mine}:5: readonly: 'perhaps' is not true or false\n"
    assert "has 1 to mend" in result.stderr
    assert "perhaps" in mine.read_text()


def test_a_broken_file_can_be_mended(cli, mine, editor):
    mine.write_text(MINE.replace("tools: read", "readonly: perhaps"))
    result = cli("agents", "edit", "mine", "--json", EDITOR=editor("perhaps", "true"))
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"name": "mine", "file": str(mine), "problems": []}


def test_of_several_files_it_is_the_one_that_is_used(cli, mine, theirs, editor):
    assert cli("agents", "edit", "mine", EDITOR=editor("x", "y")).exit_code == 0
    assert theirs.read_text().endswith("y\n")
    assert mine.read_text() == MINE


def test_a_projects_file_is_to_be_accepted_as_it_is_then(cli, theirs, editor):
    result = cli("agents", "edit", "mine", EDITOR=editor("tools: read", "tools: bash"))
    assert "accept it as it is written now with `retinue agents trust mine`" in result.stderr


@pytest.mark.parametrize("editor_words", ["false", "/nonexistent/editor"])
def test_an_editor_that_fails_is_said(cli, mine, editor_words):
    result = cli("agents", "edit", "mine", EDITOR=editor_words)
    assert result.exit_code == 1
    assert "Editing failed" in result.stderr


def test_a_file_that_is_gone_afterwards_is_said(cli, mine):
    assert cli("agents", "edit", "mine", EDITOR="rm").stderr == f"{mine} is gone.\n"


# -- delete ----------------------------------------------------------------------------------------


def test_nothing_is_deleted_where_nobody_can_be_asked(cli, mine):
    result = cli("agents", "delete", "mine")
    assert result.exit_code == 2
    assert f"give --yes to delete {mine}." in " ".join(result.stderr.split())
    assert mine.exists()


def test_a_file_of_ones_own_is_deleted(cli, mine):
    result = cli("agents", "delete", "mine", "--yes", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"name": "mine", "file": str(mine), "deleted": True}
    assert not mine.exists()
    assert cli("agents", "show", "mine").exit_code == 2


def test_it_says_which_agent_of_the_name_is_used_then(cli, mine, theirs):
    result = cli("agents", "delete", "mine", "--yes")
    assert result.stderr == f"{theirs} is deleted.\nThe user agent mine is used now ({mine}).\n"


@pytest.mark.parametrize("command", [("edit",), ("delete", "--yes")])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("explorer", "explorer is built in, so it has no file of yours. `retinue agents new explorer` begins one"),
        ("nobody", "Unknown agent: nobody. Available agents: explorer"),
        ("../../etc/passwd", "Unknown agent: ../../etc/passwd."),
    ],
)
def test_what_is_nobodys_own_is_neither_edited_nor_deleted(cli, command, name, told):
    result = cli("agents", command[0], name, *command[1:], EDITOR="false")
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_vaults_agent_is_changed_where_it_is(cli, place):
    folder = place / "vault" / "agents" / "sage"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: sage\ndescription: Wise\n")
    (folder / "AGENTS.md").write_text("You are wise.\n")
    result = cli("agents", "delete", "sage", "--yes", RETINUE_VAULT=str(place / "vault"))
    assert result.exit_code == 2
    assert f"sage is of the vault ({folder}): change it there." in result.stderr
