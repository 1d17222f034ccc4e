"""A pseudo-terminal for commands that tests start on it."""

from __future__ import annotations

import os
import pty
import re
import select
import termios
import time
from typing import Any

SHELL = 'trap : INT; "$@"; echo "[exit $?]"; read line'
"""Keeps the terminal open after the program has ended: without a process a terminal loses its content."""
READ_TIMEOUT = 30.0
"""Seconds to wait for output."""
ON_A_TERMINAL = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}


class Terminal:
    """A terminal of 80 columns and 24 lines."""

    def __init__(self) -> None:
        self.keyboard, self.device = pty.openpty()
        self._is_open = True

    def read_until(self, text: str) -> str:
        """Return the output up to and including this text."""
        seen = ""
        while text not in seen:
            seen += self._read().decode(errors="replace")
        return seen

    def keep_output(self) -> None:
        """Let Ctrl-C not drop output that is not read yet: a test may read late."""
        mode = termios.tcgetattr(self.device)
        mode[3] |= termios.NOFLSH
        termios.tcsetattr(self.device, termios.TCSANOW, mode)

    def read_for(self, seconds: float) -> str:
        """Return the output of the next seconds."""
        seen, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.keyboard], [], [], left)[0]:
                seen += os.read(self.keyboard, 65536)
        return seen.decode(errors="replace")

    def read_to_end(self) -> str:
        self._close_device()
        seen = b""
        while True:
            try:
                more = self._read()
            except OSError:  # Linux: no process has the other end open
                more = b""
            if not more:
                return seen.decode(errors="replace")
            seen += more

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    @property
    def has_echo(self) -> bool:
        return bool(termios.tcgetattr(self.keyboard)[3] & termios.ECHO)

    def process_options(self) -> dict[str, Any]:
        """Return the options for a process in the foreground of this terminal, below a shell.

        The shell prints `[exit N]` when the process has ended.
        """
        return {
            "before": ("sh", "-c", SHELL, "sh"),
            "environ": ON_A_TERMINAL,
            "stdin": self.device,
            "stdout": self.device,
            "stderr": self.device,
            "preexec_fn": self._set_controlling_terminal,
        }

    def _set_controlling_terminal(self) -> None:
        os.setsid()
        os.close(os.open(os.ttyname(self.device), os.O_RDWR))

    def close(self) -> None:
        self._close_device()
        os.close(self.keyboard)

    def _close_device(self) -> None:
        if self._is_open:
            os.close(self.device)
            self._is_open = False

    def _read(self) -> bytes:
        assert select.select([self.keyboard], [], [], READ_TIMEOUT)[0], "no more output"
        return os.read(self.keyboard, 65536)


def without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)
