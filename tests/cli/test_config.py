"""Tests of `config`: the settings file, its values, and what is refused."""

from __future__ import annotations

import json
import tomllib

import pytest


@pytest.fixture
def file(scratch_home):
    return scratch_home / ".config" / "retinue" / "config.toml"


def test_path_is_that_of_the_user_or_of_the_project(cli, place, file):
    assert cli("config", "path").stdout == f"{file}\n"
    assert cli("config", "path", "--project").stdout == f"{place / '.retinue' / 'config.toml'}\n"


def test_set_writes_typed_values_and_keeps_comments(cli, file):
    file.parent.mkdir(parents=True)
    file.write_text("# mine\ntimeout = 60 # short\n")
    for name, value in (("timeout", "300"), ("model", "openai/gpt-5"), ("warm_pool", "off"), ("max_turns", "9")):
        done = cli("config", "set", name, value)
        assert (done.exit_code, done.stdout) == (0, "")
    assert file.read_text().startswith("# mine\ntimeout = 300.0 # short\n")
    assert tomllib.loads(file.read_text()) == {
        "timeout": 300.0, "model": "openai/gpt-5", "warm_pool": False, "max_turns": 9,
    }  # fmt: skip


def test_patterns_of_models_are_written_as_a_list(cli, file):
    assert cli("config", "set", "models", "anthropic/*, openai/gpt-*").exit_code == 0
    assert tomllib.loads(file.read_text()) == {"models": ["anthropic/*", "openai/gpt-*"]}
    assert cli("config", "get", "models").stdout == "anthropic/*, openai/gpt-*\n"


def test_get_prints_the_value_that_applies_and_its_source(cli, file):
    cli("config", "set", "timeout", "300")
    done = cli("config", "get", "timeout")
    assert (done.stdout, done.stderr) == ("300\n", f"from {file}\n")
    found = json.loads(cli("config", "get", "timeout", "--json", RETINUE_TIMEOUT="5").stdout)
    assert found == {"name": "timeout", "value": 5.0, "source": "environment"}
    assert "max_turns = 0\n" in cli("config", "get").stdout
    assert json.loads(cli("config", "get", "--json").stdout)["timeout"] == 300.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("set", "timout", "5"), "Unknown setting: timout. Did you mean timeout?\n"),
        (("get", "timout"), "Unknown setting: timout. Did you mean timeout?\n"),
        (("set", "timeout", "soon"), "timeout = 'soon': expected seconds, e.g. 300 or 5m. Nothing was written."),
        (("set", "max_tasks", "0"), "max_tasks = '0' is out of range; 1 is used. Nothing was written."),
        (("set", "engine", "pi", "--project"), "engine is not a display setting"),
    ],
)
def test_unusable_setting_is_refused_and_nothing_written(cli, place, file, arguments, sentence):
    done = cli("config", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert not file.exists()
    assert not (place / ".retinue").exists()


def test_project_file_takes_settings_of_the_display(cli, place):
    assert cli("config", "set", "max_lines_per_window", "7", "--project").exit_code == 0
    assert (place / ".retinue" / "config.toml").read_text() == "max_lines_per_window = 7\n"
    assert cli("config", "get", "max_lines_per_window").stdout == "7\n"


def test_set_reports_a_stronger_source(cli):
    done = cli("config", "set", "timeout", "300", RETINUE_TIMEOUT="5")
    assert "warning: It has no effect here: timeout = 5 from environment." in done.stderr


def test_set_leaves_an_invalid_file_unchanged(cli, file):
    file.parent.mkdir(parents=True)
    file.write_text("engine = \n")
    done = cli("config", "set", "timeout", "5")
    assert (done.exit_code, file.read_text()) == (2, "engine = \n")
    assert "was not changed: " in done.stderr


def test_edit_opens_the_file_and_names_what_is_ignored(cli, place, file):
    editor = place / "editor"
    editor.write_text('#!/bin/sh\necho "timout = 5" >> "$1"\n')
    editor.chmod(0o700)
    done = cli("config", "edit", EDITOR=str(editor))
    assert (done.exit_code, file.read_text()) == (1, "timout = 5\n")
    assert f"warning: {file}: unknown setting 'timout' ignored. Did you mean timeout?" in done.stderr
    file.unlink()
    assert cli("config", "edit", EDITOR="true").exit_code == 0


def test_config_without_a_command_prints_its_help_and_no_error(cli):
    done = cli("config")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: retinue config [OPTIONS] COMMAND [ARGS]...\n")
    assert "error:" not in done.stderr
