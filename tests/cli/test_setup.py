"""Tests of `setup`: engines, the settings file, and the trial task."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cli_terminal import ON_A_TERMINAL

from retinue.hosts.config_editors import UnsupportedConfigError, set_toml_values

WRITTEN = """\
# mine
timeout = 60 # short

[fanout]
engine = "auto"
"""


@pytest.fixture
def config() -> Path:
    return Path(os.environ["HOME"]) / ".config" / "retinue" / "config.toml"


def test_setup_without_a_model_writes_nothing_and_uses_the_offline_engine(cli, place, config):
    (place / "README.md").write_text("# Lamp\n\nThe main entry point switches lamps.\n")
    done = cli("setup", "--yes")
    assert done.exit_code == 0
    assert "No engine with a language model is ready yet" in done.stderr
    assert "README.md" in done.stdout
    assert not config.exists()


def test_setup_writes_and_tries_the_requested_engine(cli, config):
    done = cli("setup", "--engine", "scripted", "--yes", "--json", script=[{"say": "Here."}])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["engine"], report["changed"], report["file"]) == (0, "scripted", True, str(config))
    assert report["result"]["text"] == "Here."
    assert config.read_text() == 'engine = "scripted"\n'
    assert '+engine = "scripted"' in done.stderr
    again = json.loads(cli("setup", "--engine", "scripted", "--json", "--no-run").stdout)
    assert (again["changed"], again["result"]) == (False, None)


def test_setup_keeps_other_settings_and_a_backup(cli, config):
    config.parent.mkdir(parents=True)
    config.write_text(WRITTEN)
    assert cli("setup", "--engine", "offline", "--model", "m", "--yes", "--no-run").exit_code == 0
    top = '# mine\ntimeout = 60 # short\nengine = "offline"\nmodel = "m"\n'
    assert config.read_text() == f'{top}\n[fanout]\nengine = "auto"\n'
    assert config.with_name("config.toml.before-retinue").read_text() == WRITTEN


def test_setup_follows_a_link_and_keeps_it(cli, config, place):
    real = place / "dotfiles.toml"
    real.write_text('engine = "auto" # for now\r\n')
    config.parent.mkdir(parents=True)
    config.symlink_to(real)
    assert cli("setup", "--engine", "offline", "--model", "m", "--yes", "--no-run").exit_code == 0
    assert config.is_symlink()
    assert real.read_bytes() == b'engine = "offline" # for now\r\nmodel = "m"\r\n'


def test_setup_without_a_task_reports_the_written_file(cli, config):
    message = f"{config} was written. Next: "
    assert message in cli("setup", "--engine", "offline", "--yes", "--no-run").stderr
    assert message not in cli("setup", "--engine", "offline", "--yes", "--no-run").stderr
    assert message not in cli("setup", "--engine", "scripted", "--dry-run").stderr


def test_setup_without_a_choice_leaves_the_file_unchanged(cli, config):
    config.parent.mkdir(parents=True)
    config.write_text("timeout = 60\n[fanout]\nmodel = 'm'\n")
    before = config.read_text()
    assert cli("setup", "--yes", "--no-run").exit_code == 0
    assert config.read_text() == before
    assert not config.with_name("config.toml.before-retinue").exists()


def test_setup_dry_run_writes_and_runs_nothing(cli, config):
    done = cli("setup", "--engine", "offline", "--dry-run")
    assert (done.exit_code, done.stdout, config.exists()) == (0, "", False)
    assert '+engine = "offline"' in done.stderr


def test_setup_without_a_terminal_needs_yes(cli, config):
    done = cli("setup", "--engine", "offline")
    assert (done.exit_code, config.exists()) == (2, False)
    assert "Not a terminal: pass --yes to write them or --dry-run to preview." in done.stderr


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (
            "offlin",
            "Unknown engine: offlin. Did you mean offline? Engines: pi, claude, api, offline, scripted.",
        ),
        ("pi", "pi cannot be used: no `pi` on the PATH."),
    ],
)
def test_setup_refuses_an_unusable_engine_with_what_to_do(cli, config, place, engine, sentence):
    done = cli("setup", "--engine", engine, "--yes", PATH=str(place))
    assert (done.exit_code, config.exists()) == (2, False)
    assert sentence in done.stderr


def test_setup_leaves_an_invalid_file_unchanged(cli, config):
    config.parent.mkdir(parents=True)
    config.write_text("engine = \n")
    done = cli("setup", "--engine", "offline", "--yes")
    assert (done.exit_code, config.read_text()) == (2, "engine = \n")
    assert 'Add this by hand:\n\nengine = "offline"' in done.stderr


def test_setup_reports_a_failed_task_and_keeps_the_settings(cli, config):
    failing = [{"say": "", "stop_reason": "error", "error": "401 Unauthorized"}]
    done = cli("setup", "--engine", "scripted", "--yes", script=failing)
    assert done.exit_code == 1
    assert "Test passed" not in done.stderr
    assert config.read_text() == 'engine = "scripted"\n'


@pytest.mark.process
@pytest.mark.parametrize(("answer", "code", "word"), [("y", 0, "Next:"), ("n", 1, "Nothing")])
def test_setup_on_a_terminal_asks_for_the_engine_and_for_consent(
    process, terminal, config, place, answer, code, word
):
    (place / "pi").write_text("#!/bin/sh\n")
    (place / "pi").chmod(0o700)
    running = process.start(
        "setup",
        "--no-run",
        stdin=terminal.device,
        stdout=subprocess.DEVNULL,
        stderr=terminal.device,
        environ={**ON_A_TERMINAL, "PATH": str(place), "ANTHROPIC_API_KEY": "k"},
    )
    terminal.read_until("[pi]: ")
    terminal.type("offline\n")
    terminal.read_until("Make this change?")
    terminal.type(f"{answer}\n")
    terminal.read_until(word)
    assert running.wait(30) == code
    assert (config.read_text() if config.exists() else None) == ('engine = "offline"\n' if answer == "y" else None)


LINES = st.sampled_from(
    ["engine = 'auto'", "# engine = 1", "", "timeout = 5", "[single]", '[fanout] # "x"', "model = '''a", "'''", "\r"]
)


@given(st.lists(LINES, max_size=8).map("\n".join), st.text(min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_setting_toml_values_keeps_all_other_values_or_is_refused(text: str, value: str) -> None:
    try:
        after = set_toml_values(text, {"engine": value})
    except UnsupportedConfigError:
        return
    assert tomllib.loads(after) == {**tomllib.loads(text), "engine": value}
