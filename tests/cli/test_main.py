"""Tests of the whole command: help, imports, completion, errors and streams."""

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
from tests.support.cli_terminal import ON_A_TERMINAL

import retinue
from retinue.cli.group import COMMAND_SECTIONS, LazyGroup, root

COMMANDS = {name: entry for section in COMMAND_SECTIONS.values() for name, entry in section.items()}


def every_command(command, path=()):
    """Yield each command with its path, groups and their commands included."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


def test_retinue_without_arguments_prints_its_help(cli):
    alone, asked = cli(), cli("--help")
    assert alone.exit_code == asked.exit_code == 0
    assert alone.stdout == asked.stdout
    assert "retinue demo" in alone.stdout


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version_option_prints_the_version(cli, option):
    assert cli(option).stdout == f"retinue {retinue.__version__}\n"


@pytest.mark.parametrize("path", [(), ("run",), ("sessions", "prune")])
def test_help_command_prints_the_help_of_a_command(cli, path):
    assert cli("help", *path).stdout == cli(*path, "--help").stdout


def test_help_of_an_unknown_command_is_refused_with_the_nearest_name(cli):
    done = cli("help", "sesions")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: retinue ")
    assert done.stderr.endswith("\n\nerror: No such command 'sesions'. Did you mean `retinue sessions`?\n")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ps", "watch"),
        ("logs", "events --follow"),
        ("show", "sessions show ID"),
        ("list", "sessions list"),
        ("init", "setup"),
        ("version", "--version"),
        ("vresion", "--version"),
    ],
)
def test_command_of_other_programs_is_refused_with_ours(cli, typed, meant):
    assert cli(typed).stderr.endswith(f"error: No such command '{typed}'. Did you mean `retinue {meant}`?\n")


# -- colors ----------------------------------------------------------------------------------------

RED_ERROR = "\x1b[31m\x1b[1merror:\x1b[0m "


@pytest.mark.parametrize(
    ("options", "environ", "is_colored"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color=always",), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ((), {"FORCE_COLOR": "0"}, False),
    ],
)
@pytest.mark.parametrize("command", [("run", "exploer", "x"), ("frob",)])
def test_errors_are_colored_as_the_user_chose(cli, options, environ, is_colored, command):
    done = cli(*options, *command, **environ)
    assert (RED_ERROR if is_colored else "\nerror: ") in f"\n{done.stderr}"
    assert ("\x1b" in cli(*options, "doctor", **environ).stdout) is is_colored


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_in_the_list_equals_that_of_the_command(name):
    command = root.get_command(click.Context(root), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name].summary


@pytest.mark.parametrize(
    ("path", "command"), [(" ".join(path), command) for path, command in every_command(root) if path]
)
def test_help_of_every_command_fits_eighty_columns(cli, path, command):
    result = cli(*path.split(), "--help", COLUMNS="80")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "Examples:" in result.stdout
    assert command.help
    assert command.get_short_help_str(limit=200).endswith(".")


@pytest.mark.parametrize("path", ["run", "delegate", "chain", "resume", "call", "mcp", "serve", "sessions resume"])
def test_help_lists_options_under_headings(cli, path):
    shown = cli(*path.split(), "--help", COLUMNS="80").stdout
    places = [shown.index(f"\n{title}:\n") for title in ("Run", "Limits", "Permissions", "Options")]
    assert places == sorted(places)
    assert (
        shown.index("--engine ") < places[1] < shown.index("--timeout ") < places[2] < shown.index("--allow-write ")
    )


def test_help_imports_nothing_heavy():
    code = (
        "import atexit, sys; from retinue.cli.main import main;"
        "heavy = ('anyio', 'asyncio', 'msgspec', 'rich', 'yaml', 'sqlite3', 'retinue.client');"
        "atexit.register(lambda: print([name for name in heavy if name in sys.modules], file=sys.stderr));"
        "main(['--help'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr.strip() == "[]"


def test_quiet_run_loads_only_what_it_uses(tmp_path):
    code = (
        "import atexit, sys; from retinue.cli.main import main;"
        "unused = ('sqlite3', 'retinue.sessions.index', 'retinue.tui.renderer', 'retinue.transcripts.text',"
        " 'retinue.runtime.progress', 'retinue.toolsets.base', 'retinue.output.schemas',"
        " 'retinue.agents.hooks', 'retinue.agents.mcp_config', 'retinue.agents.mcp_servers', 'retinue.agents.plugins',"
        " 'retinue.agents.skills', 'retinue.engines.hooks.command', 'retinue.mcp_client.client',"
        " 'retinue.model.hooks', 'retinue.model.mcp', 'retinue.runtime.gate', 'retinue.runtime.hooks',"
        " 'retinue.runtime.agent_changes', 'retinue.runtime.mcp_servers', 'importlib.metadata');"
        "atexit.register(lambda: print([name for name in unused if name in sys.modules], file=sys.stderr));"
        "main(['run', 'explorer', 'Where is it?', '--engine', 'offline', '--quiet'])"
    )
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere"}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environ
    )
    assert found.stderr.strip() == "[]"


def test_signals_are_handled_before_heavy_imports():
    code = "import sys; import retinue.__main__; print([name for name in ('click', 'anyio') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["frun"], "Did you mean `retinue run`?"),
        (["sesions"], "Did you mean `retinue sessions`?"),
        (
            ["run", "--tiemout", "3", "explorer", "x"],
            "error: No such option '--tiemout'. Did you mean `--timeout`?\n",
        ),
        (["run", "--xyz", "explorer", "x"], "error: No such option '--xyz'.\n"),
        (["agents", "shw"], "Did you mean `retinue agents show`?"),
        (["help", "agents", "shw"], "Did you mean `retinue agents show`?"),
        (["help", "run", "shw"], "`retinue run` has no commands."),
        (["tools", "--toolset", "singl"], "Did you mean single?"),
        (["run", "explrer", "x"], "Did you mean explorer?"),
        (["run", "explorer", "x", "--engine", "ofline"], "Did you mean offline?"),
        (["chain", "--step", "explorer", "x", "--step", "testr", "y"], "Did you mean tester?"),
        (["agents", "show", "reviwer"], "Did you mean reviewer?"),
    ],
)
def test_misspelled_command_gets_a_suggestion_and_nothing_runs(cli, arguments, hint):
    result = cli(*arguments)
    assert result.exit_code == 2
    assert hint in result.stderr
    assert result.stdout == ""


def test_unknown_agent_gets_the_documented_sentence_and_a_suggestion(cli):
    *_, sentence, hint = cli("run", "explrer", "x", "-q").stderr.splitlines()
    known = "explorer, researcher, reviewer, implementer, tester"
    assert sentence == f"error: Unknown agent: explrer. Available agents: {known}"
    assert hint == "tip: Did you mean explorer?"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_prints_a_script_for_each_shell(cli, shell):
    assert "_RETINUE_COMPLETE" in cli("completion", shell).stdout


def test_shell_completes_commands_and_agents(process):
    def complete(*words):
        environ = {
            "_RETINUE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("retinue", *words)),
            "COMP_CWORD": str(len(words)),
        }
        return process.run(environ=environ).stdout.split()

    assert "plain,sessions" in complete("sess")
    assert "plain,explorer" in complete("run", "expl")


def test_zsh_completion_describes_agents_engines_and_sessions(cli, process):
    cli("run", "explorer", "Where is the bus?", "--engine", "scripted")

    def complete(*words):
        typed = {"COMP_WORDS": " ".join(("retinue", *words)), "COMP_CWORD": str(len(words))}
        lines = process.run(environ={"_RETINUE_COMPLETE": "zsh_complete", **typed}).stdout.splitlines()
        return dict(zip(lines[1::3], lines[2::3], strict=True))

    assert complete("run", "expl")["explorer"].startswith("Finds where something is")
    assert complete("run", "--engine", "off")["offline"].startswith("rules, not a language model")
    assert list(complete("sessions", "show", '""').values()) == ["explorer: Where is the bus?"]


# -- how it ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ZeroDivisionError, EOFError])
def test_unexpected_error_is_one_sentence_and_a_traceback_on_request(error):
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


def test_invalid_state_folder_is_refused_in_one_sentence(process):
    refused = process.run("sessions", "list", environ={"RETINUE_STATE": "x" * 5000})
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert "set RETINUE_STATE to another folder" in refused.stderr


def test_ctrl_c_wrapped_by_python_exits_as_cancelled():
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
def test_reader_that_leaves_early_causes_no_error(process, command):
    reading, writing = os.pipe()
    os.close(reading)
    done = process.run(*command, stdout=writing)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_unwritable_stdout_is_reported(process):
    with Path("/dev/full").open("w") as full:
        done = process.run("--help", stdout=full)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("closed", [0, 2])
def test_closed_streams_do_not_fail_a_command(process, closed):
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
def test_answer_that_cannot_be_printed_is_reported_with_its_session(process, stdout, command):
    with Path("/dev/full").open("w") as full:
        how = {"preexec_fn": lambda: os.close(1)} if stdout == "closed" else {"stdout": full}
        done = process.run(*command, "--engine", "scripted", **how)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (kept,) = re.findall(r"The answer was kept: `retinue (sessions output \w{8})` prints it\.", done.stderr)
    assert process.run(*kept.split()).stdout == "A scripted answer of explorer to: x\n"


def test_locale_without_unicode_gets_similar_characters(process):
    script = [{"call": "ls", "args": {"path": "src"}}, {"say": "✓ done → 你好 •"}]
    done = process.run(
        "run", "explorer", "x", "--engine", "scripted", script=script, environ={"PYTHONIOENCODING": "latin-1"}
    )
    assert done.returncode == 0
    assert "+ done > ?? *" in done.stdout
    assert "> ls src" in done.stderr
    assert "+ completed in" in done.stderr


def test_arguments_are_utf_8_in_every_locale(process):
    environ = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = process.run("run", "explorer", "Größe 你好", "--engine", "scripted", "--json", environ=environ)
    assert done.returncode == 0
    assert json.loads(done.stdout)["task"] == "Größe 你好"


def test_deleted_working_directory_is_reported(process, place):
    gone = place / "gone"
    gone.mkdir()
    done = process.run("agents", preexec_fn=gone.rmdir, cwd=gone)
    assert done.returncode == 2
    assert "current directory cannot be used" in done.stderr


@pytest.mark.parametrize("command", ["mcp", "serve", "bridge"])
def test_server_with_an_unknown_engine_is_not_started(cli, command):
    done = cli(command, "--engine", "offlin")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Unknown engine: offlin" in done.stderr


@pytest.mark.process
def test_mcp_on_a_terminal_prints_what_it_is_and_how_to_leave(process, terminal):
    running = process.start(
        "mcp", stdin=terminal.device, stdout=subprocess.PIPE, stderr=terminal.device, environ=ON_A_TERMINAL
    )
    assert "This is an MCP server" in terminal.read_until("`retinue run AGENT TASK`")
    terminal.type("\x04")
    assert (running.wait(30), running.stdout.read()) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "a", "b", "--max-turns", "0"), "0 is not in the range 1 or more."),
        (("run", "a", "b", "--max-depth", "65"), "65 is not in the range 0 to 64."),
        (("run", "a", "b", "--max-cost", "0"), "0.0 is not in the range above 0."),
        (("run", "--help"), "Maximum runs in parallel; others are queued. [1 or more]"),
        (("serve", "--help"), "[default: 8477; 0 to 65535]"),
    ],
)
def test_ranges_of_numbers_are_in_words(cli, arguments, words):
    done = cli(*arguments)
    assert words in " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        (["agents", "approve"], " Did you mean `retinue agents trust`?"),
        (["sessions", "export"], " Did you mean `retinue sessions show ID --html`?"),
        (["worktrees", "mrge"], " Did you mean `retinue worktrees merge`?"),
        (["config", "zzz"], ""),
    ],
)
def test_unknown_command_of_a_group_gets_a_suggestion(cli, typed, suggested):
    refused = cli(*typed)
    assert refused.exit_code == 2
    assert refused.stderr.endswith(f"error: No such command '{typed[1]}'.{suggested}\n")


@pytest.mark.parametrize("group", ["agents", "config", "sessions", "worktrees"])
def test_summaries_of_a_group_are_not_cut(cli, group):
    _, commands = cli(group, "--help", COLUMNS="80").stdout.split("Commands:")
    assert "..." not in commands


def test_color_after_the_command_is_refused_with_its_place(cli):
    refused = cli("doctor", "--color", "never")
    assert refused.exit_code == 2
    assert "tip: Write --color before the command: `retinue --color never sessions`.\n" in refused.stderr
