"""Tests of `agents list`, `show`, `check`, `trust` and `new`."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from tests.support.claude_plugins import ClaudePlugins

FIXER = "---\nname: fixer\ndescription: Fixes things\ntools: read, bash\nmodel: big\ncolour: red\n---\nYou fix.\n"


@pytest.fixture
def project(place):
    """Create a project with an agent, an agent that shadows a built-in one, and a broken file."""
    (place / ".git").mkdir()
    folder = place / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "fixer.md").write_text(FIXER)
    (folder / "tester.md").write_text("---\nname: tester\ndescription: Ours\ntools: read\n---\nTest.\n")
    (folder / "broken.md").write_text("---\nname: broken\nreadonly: maybe\n---\n")
    return place


@pytest.fixture
def plugin_agent(scratch_home) -> Path:
    """Return the file of an agent of an enabled plugin of Claude Code."""
    plugins = ClaudePlugins(scratch_home)
    plugins.enable("kit@market")
    path = plugins.install("kit@market") / "agents" / "mender.md"
    path.parent.mkdir()
    path.write_text("---\nname: mender\ndescription: Repairs\ntools: Read\ntone: kind\n---\nYou repair.\n")
    return path


def test_agent_of_a_plugin_is_listed_shown_checked_and_run_by_its_short_name(cli, plugin_agent):
    listed = next(line for line in cli("agents").stdout.splitlines() if line.startswith("kit:mender"))
    assert listed.split() == ["kit:mender", "user", "read", "Repairs"]
    shown = dict(line.split(None, 1) for line in cli("agents", "show", "mender").stdout.splitlines()[:6])
    assert (shown["name"], shown["file"]) == ("kit:mender", str(plugin_agent))
    assert "also called      mender" in cli("agents", "show", "kit:mender").stdout
    assert f"{plugin_agent}: unknown key 'tone'; ignored" in cli("agents", "check").stdout
    run = cli("run", "mender", "Repair it", "--engine", "scripted", "--json")
    assert (run.exit_code, json.loads(run.stdout)["agent"]) == (0, "kit:mender")


@pytest.mark.parametrize("command", ["edit", "delete"])
def test_file_of_a_plugin_is_not_edited_or_deleted(cli, plugin_agent, command):
    result = cli("agents", command, "mender")
    assert result.exit_code == 2
    assert f"kit:mender belongs to a plugin of Claude Code ({plugin_agent})" in result.stderr
    assert plugin_agent.exists()


def test_agents_without_a_command_lists_agents(cli):
    alone = cli("agents")
    assert alone.stdout == cli("agents", "list").stdout
    first, *agents = alone.stdout.splitlines()
    assert first.split() == ["NAME", "LAYER", "TOOLS", "DESCRIPTION"]
    assert [line.split()[:2] for line in agents] == [
        [name, "builtin"] for name in ("explorer", "researcher", "reviewer", "implementer", "tester")
    ]


def test_list_has_at_most_two_lines_for_each_agent_at_80_columns(cli):
    listed = cli("agents", COLUMNS="80").stdout.splitlines()
    named = [line.split()[0] for line in listed if not line.startswith(" ")]
    assert named == ["NAME", "explorer", "researcher", "reviewer", "implementer", "tester"]
    assert len(listed) <= 1 + 2 * 5
    assert "…" not in "".join(listed)


def test_list_leaves_room_for_descriptions_beside_many_tools(cli):
    listed = cli("agents", COLUMNS="120").stdout.splitlines()
    assert listed[0].index("DESCRIPTION") <= 60
    (row,) = (line for line in listed if line.startswith("researcher "))
    assert "  read, grep, find, ls, +4  " in row
    assert "…" not in "".join(listed)


def test_list_marks_unused_definitions_and_names_broken_files(cli, project):
    result = cli("agents")
    rows = {line.partition("  ")[0]: line.split("  ", 1)[1].split()[0] for line in result.stdout.splitlines()[1:]}
    assert rows["fixer (not trusted)"] == "project"
    assert rows["tester (not trusted)"] == "project"
    assert rows["tester"] == "builtin"
    assert "1 file could not be used:" in result.stderr
    assert "broken.md" in result.stderr


def test_list_as_json_has_the_same_facts(cli, project):
    found = json.loads(cli("agents", "--json").stdout)
    (fixer,) = [agent for agent in found["agents"] if agent["name"] == "fixer"]
    assert fixer == {
        "name": "fixer",
        "aliases": [],
        "layer": "project",
        "status": "untrusted",
        "description": "Fixes things",
        "tools": ["read", "bash"],
        "file": str(project / ".retinue" / "agents" / "fixer.md"),
        "accepted": False,
        "shadowedBy": None,
        "shadows": [],
    }
    assert len(found["problems"]) == 1


def test_show_prints_everything_but_secrets(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.md").write_text("---\nname: mine\napiKey: sk-very-secret\nthinking: high\n---\nDo \x1b[31mit.\n")
    shown, as_json = cli("agents", "show", "mine"), cli("agents", "show", "mine", "--json")
    assert "api_key          ****" in shown.stdout
    assert "thinking         high" in shown.stdout
    assert "--- Prompt ---\nDo it.\n" in shown.stdout
    assert json.loads(as_json.stdout)["definitions"][0]["fields"]["api_key"] == "****"
    assert "sk-very-secret" not in shown.output + as_json.output


def test_show_names_persona_and_memory_files_without_their_text(cli, tmp_path):
    folder = tmp_path / "vault" / "agents" / "analyst"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: Analyst\ndescription: Digs.\n")
    (folder / "AGENTS.md").write_text("Dig.\n")
    (folder / "SOUL.md").write_text("You are a captain.\n")
    (folder / "MEMORY.md").write_text("Tea at five.\n")
    vault = str(tmp_path / "vault")
    shown = cli("agents", "show", "analyst", RETINUE_VAULT=vault)
    as_json = cli("agents", "show", "analyst", "--json", RETINUE_VAULT=vault)
    rows = [line.split(maxsplit=1) for line in shown.stdout.splitlines() if line.startswith(("persona", "memory"))]
    assert rows == [
        ["persona", f"{folder}/SOUL.md (not printed)"],
        ["memory", f"{folder}/MEMORY.md (not printed)"],
    ]
    assert shown.stdout.endswith("--- Prompt ---\nDig.\n")
    assert "captain" not in shown.output + as_json.output
    assert "Tea at five" not in shown.output + as_json.output


def test_check_reports_problems_of_agent_files(cli, project):
    all_of_them = cli("agents", "check")
    assert all_of_them.exit_code == 1
    assert "broken.md" in all_of_them.stdout
    assert "fixer.md: unknown key 'colour'; ignored" in all_of_them.stdout
    tester = str(project / ".retinue" / "agents" / "tester.md")
    assert cli("agents", "check", tester).exit_code == 0
    assert cli("agents", "check", "missing.md").exit_code == 2


def test_check_reports_restrictions_that_refuse_runs(cli, place):
    (place / "kept.md").write_text("---\nname: kept\npermission: {bash: {x: deny}}\ntone: kind\n---\nx\n")
    found = cli("agents", "check", str(place / "kept.md")).stdout
    assert [line.rpartition(".md: ")[2] for line in found.splitlines()] == [
        "permission: cannot be enforced, runs are refused",
        "unknown key 'tone'; ignored",
    ]


def test_check_reports_contradictory_tool_lists(cli, place):
    (place / "both.md").write_text("---\nname: both\ntools: read\ndenied_tools: bash\n---\nx\n")
    result = cli("agents", "check", "both.md")
    assert result.exit_code == 1
    assert "has both an allow list and a deny list of tools" in result.stdout


def test_check_reports_two_files_with_one_name_in_a_folder(cli, place):
    folder = place / ".retinue" / "agents"
    folder.mkdir(parents=True)
    for name in ("a", "b", "other"):
        (folder / f"{name}.md").write_text(
            f"---\nname: {'other' if name == 'other' else 'twin'}\ntools: read\n---\nx\n"
        )
    message = f"{folder / 'b.md'}: name: a.md also has the name twin and is used instead"
    for checked in (cli("agents", "check"), cli("agents", "check", str(folder))):
        assert checked.exit_code == 1
        assert [line.strip() for line in checked.stdout.splitlines() if "twin" in line] == [message]
    assert cli("agents", "check", str(folder / "b.md"), str(folder / "b.md")).exit_code == 0


def test_trust_holds_for_the_content_and_can_be_revoked(cli, project):
    assert cli("agents", "trust", "fixer").exit_code == 2  # nobody is there to ask
    accepted = cli("agents", "trust", "fixer", "--yes")
    assert accepted.exit_code == 0
    assert "tools  read, bash" in accepted.stderr
    assert cli("run", "fixer", "x", "--engine", "scripted").exit_code == 0
    (project / ".retinue" / "agents" / "fixer.md").write_text(FIXER + "And more.")
    assert cli("run", "fixer", "x", "--engine", "scripted").exit_code == 2
    assert json.loads(cli("agents", "trust", "fixer", "--yes", "--json").stdout)["trusted"] is True
    assert cli("agents", "trust", "fixer", "--revoke").exit_code == 0
    assert cli("run", "fixer", "x", "--engine", "scripted").exit_code == 2


def test_approval_of_an_agent_that_only_plans_shows_the_tools_it_gets(cli, project):
    file = project / ".claude" / "agents" / "planner.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: planner\ndescription: d\ntools: Read, Bash, Edit\npermissionMode: plan\n---\nPlan.\n")
    shown = cli("agents", "trust", "planner", "--yes")
    (tools,) = [line for line in shown.output.splitlines() if line.split()[:1] == ["tools"]]
    assert tools.split(maxsplit=1)[1] == "read"


def test_only_project_agents_can_be_trusted(cli):
    result = cli("agents", "trust", "explorer", "--yes")
    assert result.exit_code == 2
    assert "does not belong to this project" in result.stderr


def test_trust_that_cannot_be_stored_is_reported(cli, project):
    (project / "file").touch()
    result = cli("agents", "trust", "fixer", "--yes", RETINUE_STATE=str(project / "file" / "state"))
    assert result.exit_code == 1
    assert "fixer could not be approved" in result.stderr


@pytest.mark.parametrize("where", [(), ("--project",)])
def test_new_agent_is_valid_and_can_be_called(cli, place, where):
    made = cli("agents", "new", "auditor", *where)
    assert made.exit_code == 0
    path = made.stdout.strip()
    assert path.startswith(str(place)) is bool(where)
    assert cli("agents", "check", path).exit_code == 0
    assert cli("run", "auditor", "x", "--engine", "offline").exit_code == 0


def test_new_agent_file_is_private_under_any_umask(cli, place, scratch_home):
    before = os.umask(0)
    try:
        paths = [Path(cli("agents", "new", "auditor", *where).stdout.strip()) for where in ((), ("--project",))]
    finally:
        os.umask(before)
    for path in paths:
        made = [
            folder for folder in path.parents if folder.is_relative_to(place) or folder.is_relative_to(scratch_home)
        ]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in made[:-1]} == {0o700}


@pytest.mark.parametrize("link", [".retinue", ".retinue/agents"])
def test_new_project_agent_is_not_written_through_a_link_out_of_the_project(cli, place, tmp_path_factory, link):
    outside = tmp_path_factory.mktemp("outside")
    (place / ".git").mkdir()
    (place / link).parent.mkdir(exist_ok=True)
    (place / link).symlink_to(outside)
    result = cli("agents", "new", "auditor", "--project")
    assert result.exit_code == 2
    assert "is a link out of the project" in result.stderr
    assert list(outside.iterdir()) == []


def test_new_agent_reports_which_definition_of_its_name_is_used(cli, place):
    (place / ".git").mkdir()
    cli("agents", "new", "auditor", "--project")
    cli("agents", "trust", "auditor", "--yes")
    assert "Here the project agent auditor is used instead." in cli("agents", "new", "auditor").stderr


def test_unapproved_project_agent_is_used_instead_of_no_other(cli, project):
    result = cli("run", "tester", "look", "--engine", "offline", "--json")
    (notice,) = [line for line in json.loads(result.stdout)["actual"]["notices"] if "tester.md" in line]
    assert notice == (
        f"{project / '.retinue' / 'agents' / 'tester.md'}: is not approved, so the builtin tester is used; approve it "
        "with `retinue agents trust tester`"
    )


def test_summary_before_approval_names_extensions_skills_and_covered_files(cli, place):
    folder = place / ".retinue" / "agents"
    folder.mkdir(parents=True)
    (folder / "builder.md").write_text("---\nname: builder\nextensions: [./ext.ts]\nskills: [deploy]\n---\nBuild.\n")
    (place / "ext.ts").write_text("harm();\n")
    rows = [line.split() for line in cli("agents", "trust", "builder", "--yes").stderr.splitlines()]
    extension = str(place / "ext.ts")
    assert ["extensions", extension] in rows
    assert ["covers", extension] in rows
    assert any(row[0].endswith("skills") and row[1:] == ["deploy"] for row in rows if row)
    (place / "ext.ts").write_text("worse();\n")
    refused = cli("run", "builder", "x", "--engine", "offline")
    assert (refused.exit_code, "has not been approved, or has changed" in refused.stderr) == (2, True)


def test_file_name_with_a_newline_cannot_forge_a_line(cli, project):
    (project / ".retinue" / "agents" / "a\nfixer.md: all is well.md").write_text("---\nname: '?'\n---\n")
    for command in (("agents", "check"), ("agents", "check", ".retinue"), ("agents",), ("doctor",)):
        told = cli(*command).output.splitlines()
        assert not [line for line in told if line.strip().startswith("fixer.md: all is well")]


def test_new_agent_never_overwrites_a_file(cli):
    cli("agents", "new", "auditor")
    again = cli("agents", "new", "auditor")
    assert again.exit_code == 2
    assert "the file already exists" in again.stderr
    assert cli("agents", "new", "../evil").exit_code == 2
    assert "The new agent is used instead of the builtin agent tester." in cli("agents", "new", "tester").stderr
