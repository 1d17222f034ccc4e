"""A terminal someone sits at, for programs that are started on it."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
from typing import Any

SHELL = 'trap : INT; "$@"; echo "[exit $?]"; read line'
"""What stays on the terminal when the program has left it: a terminal whose last process ends loses what it shows."""
PATIENCE = 30.0
"""Seconds until something appears, at the very most."""
ON_A_TERMINAL = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}


class Terminal:
    """A terminal of 80 columns and 24 lines."""

    def __init__(self) -> None:
        self.keyboard, self.device = pty.openpty()
        self._is_open = True

    def read_until(self, words: str) -> str:
        """What is on it when these words have appeared."""
        seen = ""
        while words not in seen:
            seen += self._read().decode(errors="replace")
        return seen

    def read_to_end(self) -> str:
        self._let_go()
        seen = b""
        while True:
            try:
                more = self._read()
            except OSError:  # how Linux says that nobody has the other end open
                more = b""
            if not more:
                return seen.decode(errors="replace")
            seen += more

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    @property
    def shows_what_is_typed(self) -> bool:
        return bool(termios.tcgetattr(self.keyboard)[3] & termios.ECHO)

    def holds(self) -> dict[str, Any]:
        """How a process is started that has this terminal for its own, in the foreground, below a shell.

        Prints `[exit N]` when it has ended.
        """
        return {
            "before": ("sh", "-c", SHELL, "sh"),
            "environ": ON_A_TERMINAL,
            "stdin": self.device,
            "stdout": self.device,
            "stderr": self.device,
            "preexec_fn": self._take_over,
        }

    def _take_over(self) -> None:
        os.setsid()
        os.close(os.open(os.ttyname(self.device), os.O_RDWR))

    def close(self) -> None:
        self._let_go()
        os.close(self.keyboard)

    def _let_go(self) -> None:
        if self._is_open:
            os.close(self.device)
            self._is_open = False

    def _read(self) -> bytes:
        assert select.select([self.keyboard], [], [], PATIENCE)[0], "nothing more came"
        return os.read(self.keyboard, 65536)


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)
