"""Entry point of the `retinue` process: handles Ctrl-C from the start and sets the exit code.

Nothing heavy is imported before Ctrl-C is handled. The commands are in `group`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from retinue.support import own_process as streams

EXIT_CANCELLED = 130
"""Exit code of a command that was ended by Ctrl-C."""
FLUSH_TIMEOUT = 0.5
"""Seconds a thread has to finish writing before the process ends without it."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command of the arguments, by default those of the process, and exit with its code."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    code = 0
    try:
        try:
            streams.configure()
            if not os.environ.get(streams.DEBUG_VARIABLE):
                streams.deny_inspection()
            from retinue.cli.group import root

            root.main(typed, prog_name="retinue")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        _let_ctrl_c_end_process()
    except KeyboardInterrupt:
        _let_ctrl_c_end_process()
        code = report_cancelled(typed)
    _exit_process(_flush_streams(code))


def _let_ctrl_c_end_process() -> None:
    """Let one more Ctrl-C end the process at once: while it exits, Python would print a traceback for it."""
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def report_cancelled(typed: Sequence[str]) -> int:
    """Print that Ctrl-C ended a command that had nothing running, and return its exit code."""
    if is_call_command(typed):
        _write_line(sys.stdout, '{"content":[{"type":"text","text":"Cancelled."}],"details":{},"isError":true}')
    _write_line(sys.stderr, "Cancelled.")
    return EXIT_CANCELLED


def is_call_command(typed: Sequence[str]) -> bool:
    """Return whether the command is `retinue call`, which always prints one JSON object."""
    return next((word for word in typed if not word.startswith("-")), None) == "call"


def is_one_run(typed: Sequence[str]) -> bool:
    """Return whether the command starts one run, whose JSON always has the same shape."""
    words = [word for word in typed if not word.startswith("-")]
    return words[:1] == ["run"] or words[:2] == ["sessions", "resume"]


def _write_line(stream: TextIO | None, line: str) -> None:
    if stream is not None:
        stream.write(f"{line}\n")


def _flush_streams(code: int) -> int:
    """Flush stdout and stderr and return the exit code; a reader that left early is not an error."""
    if code == EXIT_CANCELLED and streams.is_blocked(sys.stdout):
        streams.detach(sys.stdout)
    if (error := streams.flush_stream(sys.stdout)) and not isinstance(error, BrokenPipeError):
        _write_line(sys.stderr, f"The output could not be written completely: {error.strerror}.")
        code = code or 1
    streams.flush_stream(sys.stderr)
    return code


def _exit_process(code: int) -> NoReturn:
    """End the process without waiting for a thread whose reader does not read."""
    from threading import enumerate as all_threads
    from threading import main_thread

    others = [thread for thread in all_threads() if thread is not main_thread() and not thread.daemon]
    for thread in others:
        thread.join(FLUSH_TIMEOUT)
    if any(thread.is_alive() for thread in others):
        os._exit(code)
    sys.exit(code)
