"""The command as a whole: its help, what it imports, and how it ends whatever happens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import retinue
from retinue.frontends.cli.main import SECTIONS, root

COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


def every_command(command, path=()):
    """Each command with the words that call it, groups and what is in them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


def test_alone_it_prints_its_help(cli):
    alone, asked = cli(), cli("--help")
    assert alone.exit_code == asked.exit_code == 0
    assert alone.stdout == asked.stdout
    assert "retinue demo" in alone.stdout


def test_it_says_its_version(cli):
    assert cli("--version").stdout == f"retinue {retinue.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_in_the_list_is_the_commands_own(name):
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name].summary


@pytest.mark.parametrize(
    ("path", "command"), [(" ".join(path), command) for path, command in every_command(root) if path]
)
def test_every_command_explains_itself_within_eighty_columns(cli, path, command):
    result = cli(*path.split(), "--help")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "Examples:" in result.stdout
    assert command.help
    assert command.get_short_help_str(limit=200).endswith(".")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from retinue.frontends.cli.main import root; root.main(['--help'], standalone_mode=False);"
        "print([name for name in ('anyio', 'asyncio', 'msgspec', 'rich', 'yaml', 'sqlite3', 'retinue.app')"
        " if name in sys.modules], file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["frun"], "Did you mean run?"),
        (["sesions"], "Did you mean sessions?"),
        (["run", "--tmeout", "3", "explorer", "x"], "Did you mean '--timeout'?"),
        (["agents", "shw"], "Did you mean"),
        (["tools", "--surface", "singl"], "Did you mean single?"),
        (["run", "explrer", "x"], "Did you mean explorer?"),
        (["run", "explorer", "x", "--engine", "ofline"], "Did you mean offline?"),
        (["chain", "--step", "explorer", "x", "--step", "testr", "y"], "Did you mean tester?"),
        (["agents", "show", "reviwer"], "Did you mean reviewer?"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion_and_nothing_runs(cli, arguments, hint):
    result = cli(*arguments)
    assert result.exit_code == 2
    assert hint in result.stderr
    assert result.stdout == ""


def test_an_unknown_agent_gets_the_exact_sentence_before_the_suggestion(cli):
    *_, sentence, hint = cli("run", "explrer", "x", "-q").stderr.splitlines()
    known = "explorer, researcher, reviewer, implementer, tester"
    assert sentence == f"Unknown agent: explrer. Available agents: {known}"
    assert hint == "Did you mean explorer?"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_completion(cli, shell):
    assert "_RETINUE_COMPLETE" in cli("completion", shell).stdout


def test_a_shell_completes_commands_and_agents(process):
    def completed(*words):
        environ = {
            "_RETINUE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("retinue", *words)),
            "COMP_CWORD": str(len(words)),
        }
        return process.run(environ=environ).stdout.split()

    assert "plain,sessions" in completed("sess")
    assert "plain,explorer" in completed("run", "expl")


# -- how it ends -----------------------------------------------------------------------------------


def test_an_error_that_should_not_happen_is_one_sentence_and_the_rest_on_request(process):
    # A state folder whose name no system takes.
    environ = {"RETINUE_STATE": "x" * 5000}
    failed = process.run("sessions", "list", environ=environ)
    assert failed.returncode == 1
    assert failed.stdout == ""
    assert failed.stderr.count("\n") == 1
    assert "RETINUE_DEBUG=1" in failed.stderr
    assert "Traceback" in process.run("sessions", "list", environ={**environ, "RETINUE_DEBUG": "1"}).stderr


def test_a_reader_who_leaves_early_is_no_reason_to_complain(process):
    reading, writing = os.pipe()
    os.close(reading)
    done = process.run("--help", stdout=writing)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_output_that_cannot_be_written_is_said(process):
    with Path("/dev/full").open("w") as full:
        done = process.run("--help", stdout=full)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_breaks_nothing(process, closed):
    done = process.run("run", "explorer", "x", "--engine", "scripted", preexec_fn=lambda: os.close(closed))
    assert done.returncode == 0
    assert done.stdout == ("" if closed == 1 else "A scripted answer of explorer to: x\n")


def test_a_locale_without_our_signs_gets_signs_like_them(process):
    script = [{"call": "ls", "args": {"path": "src"}}, {"say": "✓ done → 你好 •"}]
    done = process.run(
        "run", "explorer", "x", "--engine", "scripted", script=script, environ={"PYTHONIOENCODING": "latin-1"}
    )
    assert done.returncode == 0
    assert "+ done > ?? *" in done.stdout
    assert "> ls src" in done.stderr
    assert "+ done in" in done.stderr


def test_a_working_directory_that_is_gone_is_said(process, place):
    gone = place / "gone"
    gone.mkdir()
    done = process.run("agents", preexec_fn=gone.rmdir, cwd=gone)
    assert done.returncode == 2
    assert "current directory cannot be used" in done.stderr
