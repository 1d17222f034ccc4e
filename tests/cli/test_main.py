"""The command as a whole: its help, what it imports, and how it ends whatever happens."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import retinue
from retinue.cli.group import COMMAND_SECTIONS, LazyGroup, root

COMMANDS = {name: entry for section in COMMAND_SECTIONS.values() for name, entry in section.items()}


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
        "import atexit, sys; from retinue.cli.main import main;"
        "heavy = ('anyio', 'asyncio', 'msgspec', 'rich', 'yaml', 'sqlite3', 'retinue.client');"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules], file=sys.stderr));"
        "main(['--help'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr.strip() == "[]"


def test_before_the_first_signal_can_be_heard_nothing_heavy_is_imported():
    code = "import sys; import retinue.__main__; print([name for name in ('click', 'anyio') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["frun"], "Did you mean run?"),
        (["sesions"], "Did you mean sessions?"),
        (["run", "--tmeout", "3", "explorer", "x"], "Did you mean '--timeout'?"),
        (["agents", "shw"], "Did you mean"),
        (["tools", "--toolset", "singl"], "Did you mean single?"),
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


@pytest.mark.parametrize("error", [ZeroDivisionError, EOFError])
def test_an_error_that_should_not_happen_is_one_sentence_and_the_rest_on_request(error):
    def breaks():
        raise error("nobody thought of it")

    broken = LazyGroup(sections={}, name="retinue", callback=breaks, invoke_without_command=True)
    failed = CliRunner().invoke(broken, [])
    assert failed.exit_code == 1
    assert failed.stdout == ""
    assert len(failed.stderr.strip().splitlines()) == 1
    assert f"({error.__name__}: nobody thought of it)" in failed.stderr
    assert "RETINUE_DEBUG=1" in failed.stderr
    assert "Traceback" in CliRunner().invoke(broken, [], env={"RETINUE_DEBUG": "1"}).stderr


def test_a_state_folder_whose_name_no_system_takes_is_refused_in_one_sentence(process):
    refused = process.run("sessions", "list", environ={"RETINUE_STATE": "x" * 5000})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert "name another one in RETINUE_STATE" in refused.stderr


def test_ctrl_c_that_python_wrapped_is_still_ctrl_c():
    def breaks():
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    ended = CliRunner().invoke(
        LazyGroup(sections={}, name="retinue", callback=breaks, invoke_without_command=True), []
    )
    assert (ended.exit_code, ended.stdout, ended.stderr) == (130, "", "Cancelled.\n")


@pytest.mark.parametrize(
    "command",
    [("--help",), ("agents",), ("doctor", "--json"), ("run", "explorer", "x", "--engine", "scripted", "-q")],
)
def test_a_reader_who_leaves_early_is_no_reason_to_complain(process, command):
    reading, writing = os.pipe()
    os.close(reading)
    done = process.run(*command, stdout=writing)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_output_that_cannot_be_written_is_said(process):
    with Path("/dev/full").open("w") as full:
        done = process.run("--help", stdout=full)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("closed", [0, 2])
def test_a_closed_stream_breaks_nothing(process, closed):
    done = process.run("run", "explorer", "x", "--engine", "scripted", preexec_fn=lambda: os.close(closed))
    assert (done.returncode, done.stdout) == (0, "A scripted answer of explorer to: x\n")


@pytest.mark.parametrize(
    "command",
    [
        ("run", "explorer", "x"),
        ("run", "explorer", "x", "--json"),
        ("call", "subagent", '{"agent": "explorer", "task": "x"}'),
        ("call", "subagent", '{"agent": "explorer", "task": "x"}', "--stream"),
    ],
)
@pytest.mark.parametrize("stdout", ["closed", "full"])
def test_an_answer_that_cannot_be_printed_is_said_to_be_kept_and_where(process, stdout, command):
    with Path("/dev/full").open("w") as full:
        how = {"preexec_fn": lambda: os.close(1)} if stdout == "closed" else {"stdout": full}
        done = process.run(*command, "--engine", "scripted", **how)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (kept,) = re.findall(r"The answer is kept: `retinue (sessions output \w{8})` prints it\.", done.stderr)
    assert process.run(*kept.split()).stdout == "A scripted answer of explorer to: x\n"


def test_a_locale_without_our_signs_gets_signs_like_them(process):
    script = [{"call": "ls", "args": {"path": "src"}}, {"say": "✓ done → 你好 •"}]
    done = process.run(
        "run", "explorer", "x", "--engine", "scripted", script=script, environ={"PYTHONIOENCODING": "latin-1"}
    )
    assert done.returncode == 0
    assert "+ done > ?? *" in done.stdout
    assert "> ls src" in done.stderr
    assert "+ done in" in done.stderr


def test_a_locale_that_is_not_utf_8_takes_utf_8_as_it_was_typed(process):
    environ = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = process.run("run", "explorer", "Größe 你好", "--engine", "scripted", "--json", environ=environ)
    assert done.returncode == 0
    assert json.loads(done.stdout)["task"] == "Größe 你好"


def test_a_working_directory_that_is_gone_is_said(process, place):
    gone = place / "gone"
    gone.mkdir()
    done = process.run("agents", preexec_fn=gone.rmdir, cwd=gone)
    assert done.returncode == 2
    assert "current directory cannot be used" in done.stderr


@pytest.mark.parametrize("command", ["mcp", "serve", "bridge"])
def test_a_server_is_not_started_with_an_engine_there_is_none_of(cli, command):
    done = cli(command, "--engine", "offlin")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Unknown engine: offlin" in done.stderr
