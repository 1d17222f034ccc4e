"""The signals that stop what a process of ours does."""

from __future__ import annotations

import os
import signal


def list_stop_signals() -> list[signal.Signals]:
    """Those to listen to. One that was ignored when we started, as under `nohup`, stays ignored.

    None on Windows, where an event loop cannot receive any.
    """
    if os.name == "nt":
        return []
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]
