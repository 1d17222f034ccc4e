"""Tests of `install` and `uninstall`, and of the check of installations by `doctor`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.support.cli_terminal import ON_A_TERMINAL

from retinue.hosts.hosts import HOSTS
from retinue.hosts.own_command import own_command

SECRET = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"
CONFIG = f'{{"mcpServers": {{"demo": {{"command": "demo", "env": {{"TOKEN": "{SECRET}"}}}}}}}}'


@pytest.fixture
def config() -> Path:
    return Path(os.environ["HOME"]) / ".claude.json"


@pytest.mark.parametrize("host", HOSTS)
def test_install_adds_the_entry_and_uninstall_removes_it(cli, place, host):
    done = cli("install", host, "--yes", RETINUE_ENGINE="offline")
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"Retinue is installed in {HOSTS[host].title} (" in done.stderr
    assert "+" in done.stderr
    again = cli("install", host, RETINUE_ENGINE="offline")
    assert (again.exit_code, "already installed" in again.stderr) == (0, True)
    assert cli("doctor", "--json", RETINUE_ENGINE="offline").exit_code == 0
    gone = cli("uninstall", host, "--yes")
    assert (gone.exit_code, "is no longer installed" in gone.stderr) == (0, True)
    assert "Retinue is not installed" in cli("uninstall", host).stderr


def test_dry_run_of_install_changes_nothing(cli, config):
    config.write_text(CONFIG)
    done = cli("install", "claude", "--dry-run", "--json")
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert (told["installed"], told["changed"], told["backup"]) == (False, False, None)
    assert config.read_text() == CONFIG
    assert list(config.parent.glob(".claude.json?*")) == []


def test_dry_run_reports_the_present_installation(cli):
    cli("install", "codex", "--yes")
    for looking in (
        ("install", "codex", "--dry-run", "--json", "--", "--background"),
        ("uninstall", "codex", "--dry-run", "--json"),
    ):
        done = cli(*looking)
        assert "Retinue is still installed in Codex" in done.stderr
        assert json.loads(done.stdout)["installed"] is True
    preview = cli("install", "cursor", "--dry-run").stderr.splitlines()[-1]
    assert preview == (
        "Dry run; `retinue install cursor` asks and makes this change. Nothing was changed: Retinue is not installed in "
        "Cursor."
    )


def test_dry_run_prints_the_command_with_its_options_and_arguments(cli):
    preview = cli("install", "codex", "--project", "--toolset", "single", "--dry-run", "--", "--engine", "offline")
    command = "`retinue install codex --project --toolset single -- --engine offline`"
    assert f"Dry run; {command} asks and makes this change." in preview.stderr
    cli("install", "codex", "--project", "--yes")
    preview = cli("uninstall", "codex", "--project", "--dry-run")
    assert "Dry run; `retinue uninstall codex --project` asks and makes this change." in preview.stderr


def test_install_as_json_has_the_change_and_the_backup(cli, config):
    config.write_text(CONFIG)
    done = cli("install", "claude", "--yes", "--json", "--toolset", "sticky")
    told = json.loads(done.stdout)
    change = told.pop("change")
    assert told == {
        "host": "claude",
        "file": str(config),
        "installed": True,
        "changed": True,
        "backup": f"{config}.before-retinue",
    }
    assert [line.partition("{")[0] for line in change] == ['+…, "retinue": ']
    command, *arguments = own_command()
    assert json.loads(config.read_text())["mcpServers"]["retinue"] == {
        "type": "stdio",
        "command": command,
        "args": [*arguments, "mcp", "--toolset", "sticky"],
        "env": {},
    }
    assert SECRET in config.read_text()
    assert SECRET not in done.output, "what stands beside our entry is nobody's business"


@pytest.mark.parametrize(
    "text", ["{%s}\n", '{\n  "theme": "dark",\n  %s\n}\n'], ids=["all in one line", "the servers in one line"]
)
def test_install_shows_only_its_part_of_a_line(cli, config, text):
    config.write_text(text % f'"mcpServers": {{"docs": {{"command": "docs", "env": {{"TOKEN": "{SECRET}"}}}}}}')
    installed, removed = cli("install", "claude", "--yes"), cli("uninstall", "claude", "--dry-run")
    for shown, sign in ((installed, "+"), (removed, "-")):
        change = [line for line in shown.stderr.splitlines() if line.startswith(("+", "-"))]
        assert [line.partition("{")[0] for line in change] == [f'{sign}…, "retinue": ']
        assert SECRET not in shown.output


def test_unreadable_configuration_is_unchanged_and_the_entry_is_printed(cli, config):
    config.write_text('{\n  # mine\n  "mcpServers": {}\n}\n')
    before = config.read_text()
    done = cli("install", "claude", "--yes", "--json")
    assert done.exit_code == 2
    assert f"{config} was not changed: the file is not valid JSON: " in done.stderr
    assert ". Add this by hand:" in done.stderr
    assert '"retinue": {' in done.stderr
    assert json.loads(done.stdout)["status"] == "refused"
    assert config.read_text() == before


def test_install_without_a_terminal_needs_yes(cli, config):
    done = cli("install", "claude")
    assert (done.exit_code, config.exists()) == (2, False)
    assert "pass --yes to install or --dry-run to preview" in done.stderr


@pytest.mark.process
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_install_asks_on_a_terminal(process, terminal, config, answer, code):
    running = process.start(
        "install",
        "claude",
        stdin=terminal.device,
        stdout=subprocess.DEVNULL,
        stderr=terminal.device,
        environ=ON_A_TERMINAL,
    )
    assert "mcpServers" in terminal.read_until("Make this change?")
    terminal.type(f"{answer}\n")
    assert running.wait(30) == code
    assert config.exists() is (answer == "y")


def test_install_project_writes_the_file_of_the_project(cli, place, config):
    assert cli("install", "claude", "--project", "--yes").exit_code == 0
    assert "retinue" in json.loads((place / ".mcp.json").read_text())["mcpServers"]
    assert not config.exists()
    assert cli("uninstall", "claude", "--project", "--yes").exit_code == 0
    assert not (place / ".mcp.json").exists()


def host_lines(done) -> list[list[str]]:
    """Return the lines of `doctor` about hosts, split into words."""
    return [line.split() for line in done.stdout.partition("Installed in\n")[2].partition("\n\n")[0].splitlines()]


def test_doctor_starts_retinue_as_each_host_does_and_counts_its_tools(cli):
    assert host_lines(cli("doctor")) == [["no", "other", "program", "(retinue", "install)"]]
    cli("install", "pi", "--yes", "--", "--engine", "offline")
    cli("install", "claude", "--yes", "--", "--engine", "offline")
    cli("install", "codex", "--yes", "--toolset", "nested", "--", "--engine", "offline")
    done = cli("doctor")
    assert done.exit_code == 0
    assert [(line[0], line[1], line[-6:]) for line in host_lines(done)] == [
        ("✓", "pi", ["4", "tools", "when", "it", "is", "started"]),
        ("✓", "Claude", ["5", "tools", "when", "it", "is", "started"]),
        ("✓", "Codex", ["2", "tools", "when", "it", "is", "started"]),
    ]
    hosts = json.loads(cli("doctor", "--json").stdout)["hosts"]
    assert [(host["name"], host["tools"], host["isOurs"]) for host in hosts] == [
        ("pi", 4, True),
        ("claude", 5, True),
        ("codex", 2, True),
    ]


def test_doctor_reports_entries_that_do_not_start_retinue(cli, config):
    cli("install", "claude", "--yes")
    config.write_text(config.read_text().replace(own_command()[0], "/nowhere/retinue"))
    done = cli("doctor")
    assert done.exit_code == 1
    assert host_lines(done)[0][:3] == ["✗", "Claude", "Code"]
    assert (
        "Claude Code starts a program that does not exist (/nowhere/retinue). Run: retinue install claude"
        in done.stdout
    )


def test_doctor_reports_why_a_host_gets_no_tools(cli, config):
    cli("install", "claude", "--yes")
    entry = json.loads(config.read_text())
    entry["mcpServers"]["retinue"]["args"] = ["mcp", "--toolset", "single,sticky"]
    config.write_text(json.dumps(entry))
    done = cli("doctor")
    assert done.exit_code == 1
    assert (
        f"Claude Code cannot use the server it starts ({own_command()[0]} mcp --toolset single,sticky): the server "
        "printed: The toolsets single and sticky both have a tool subagent: choose one of the toolsets."
    ) in done.stdout


def test_doctor_starts_only_this_installation(cli, place):
    trap = place / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {place}/sprung\n")
    trap.chmod(0o755)
    entry = {"command": str(trap), "args": ["mcp", "--engine", "offline"]}
    (place / ".mcp.json").write_text(json.dumps({"mcpServers": {"retinue": entry}}))
    done = cli("doctor")
    assert host_lines(done)[0][-7:] == ["starts", "another", "program,", "which", "was", "not", "tested"]
    assert not (place / "sprung").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Calls from Claude Code are refused, because no engine with a language model is ready."),
        (
            ("--", "--engine", "pi"),
            "Calls from Claude Code are refused, because the engine pi cannot be used: no `pi`",
        ),
    ],
)
def test_install_without_an_engine_warns_that_calls_are_refused(cli, arguments, sentence):
    empty = {"PATH": "/nowhere", "RETINUE_PI": "", "ANTHROPIC_API_KEY": ""}
    done = cli("install", "claude", "--yes", *arguments, **empty)
    assert done.exit_code == 0
    assert sentence in done.stderr
    assert sentence in cli("doctor", **empty).stdout
    assert "are refused" not in cli("install", "claude", "--yes", "--", "--engine", "offline", **empty).stderr


def test_install_writes_nothing_if_the_server_does_not_start(cli, place, config):
    (place / "mcp.py").write_text("raise ImportError('no MCP here')\n")
    done = cli("install", "claude", "--yes", "--json", PYTHONPATH=str(place))
    assert (done.exit_code, config.exists()) == (2, False)
    assert "Claude Code cannot use the server it starts (" in done.stderr
    assert "no MCP here" in done.stderr
    assert "Nothing was changed." in done.stderr
    assert json.loads(done.stdout)["status"] == "refused"


# -- the environment of the host -------------------------------------------------------------------

NO_ENGINE = {"PATH": "/nowhere", "RETINUE_PI": "", "ANTHROPIC_API_KEY": "", "RETINUE_CLAUDE": "/nowhere"}
WITH_KEY = {**NO_ENGINE, "OPENAI_API_KEY": "sk-0123456789abcdef"}


@pytest.mark.parametrize(
    ("host", "line"), [("codex", '"OPENAI_API_KEY", '), ("gemini", '"OPENAI_API_KEY": "$OPENAI_API_KEY"')]
)
def test_install_writes_the_names_of_variables_and_no_value(cli, host, line):
    done = cli("install", host, "--yes", **WITH_KEY, RETINUE_TIMEOUT="5m", UNRELATED="1")
    assert done.exit_code == 0
    assert line in done.stderr
    assert "RETINUE_TIMEOUT" in done.stderr
    assert "UNRELATED" not in done.stderr
    assert "are refused" not in done.stderr
    written = Path(json.loads(cli("install", host, "--json", "--dry-run", **WITH_KEY).stdout)["file"]).read_text()
    assert "sk-0123" not in written


@pytest.mark.parametrize("host", ["codex", "gemini"])
def test_doctor_reports_a_key_that_the_host_does_not_pass(cli, host):
    cli("install", host, "--yes", **NO_ENGINE)
    title = HOSTS[host].title
    reported = json.loads(cli("doctor", "--json", **WITH_KEY).stdout)
    (sentence,) = reported["broken"]
    assert sentence.startswith(f"Calls from {title} are refused, because the host does not pass OPENAI_API_KEY")
    assert sentence.endswith(f"to its servers. Run: retinue install {host}")
    assert "OPENAI_API_KEY" in reported["hosts"][0]["missingVariables"]
    assert "sk-0123" not in json.dumps(reported)
    cli("install", host, "--yes", **WITH_KEY)
    assert json.loads(cli("doctor", "--json", **WITH_KEY).stdout)["broken"] == []


# -- what the host will start ----------------------------------------------------------------------


def test_arguments_of_install_are_written_to_the_entry(cli, config):
    assert (
        cli(
            "install", "claude", "--yes", "--toolset", "fanout", "--", "--background", "--engine", "offline"
        ).exit_code
        == 0
    )
    entry = json.loads(config.read_text())["mcpServers"]["retinue"]
    assert entry["args"][-6:] == ["mcp", "--toolset", "fanout", "--background", "--engine", "offline"]
    assert cli("doctor", "--json").exit_code == 0


def test_arguments_of_install_are_written_to_the_pi_extension(cli):
    assert cli("install", "pi", "--yes", "--", "--engine", "pi").exit_code == 0
    file = Path(os.environ["HOME"]) / ".pi" / "agent" / "extensions" / "retinue.js"
    assert '"arguments": ["--engine", "pi"]' in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("claude", "--toolset", "singel"), "Unknown toolset: singel. Did you mean single?"),
        (("claude", "--toolset", "single,sticky"), "both have a tool subagent: choose one of the toolsets."),
        (("pi", "--toolset", "single,fanout"), "Unknown toolset: single,fanout."),
        (("claude", "--", "--bogus"), "No such option '--bogus'."),
        (("claude", "--", "--timeout", "soon"), "Invalid value for '--timeout'"),
        (("claude", "--", "--http", "80"), "they are for a server that you start yourself."),
        (("claude", "--", "--root", "."), "Pass . as an absolute path"),
        (("pi", "--", "--cwd", "."), "Pass . as an absolute path"),
        (("pi", "--", "--background"), "No such option '--background'."),
        (("pi", "--", "--root", "abc"), "--root cannot be used here"),
        (("claude", "--", "--engine", "offlin"), "Unknown engine: offlin. Did you mean offline?"),
        (("cod",), "Invalid value for 'HOST': 'cod' is not one of 'pi'"),
    ],
)
def test_install_refuses_arguments_with_which_the_server_would_not_start(cli, place, arguments, sentence):
    before = sorted(Path(os.environ["HOME"]).rglob("*"))
    done = cli("install", "--yes", *arguments)
    assert (done.exit_code, sentence in done.stderr) == (2, True), done.stderr
    assert sorted(Path(os.environ["HOME"]).rglob("*")) == before
