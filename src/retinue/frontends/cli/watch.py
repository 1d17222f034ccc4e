"""`retinue watch`: runs in whatever process they are, seen while they go on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import anyio
import click
from anyio.abc import TaskGroup

from retinue.app import Retinue
from retinue.control.client import Unreachable
from retinue.events import Stamped, to_line
from retinue.frontends.browsing import Wish
from retinue.frontends.cli.completion import run_ids
from retinue.frontends.cli.endings import Declined
from retinue.frontends.cli.options import WORD, json_option
from retinue.frontends.cli.talk import answer_line, examples, fault, note
from retinue.frontends.cli.which import NOTHING, is_named, outcome, why_not
from retinue.frontends.elsewhere import Elsewhere
from retinue.frontends.event_lines import EventLines
from retinue.frontends.keys import Keyboard
from retinue.frontends.streams import is_gone
from retinue.frontends.views import PACE, LinesView, View, is_screen, show
from retinue.frontends.watching import WatchView
from retinue.frontends.wording import SHORT
from retinue.sessions.owner import Owner
from retinue.sessions.transcript import Transcript
from retinue.types import Code, Failure, Refused

SURFACE = "fanout"
"""Whose settings say how many lines a window has."""
TRANSCRIPT = 5_000
"""Events of a session that are read into its transcript, from its end."""
KEYS = """\b
Keys on a terminal:
  ↑ ↓ Tab        choose a run, or scroll
  Enter, Ctrl+O  the chosen run alone, all of it; again: all runs
  c              cancel the chosen run; asks first
  t              read its transcript
  q              leave; the runs go on"""


@click.command(
    help="See what runs, in whatever process it was started.\n\n"
    "RUN is the id of a run, a session or a conversation, from its first 8 digits on; without it, everything is "
    f"shown. Ends when nothing runs any more. Where no terminal is, it prints lines.\n\n{KEYS}",
    epilog=examples("retinue watch", "retinue watch 1a2b3c4d", "retinue watch --follow --json | jq .type"),
)
@click.argument("run", type=WORD, required=False, shell_complete=run_ids)
@click.option("--follow", "-f", is_flag=True, help="Wait for more when nothing runs, until Ctrl-C or q.")
@json_option
def watch(run: str | None, follow: bool, as_json: bool) -> None:
    retinue = Retinue()

    async def looked() -> None:
        if not follow:
            owners = await retinue.owners()
            if run:
                await _one_at_least(retinue, run, owners)
            elif not owners:
                note(NOTHING)
                return
        await _Watching(retinue, run or "", as_json=as_json).until_done(forever=follow)

    anyio.run(looked)


# -- watching --------------------------------------------------------------------------------------


class _Watching:
    """One look at runs elsewhere, in the form that fits where we are."""

    def __init__(self, retinue: Retinue, wanted: str, *, as_json: bool) -> None:
        self._retinue = retinue
        self._keyboard = Keyboard(sys.stdin)
        self._wishes, self._asked = anyio.create_memory_object_stream[Wish](100)
        self._screen: WatchView | None = None
        self._view = self._chosen_view(as_json=as_json)
        self._elsewhere = Elsewhere(retinue, wanted, deltas=self._view.wants_deltas)

    def _chosen_view(self, *, as_json: bool) -> View:
        if as_json:
            return _JsonView()
        max_lines = self._retinue.settings(SURFACE).settings.max_lines_per_window
        if is_screen(sys.stdout, os.environ) and self._keyboard.is_ours:
            self._screen = WatchView(sys.stdout, max_lines, self._wish)
            return self._screen
        if is_screen(sys.stdout, os.environ):
            from retinue.frontends.terminal import LiveView

            return LiveView(sys.stdout, max_lines)
        return LinesView(sys.stdout, EventLines(is_told=False))

    def _wish(self, wish: Wish) -> None:
        with suppress(anyio.WouldBlock):  # a key held down asks for more than can be done
            self._wishes.send_nowait(wish)

    async def until_done(self, *, forever: bool) -> None:
        with self._wishes, self._asked:
            async with anyio.create_task_group() as group:
                group.start_soon(show, self._elsewhere, self._view)
                group.start_soon(self._attend, group)
                group.start_soon(_leave_on_signal, group)
                if self._screen:
                    group.start_soon(self._keyboard.listen, self._screen.press)
                    group.start_soon(self._grant, self._screen, group)
                await self._elsewhere.follow(forever=forever)
                group.cancel_scope.cancel()

    async def _attend(self, group: TaskGroup) -> None:
        """Says what is to be said beside the runs, and leaves when nobody reads any more."""
        while not is_gone(sys.stdout):
            for remark in self._elsewhere.remarks():
                if self._screen:
                    self._screen.say(remark)
                else:
                    fault(remark)
            await anyio.sleep(PACE)
        group.cancel_scope.cancel()

    async def _grant(self, screen: WatchView, group: TaskGroup) -> None:
        """Does what keys ask for, beside the screen."""
        async for wish in self._asked:
            match wish.what:
                case "quit":
                    group.cancel_scope.cancel()
                case "cancel":
                    group.start_soon(self._cancel, screen, wish.run)
                case _:
                    await self._read(screen, wish.run)

    async def _cancel(self, screen: WatchView, run: str) -> None:
        screen.say(f"Cancelling {run[:SHORT]} …")
        try:
            done = await self._elsewhere.cancel(run)
        except Unreachable as problem:
            screen.say(str(problem))
        else:
            screen.say(outcome(run, found=done.found, failure=done.failure))

    async def _read(self, screen: WatchView, run: str) -> None:
        told, transcript = list[str](), Transcript()
        try:
            if summary := await self._retinue.session(run):
                for stamped in await self._retinue.tail(summary.session, TRANSCRIPT):
                    told += transcript.lines(stamped)
        except Refused as refusal:
            told = [refusal.failure.message]
        screen.read(run, told)


class _JsonView:
    """Stamped events as JSON lines, as `retinue events` prints them."""

    wants_deltas = True

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def take(self, stamped: Stamped) -> None:
        self._waiting.append(to_line(stamped))

    def say(self, text: str) -> None:
        fault(text)

    def draw(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            answer_line(b"".join(waiting))

    def close(self) -> None:
        self.draw()

    def restore(self) -> None:
        """Lines leave nothing to restore."""


async def _leave_on_signal(group: TaskGroup) -> None:
    """Leaves on a signal as on q: whoever only looks has nothing to save."""
    if os.name == "nt":
        return
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
        async for _ in received:
            group.cancel_scope.cancel()


async def _one_at_least(retinue: Retinue, name: str, owners: Sequence[Owner]) -> None:
    """Returns if something of this name runs.

    Raises:
        Declined: nothing does.
    """
    for owner in owners:
        summary = await retinue.session(owner.session)
        if is_named(owner, (name,)) or (summary and len(name) >= SHORT and summary.root.startswith(name)):
            return
    raise Declined(Failure(Code.SESSION_NOT_FOUND, await why_not(retinue, name)))
