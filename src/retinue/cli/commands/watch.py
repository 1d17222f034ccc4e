"""`retinue watch`: show the active runs of all processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import anyio
import click
from anyio.abc import TaskGroup

from retinue.cli.commands.completion import complete_runs
from retinue.cli.commands.extend import EXTENSION
from retinue.cli.options import TEXT, CommandRefusedError, json_option
from retinue.cli.printing import help_examples, print_error, print_hint, print_json_line
from retinue.cli.run_ids import (
    NOTHING_RUNNING,
    describe_cancel,
    describe_extension,
    describe_steering,
    explain_not_running,
    matches_id,
    send_command,
)
from retinue.client import Retinue
from retinue.ipc.client import ProcessUnreachableError
from retinue.ipc.federation import RemoteRuns, extend_remote, steer_remote
from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.model.event_codec import EventRecord, to_line
from retinue.model.events import ToolReturned
from retinue.sessions.store import LeaseOwner
from retinue.support.formatting import SHORT_ID_LENGTH
from retinue.support.own_process import is_closed
from retinue.transcripts.text import TextTranscript
from retinue.tui.browser import BrowserCommand, fold_output
from retinue.tui.event_lines import EventLineFormatter
from retinue.tui.event_view import MIN_UPDATE_INTERVAL, EventView, LinesView, is_screen, run_view
from retinue.tui.keys import KeyboardReader
from retinue.tui.watch_view import WatchView

TOOLSET = "fanout"
"""The toolset whose settings limit the lines of a window."""
MAX_TRANSCRIPT_EVENTS = 5_000
"""Latest events of a session that its transcript shows."""
KEYS_HELP = """\b
Keys on a terminal:
  ↑ ↓ Tab        select a run; PgUp and PgDn scroll
  Enter, Ctrl+O  show only the selected run, with all output; again: all runs
  s              steer: send a message to the selected run
  e              extend its timeout
  c              cancel it; asks first
  t              show its transcript
  /              filter the runs
  ?              show the keys
  q              quit; the runs continue"""


@click.command(
    help="Show all running agents, including those started by other processes.\n\n"
    "RUN is the id of a run, a session or a conversation, or its first 8 digits; without it, all runs are shown. "
    f"Ends when nothing is running any more. Without a terminal it prints lines.\n\n{KEYS_HELP}",
    epilog=help_examples("retinue watch", "retinue watch 1a2b3c4d", "retinue watch --follow --json | jq .type"),
)
@click.argument("run", type=TEXT, required=False, shell_complete=complete_runs)
@click.option("--follow", "-f", is_flag=True, help="Keep watching when no run is active, until Ctrl-C or q.")
@json_option
def watch(run: str | None, follow: bool, as_json: bool) -> None:
    retinue = Retinue()

    async def watch_runs() -> None:
        if not follow:
            owners = await retinue.owners()
            if run:
                await _require_run(retinue, run, owners)
            elif not owners:
                print_hint(NOTHING_RUNNING)
                return
        await _WatchSession(retinue, run or "", as_json=as_json).run(forever=follow)

    anyio.run(watch_runs)


class _WatchSession:
    """The runs of other processes in the view that fits the terminal, and the keys of the user."""

    def __init__(self, retinue: Retinue, wanted: str, *, as_json: bool) -> None:
        self._retinue = retinue
        self._keyboard = KeyboardReader(sys.stdin)
        self._commands, self._command_receiver = anyio.create_memory_object_stream[BrowserCommand](100)
        self._screen: WatchView | None = None
        self._view = self._choose_view(as_json=as_json)
        self._remote_runs = RemoteRuns(retinue, wanted, deltas=self._view.wants_deltas)

    def _choose_view(self, *, as_json: bool) -> EventView:
        if as_json:
            return _JsonView()
        max_lines = self._retinue.settings(TOOLSET).settings.max_lines_per_window
        if is_screen(sys.stdout, os.environ) and self._keyboard.is_interactive:
            color = click.get_current_context().color
            self._screen = WatchView(sys.stdout, max_lines, self._send_command, color=color)
            return self._screen
        if is_screen(sys.stdout, os.environ):
            from retinue.tui.live_view import LiveView

            return LiveView(sys.stdout, max_lines)
        return LinesView(sys.stdout, EventLineFormatter(results_printed=False))

    def _send_command(self, command: BrowserCommand) -> None:
        with suppress(anyio.WouldBlock):  # a key that is held down repeats faster than commands are executed
            self._commands.send_nowait(command)

    async def run(self, *, forever: bool) -> None:
        with self._commands, self._command_receiver:
            async with anyio.create_task_group() as group:
                group.start_soon(run_view, self._remote_runs, self._view)
                group.start_soon(self._show_problems, group)
                group.start_soon(_leave_on_signal, group)
                if self._screen:
                    group.start_soon(self._keyboard.listen, self._screen.press)
                    group.start_soon(self._execute_commands, self._screen, group)
                await self._remote_runs.follow(forever=forever)
                group.cancel_scope.cancel()

    async def _show_problems(self, group: TaskGroup) -> None:
        """Show problems beside the runs, and quit when stdout is closed."""
        while not is_closed(sys.stdout):
            for problem in self._remote_runs.take_problems():
                (self._screen.show_message if self._screen else print_error)(problem)
            await anyio.sleep(MIN_UPDATE_INTERVAL)
        group.cancel_scope.cancel()

    async def _execute_commands(self, screen: WatchView, group: TaskGroup) -> None:
        """Execute the commands of keys."""
        async for command in self._command_receiver:
            match command.action:
                case "quit":
                    group.cancel_scope.cancel()
                case "cancel":
                    group.start_soon(self._cancel_run, screen, command.run)
                case "steer" | "extend":
                    group.start_soon(self._change_run, screen, command)
                case _:
                    await self._open_transcript(screen, command.run)

    async def _cancel_run(self, screen: WatchView, run: str) -> None:
        screen.show_message(f"Cancelling {run[:SHORT_ID_LENGTH]} …")
        try:
            done = await self._remote_runs.cancel_run(run)
        except ProcessUnreachableError as problem:
            screen.show_message(str(problem))
        else:
            screen.show_message(describe_cancel(run, found=done.found, failure=done.failure))

    async def _change_run(self, screen: WatchView, command: BrowserCommand) -> None:
        """Steer or extend a run as the commands of these names do, and show the outcome."""
        run, text = command.run, command.text
        screen.show_message(f"Sending to {run[:SHORT_ID_LENGTH]} …")
        try:
            if command.action == "steer":
                owner, _ = await send_command(self._retinue, run, lambda owner: steer_remote(owner, text))
                screen.show_message(describe_steering(owner))
            else:
                seconds = EXTENSION.convert(text, None, None)
                owner, reply = await send_command(self._retinue, run, lambda owner: extend_remote(owner, seconds))
                screen.show_message(describe_extension(owner, seconds, reply.timeout))
        except click.ClickException as error:
            screen.show_message(error.message)

    async def _open_transcript(self, screen: WatchView, run: str) -> None:
        lines, transcript = list[str](), TextTranscript()
        try:
            if summary := await self._retinue.session(run):
                for record in await self._retinue.tail(summary.session, MAX_TRANSCRIPT_EVENTS):
                    entries = transcript.render(record)
                    lines += map(fold_output, entries) if isinstance(record.event, ToolReturned) else entries
        except RefusedError as refusal:
            lines = [refusal.failure.message]
        screen.open_transcript(run, lines)


class _JsonView:
    """Event records as JSON lines, as `retinue events` prints them."""

    wants_deltas = True

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def add_event(self, record: EventRecord) -> None:
        self._pending.append(to_line(record))

    def show_message(self, text: str) -> None:
        print_error(text)

    def draw(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            print_json_line(b"".join(pending))

    def close(self) -> None:
        self.draw()

    def restore(self) -> None:
        """Do nothing: lines leave the terminal as it is."""


async def _leave_on_signal(group: TaskGroup) -> None:
    """Quit on a signal as on q: a viewer has nothing to save."""
    if os.name == "nt":
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        async for _ in received:
            group.cancel_scope.cancel()


async def _require_run(retinue: Retinue, name: str, owners: Sequence[LeaseOwner]) -> None:
    """Check that an active run, session or conversation has this id.

    Raises:
        CommandRefusedError: there is none.
    """
    for owner in owners:
        summary = await retinue.session(owner.session)
        if matches_id(owner, (name,)) or (summary and len(name) >= SHORT_ID_LENGTH and summary.root.startswith(name)):
            return
    raise CommandRefusedError(Failure(ErrorCode.SESSION_NOT_FOUND, await explain_not_running(retinue, name)))
