"""The bash tool: output, exit codes, timeouts, environment, and processes that end with the call or the run."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio import CapacityLimiter
from tests.support.processes import Watched, assert_nothing_left_open

from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.engines.toolbox import ToolOutcome
from retinue.engines.tools import make_local_toolbox
from retinue.engines.tools.base import MAX_READERS
from retinue.engines.tools.bash import CommandContext
from retinue.model.runs import ToolUse
from retinue.output.truncate import MAX_TOOL_BYTES, MAX_TOOL_LINES
from retinue.support.processes import list_processes


@pytest.fixture
async def supervisor() -> AsyncIterator[ProcessSupervisor]:
    async with ProcessSupervisor() as supervisor:
        yield supervisor


class Commands:
    """Calls of the tool in a working directory."""

    def __init__(self, folder: Path, supervisor: ProcessSupervisor, path: str) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.storage.mkdir()
        context = CommandContext(
            cwd=str(folder),
            environ={"PATH": path, "TMPDIR": str(self.storage), "GREETING": "hello"},
            open_supervisor=self._open,
        )
        self._supervisor = supervisor
        self._toolbox = make_local_toolbox(str(folder), CapacityLimiter(MAX_READERS), commands=context)

    async def _open(self) -> ProcessSupervisor:
        return self._supervisor

    async def call(self, command: str, **args: object) -> ToolOutcome:
        return await self._toolbox.call(ToolUse("1", "bash", {"command": command, **args}))

    def stored(self) -> Path:
        (path,) = self.storage.iterdir()
        return path


@pytest.fixture
def commands(tmp_path: Path, supervisor: ProcessSupervisor) -> Commands:
    return Commands(tmp_path, supervisor, os.environ["PATH"])


def is_running(pid: str) -> bool:
    """Return whether a process runs; one that nobody has reaped does not."""
    return any(each.pid == int(pid) and not each.is_dead for each in list_processes())


async def test_output_of_a_command_is_the_result(commands):
    assert await commands.call("echo one; echo two") == ToolOutcome("one\ntwo")


async def test_command_runs_in_the_working_directory_with_its_environment(commands):
    outcome = await commands.call('pwd; echo "$GREETING"; cat; [ -n "$BASH_VERSION" ] && echo bash')
    assert outcome == ToolOutcome(f"{commands.folder}\nhello\nbash")


async def test_command_without_output_is_reported_as_such(commands):
    assert await commands.call("true") == ToolOutcome("(no output)")


async def test_stdout_and_stderr_stay_in_order(commands):
    assert await commands.call("echo 1; echo 2 >&2; echo 3") == ToolOutcome("1\n2\n3")


async def test_nonzero_exit_code_is_an_error_with_the_output(commands):
    assert await commands.call("echo partial; exit 3") == ToolOutcome(
        "partial\n\n[Command ended with exit code 3.]", is_error=True
    )


async def test_command_that_kills_itself_reports_the_signal(commands):
    outcome = await commands.call("echo partial; kill -9 $$")
    assert outcome == ToolOutcome("partial\n\n[Command was ended by signal 9.]", is_error=True)


async def test_command_with_invalid_syntax_is_an_error(commands):
    outcome = await commands.call("if")
    assert outcome.is_error
    assert "syntax error" in outcome.text


@pytest.mark.parametrize("timeout", [-5, 1])
async def test_command_beyond_its_timeout_is_ended_with_its_output_kept(commands, timeout):
    outcome = await commands.call("echo started; echo $$ > pid; exec sleep 1000", timeout=timeout)
    assert outcome.is_error
    assert outcome.text.startswith("started\n\n[Command timed out after 1 seconds")
    assert not is_running((commands.folder / "pid").read_text())


async def test_timeout_that_is_no_number_is_refused(commands):
    outcome = await commands.call("true", timeout="soon")
    assert outcome.is_error
    assert "Its parameters: command, timeout" in outcome.text


async def test_command_with_a_nul_character_is_refused(commands):
    outcome = await commands.call("echo \0")
    assert outcome.is_error
    assert "Remove the NUL character" in outcome.text


async def test_missing_shell_is_an_error_that_names_the_reason(tmp_path, supervisor):
    outcome = await Commands(tmp_path, supervisor, str(tmp_path)).call("true")
    assert outcome.is_error
    assert "neither bash nor sh" in outcome.text


async def test_background_process_ends_with_the_command(commands):
    outcome = await commands.call("setsid sleep 1000 & echo $!")
    pid, _, notice = outcome.text.partition("\n\n")
    assert not outcome.is_error
    assert "background processes were ended" in notice
    assert not is_running(pid)


async def test_cancelled_call_leaves_no_process(commands):
    os.mkfifo(commands.folder / "started")
    script = "setsid sleep 1000 & echo $$ $! > started; exec sleep 1000"
    watched: list[Watched] = []
    async with anyio.create_task_group() as group:
        group.start_soon(commands.call, script)
        pids = await anyio.to_thread.run_sync((commands.folder / "started").read_text)
        watched = [Watched(int(pid)) for pid in pids.split()]
        assert all(process.lives() for process in watched)
        group.cancel_scope.cancel()
    assert all(process.ends() for process in watched)
    for process in watched:
        process.close()


async def test_calls_leave_no_descriptor_open(commands):
    await commands.call("true")
    with assert_nothing_left_open():
        await commands.call("seq 100000; exit 1")


async def test_many_lines_show_the_last_ones_and_the_whole_is_in_a_private_file(commands):
    outcome = await commands.call("seq 3000")
    text, _, notice = outcome.text.rpartition("\n\n")
    assert text.split("\n") == [str(number) for number in range(3001 - MAX_TOOL_LINES, 3001)]
    assert notice == f"[Showing the end of 3000 lines, 13.6 KB. Whole output: {commands.stored()}.]"
    assert commands.stored().read_text().split() == [str(number) for number in range(1, 3001)]
    assert stat.S_IMODE(commands.stored().stat().st_mode) == 0o600


async def test_huge_output_is_bounded_in_the_result_and_whole_in_the_file(commands):
    outcome = await commands.call("head -c 3000000 /dev/zero | tr '\\0' 'ä'; echo; echo end; exit 1")
    assert outcome.is_error
    assert len(outcome.text.encode()) < MAX_TOOL_BYTES + 1024
    assert "end\n\n[Showing the end of 2 lines, 2.9 MB." in outcome.text
    assert commands.stored().stat().st_size == 3_000_005


async def test_one_endless_line_shows_its_end_between_two_characters(commands):
    outcome = await commands.call("printf 'ä%.0s' $(seq 60000); printf x")
    text = outcome.text.partition("\n\n")[0]
    assert set(text) == {"ä", "x"}
    assert len(text.encode()) in (MAX_TOOL_BYTES, MAX_TOOL_BYTES - 1)


async def test_short_output_is_not_stored(commands):
    await commands.call("seq 2000")
    assert list(commands.storage.iterdir()) == []


async def test_binary_output_and_terminal_escapes_become_plain_text(commands):
    outcome = await commands.call(r"printf 'a\0b\xff\xfe\033[31mred\033[0m\n'")
    assert outcome == ToolOutcome("ab\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}red")


async def test_output_that_cannot_be_stored_is_reported(commands):
    outcome = await commands.call("ulimit -f unlimited; rm -r storage; ln -s /dev/null storage; seq 3000")
    assert not outcome.is_error
    assert "could not be stored: " in outcome.text
