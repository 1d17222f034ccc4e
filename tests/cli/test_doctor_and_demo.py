"""Tests of `doctor` and `demo`."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import pytest

from retinue.config.settings import SETTING_RULES


def test_doctor_exits_with_0_without_problems(cli):
    result = cli("doctor")
    assert result.exit_code == 0
    assert "✓  offline" in result.stdout
    assert "(auto uses it)" in result.stdout
    assert "Problems to fix" not in result.stdout


def test_doctor_begins_with_whether_a_model_can_be_used(cli):
    without = cli("doctor")
    assert without.stdout.startswith("! No engine with a language model is ready: ")
    assert "`retinue setup`" in without.stdout.splitlines()[0]
    ready = cli("doctor", OPENAI_API_KEY="sk-1").stdout
    assert ready.startswith("✓ Ready: api, openai/gpt-6.1-terra by OPENAI_API_KEY, in this process\n")
    broken = cli("doctor", OPENAI_API_KEY="sk-1", RETINUE_TIMEOUT="soon").stdout
    assert "✗ 1 problem to fix" in broken.splitlines()[1]


def test_doctor_prints_settings_that_differ_from_their_defaults(cli):
    found = cli("doctor", RETINUE_MAX_TURNS="9").stdout
    names = re.findall(r"^  (\w+) +\S+ +(?:environment|default)\b", found, re.MULTILINE)
    assert names == ["max_turns"]
    listed = cli("doctor", RETINUE_MODELS="anthropic/*,openai/gpt-*").stdout
    assert re.search(r"^  models +anthropic/\*, openai/gpt-\* +environment", listed, re.MULTILINE)
    assert f"{len(SETTING_RULES) - 1} others have their defaults (retinue doctor --all)" in found
    assert "all settings have their defaults" in cli("doctor").stdout


@pytest.mark.parametrize("columns", [40, 80])
def test_doctor_cuts_nothing_on_a_narrow_terminal(cli, columns):
    found = cli("doctor", "--all", COLUMNS=str(columns)).stdout
    words = " ".join(found.split())
    for rule in SETTING_RULES.values():
        assert " ".join(rule.note.split()) in words
    assert "…" not in found


def test_doctor_prints_every_setting_with_its_source(cli, scratch_home):
    folder = scratch_home / ".config" / "retinue"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("max_concurrency = 2\n[single]\ntimeout = 60\n")
    result = cli("doctor", "--all", RETINUE_MAX_TURNS="9")
    for name in SETTING_RULES:
        assert re.search(rf"^  {name}\s", result.stdout, re.MULTILINE), name
    assert re.search(r"max_concurrency +2 +\S+/config\.toml", result.stdout)
    assert re.search(r"max_turns +9 +environment", result.stdout)
    assert re.search(r"timeout +1800 \(single 60, fanout 600\) +default \(single \S+/config\.toml\)", result.stdout)


def test_doctor_reports_problems_with_what_to_do(cli, place, scratch_home):
    (place / "file").touch()
    folder = scratch_home / ".config" / "retinue"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("timout = 60\n")
    result = cli("doctor", RETINUE_STATE=str(place / "file" / "state"), RETINUE_ENABLED="perhaps")
    assert result.exit_code == 1
    assert "Did you mean timeout?" in result.stdout
    assert "✗ Sessions cannot be stored" in result.stdout
    assert "RETINUE_ENABLED='perhaps' cannot be read: expected true or false" in result.stdout


def test_doctor_reports_a_state_folder_writable_by_others(cli, place):
    state = place / "state"
    state.mkdir()
    state.chmod(0o777)
    result = cli("doctor", RETINUE_STATE=str(state))
    assert result.exit_code == 1
    assert (
        f"✗ Other users can change the stored sessions in {state} (mode 777). Run: chmod go-w {state}"
        in result.stdout
    )


def test_doctor_finds_a_full_disk_by_writing(process, place):
    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    # Without byte code: Python would leave half of it behind.
    environ = {"RETINUE_STATE": str(place / "state"), "PYTHONDONTWRITEBYTECODE": "1"}
    result = process.run("doctor", environ=environ, preexec_fn=no_room)
    assert result.returncode == 1
    assert "✗ Sessions cannot be stored" in result.stdout
    assert "Free some space, or set RETINUE_STATE" in result.stdout
    assert not list(place.rglob(".doctor-*"))


def test_doctor_names_ignored_project_settings_without_failing(cli, place):
    (place / ".retinue").mkdir()
    (place / ".retinue" / "config.toml").write_text('engine = "evil"\n')
    result = cli("doctor")
    assert result.exit_code == 0
    assert "engine cannot be set by a project; ignored" in result.stdout


def test_doctor_prints_its_report_as_json(cli):
    found = json.loads(cli("doctor", "--json").stdout)
    assert found["broken"] == []
    assert {setting["name"] for setting in found["settings"]} == set(SETTING_RULES)
    assert [engine["name"] for engine in found["engines"] if engine["isChosen"]] == ["offline"]
    assert found["state"]["sessions"] == 0


def test_demo_prints_evidence_and_the_next_commands(cli, place):
    (place / "app.py").write_text(
        '"""An app."""\n\n\ndef read_configuration():\n    """Reads the configuration."""\n    raise ValueError("error")\n'
    )
    (place / "README.md").write_text("# App\n\n## Installation\n\nInstall it.\n\n## Usage\n\nUse it.\n")
    result = cli("demo", "--quiet")
    assert result.exit_code == 0
    places = re.findall(r"^  (\S+):(\d+)  ", result.stdout, re.MULTILINE)
    assert places
    for path, line in places:
        assert len((place / path).read_text().splitlines()) >= int(line)
    session = re.findall(r"retinue sessions show (\w{8})", result.stdout)[0]
    assert cli("sessions", "show", session).exit_code == 0
    assert len(json.loads(cli("sessions", "--json").stdout)["sessions"]) == 5


def test_demo_without_sources_uses_those_of_retinue(cli):
    result = cli("demo", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert result.stderr.startswith("Five agents search the source of Retinue, as this directory has none (")
    (session, *_) = json.loads(cli("sessions", "--json").stdout)["sessions"]
    assert Path(session["cwd"]).name == "retinue"
    assert [run["status"] for run in found["results"]] == ["completed"] * 5


@pytest.mark.parametrize("columns", ["20", "40", "200"])
def test_demo_fits_any_terminal_width(cli, place, columns):
    (place / "app.py").write_text("def configuration_with_a_very_long_name_for_a_function_of_its_kind(): pass\n" * 5)
    result = cli("demo", "--quiet", COLUMNS=columns)
    told, _, _ = result.stdout.partition("Each run is a session")
    assert max(map(len, told.splitlines())) <= int(columns)
