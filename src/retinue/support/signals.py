"""The signals that stop a process of Retinue."""

from __future__ import annotations

import os
import signal


def list_stop_signals() -> list[signal.Signals]:
    """Return the stop signals to handle, without those ignored at the start of the process, as under `nohup`.

    There are none on Windows, where an event loop cannot receive signals.
    """
    if os.name == "nt":
        return []
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
