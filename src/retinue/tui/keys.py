"""Read the keys that are pressed while a view is shown."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Any, TextIO

import anyio

BACKGROUND_POLL_INTERVAL = 1.0
"""Seconds between two checks whether the process is in the foreground again."""


class KeyName(StrEnum):
    """Keys without a character of their own; any other key is its character."""

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
    BACKSPACE = "backspace"
    CLEAR_LINE = "ctrl+u"
    DELETE_WORD = "ctrl+w"


class PastedText(str):
    """Text that was pasted, in place of a key: its characters are no commands."""

    __slots__ = ()


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
    "\x7f": KeyName.BACKSPACE,
    "\x08": KeyName.BACKSPACE,
    "\x15": KeyName.CLEAR_LINE,
    "\x17": KeyName.DELETE_WORD,
}
PASTE_START, PASTE_END = b"\x1b[200~", b"\x1b[201~"
MAX_PASTE_BYTES = 2**16
"""Bytes that are read while the end of a paste is awaited."""
_KEY_PATTERN = re.compile(r"\x1b\[200~(.*?)(?:\x1b\[201~|\Z)|\x1b(\[[0-9;]*[A-Za-z~]|O[A-Za-z])|(.)", re.DOTALL)


def parse_keys(typed: bytes) -> Iterator[str]:
    """Yield the keys in the input of a terminal, pasted text as one; unknown sequences are left out."""
    for match in _KEY_PATTERN.finditer(typed.decode(errors="replace")):
        pasted, sequence, character = match.groups()
        if pasted is not None:
            yield PastedText(pasted)
        elif sequence is not None:
            if key := _SEQUENCES.get(sequence):
                yield key
        elif character in _CHARACTERS:
            yield _CHARACTERS[character]
        elif character.isprintable():
            yield character


def _is_paste_open(typed: bytes) -> bool:
    return typed.rfind(PASTE_START) > typed.rfind(PASTE_END)


class KeyboardReader:
    """Reads keys from a terminal; Ctrl-C and Ctrl-Z keep their usual effect."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._before: list[Any] | None = None

    @property
    def is_interactive(self) -> bool:
        """True if the stream is a terminal and this process is in its foreground.

        The system stops a background process that reads from its terminal or changes it.
        """
        if self._stream is None or sys.platform == "win32":
            return False
        try:
            return self._stream.isatty() and os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            return False

    async def listen(self, press: Callable[[str], None]) -> None:
        """Call `press` for every key, without echo, until cancelled; return at once without a terminal."""
        if self._stream is None or not self.is_interactive:
            return
        number = self._stream.fileno()
        self._enter_raw_mode(number)
        pending = b""
        try:
            while True:
                await anyio.wait_readable(number)
                if not self.is_interactive:  # moved to the background: the input belongs to the shell
                    await anyio.sleep(BACKGROUND_POLL_INTERVAL)
                    continue
                typed = os.read(number, 1024)
                if not typed:
                    return
                pending += typed
                if _is_paste_open(pending) and len(pending) < MAX_PASTE_BYTES:
                    continue
                for key in parse_keys(pending):
                    press(key)
                pending = b""
        except OSError:
            return
        finally:
            self.restore()

    def restore(self) -> None:
        """Restore the mode of the terminal, at any moment."""
        before, self._before = self._before, None
        if before is not None and self._stream is not None and self.is_interactive:
            import termios

            with suppress(OSError, termios.error):
                termios.tcsetattr(self._stream.fileno(), termios.TCSANOW, before)

    def _enter_raw_mode(self, number: int) -> None:
        import termios

        self._before, mode = termios.tcgetattr(number), termios.tcgetattr(number)
        # IEXTEN is off, too: some systems use Ctrl+O themselves otherwise.
        mode[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(number, termios.TCSANOW, mode)
