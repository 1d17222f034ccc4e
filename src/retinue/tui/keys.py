"""Keys someone presses while something is shown."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any, Protocol, TextIO, runtime_checkable

import anyio

BACKGROUND_POLL_INTERVAL = 1.0
"""Seconds until we look again whether the terminal is ours."""


class KeyName(StrEnum):
    """Keys that are no characters; others are the character itself."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    TAB = "tab"
    BACK_TAB = "back tab"
    ENTER = "enter"
    ESCAPE = "escape"
    EXPAND = "ctrl+o"


@runtime_checkable
class KeyHandler(Protocol):
    """What reacts to keys."""

    def press(self, key: str) -> None: ...


_SEQUENCES = {
    "[A": KeyName.UP, "OA": KeyName.UP, "[B": KeyName.DOWN, "OB": KeyName.DOWN,
    "[5~": KeyName.PAGE_UP, "[6~": KeyName.PAGE_DOWN,
    "[H": KeyName.HOME, "OH": KeyName.HOME, "[1~": KeyName.HOME, "[7~": KeyName.HOME,
    "[F": KeyName.END, "OF": KeyName.END, "[4~": KeyName.END, "[8~": KeyName.END, "[Z": KeyName.BACK_TAB,
}  # fmt: skip
_CHARACTERS = {
    "\t": KeyName.TAB,
    "\r": KeyName.ENTER,
    "\n": KeyName.ENTER,
    "\x1b": KeyName.ESCAPE,
    "\x0f": KeyName.EXPAND,
}
_KEY_PATTERN = re.compile(r"\x1b(\[[0-9;]*[A-Za-z~]|O[A-Za-z])|(.)", re.DOTALL)


def parse_keys(typed: bytes) -> Iterator[str]:
    """The keys behind what a terminal sent; those nobody knows are left out."""
    for found in _KEY_PATTERN.finditer(typed.decode(errors="replace")):
        sequence, character = found.groups()
        if sequence is not None:
            if key := _SEQUENCES.get(sequence):
                yield key
        elif character in _CHARACTERS:
            yield _CHARACTERS[character]
        elif character.isprintable():
            yield character


class KeyboardReader:
    """The terminal someone may be typing at. Ctrl-C and Ctrl-Z mean what they always do."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._before: list[Any] | None = None

    @property
    def is_interactive(self) -> bool:
        """Whether someone types to us: it is a terminal, and we are in its foreground.

        A process in the background that reads from it, or changes it, is stopped by the system.
        """
        if self._stream is None or sys.platform == "win32":
            return False
        try:
            return self._stream.isatty() and os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            return False

    async def listen(self, press: Callable[[str], None]) -> None:
        """Hands on every key, unseen and at once, until it is cancelled; does nothing where nobody types to us."""
        if self._stream is None or not self.is_interactive:
            return
        number = self._stream.fileno()
        self._enter_raw_mode(number)
        try:
            while True:
                await anyio.wait_readable(number)
                if not self.is_interactive:  # sent to the background: what is typed is the shell's
                    await anyio.sleep(BACKGROUND_POLL_INTERVAL)
                    continue
                typed = os.read(number, 1024)
                if not typed:
                    return
                for key in parse_keys(typed):
                    press(key)
        except OSError:
            return
        finally:
            self.restore()

    def restore(self) -> None:
        """Gives the terminal back as it was; at any moment, for an end that leaves no block."""
        before, self._before = self._before, None
        if before is not None and self._stream is not None and self.is_interactive:
            import termios

            with suppress(OSError, termios.error):
                termios.tcsetattr(self._stream.fileno(), termios.TCSANOW, before)

    def _enter_raw_mode(self, number: int) -> None:
        import termios

        self._before, mode = termios.tcgetattr(number), termios.tcgetattr(number)
        # Without IEXTEN, or some systems keep Ctrl+O to themselves.
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(number, termios.TCSANOW, mode)
