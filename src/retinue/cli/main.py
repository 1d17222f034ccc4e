"""Where the process begins and ends: Ctrl-C from the first moment on, the exit code whatever happens.

Nothing heavy is imported before Ctrl-C is listened to. The commands are in `root`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from retinue.support import stdio_streams as streams

EXIT_CANCELLED = 130
"""The exit code of what Ctrl-C ended."""
FLUSH_TIMEOUT = 0.5
"""Seconds a thread has to finish what it writes before the process ends without it."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command of the arguments, the process's own by default, and ends the process with its exit code."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    try:
        streams.configure()
        from retinue.cli.group import root

        root.main(typed, prog_name="retinue")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        code = report_cancelled(typed)
    _exit_process(_flush_streams(code))


def report_cancelled(typed: Sequence[str]) -> int:
    """Says that Ctrl-C ended a command that had nothing running; the exit code of it."""
    if is_call_command(typed):
        _write_line(sys.stdout, '{"content":[{"type":"text","text":"Cancelled."}],"details":{},"isError":true}')
    _write_line(sys.stderr, "Cancelled.")
    return EXIT_CANCELLED


def is_call_command(typed: Sequence[str]) -> bool:
    """Whether it is `retinue call`, which prints its one object whatever happens."""
    return next((word for word in typed if not word.startswith("-")), None) == "call"


def is_one_run(typed: Sequence[str]) -> bool:
    """Whether it is a command that starts one run, whose JSON has one shape whatever happens."""
    words = [word for word in typed if not word.startswith("-")]
    return words[:1] == ["run"] or words[:2] == ["sessions", "resume"]


def _write_line(stream: TextIO | None, line: str) -> None:
    if stream is not None:
        stream.write(f"{line}\n")


def _flush_streams(code: int) -> int:
    """The exit code once everything is written; a reader who left early is no reason to complain."""
    if code == EXIT_CANCELLED and streams.is_blocked(sys.stdout):
        streams.detach(sys.stdout)
    if (error := streams.flush_stream(sys.stdout)) and not isinstance(error, BrokenPipeError):
        _write_line(sys.stderr, f"Not all could be written: {error.strerror}.")
        code = code or 1
    streams.flush_stream(sys.stderr)
    return code


def _exit_process(code: int) -> NoReturn:
    """Ends the process; without a thread that waits for a reader who does not read."""
    from threading import enumerate as all_threads
    from threading import main_thread

    others = [thread for thread in all_threads() if thread is not main_thread() and not thread.daemon]
    for thread in others:
        thread.join(FLUSH_TIMEOUT)
    if any(thread.is_alive() for thread in others):
        os._exit(code)
    sys.exit(code)
