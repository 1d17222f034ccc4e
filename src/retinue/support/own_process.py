"""The standard streams, the environment and the stop signals of this process.

Streams accept every character and detach from gone readers. Imports nothing heavy: every error message of the program
is printed through these functions.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import signal

DEBUG_VARIABLE = "RETINUE_DEBUG"
"""Set to print the traceback of an unexpected error, and to let debuggers and profilers inspect this process."""
PR_SET_DUMPABLE = 4
SUBSTITUTES = {
    "→": ">", "•": "*", "✓": "+", "✗": "x", "…": ".", "○": "o", "—": "-", "“": '"', "”": '"',
    **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
}  # fmt: skip
"""Replacements for streams whose encoding lacks these characters; one column each, like the originals."""


def configure() -> None:
    """Make stdout and stderr replace characters that their encoding lacks, and reopen closed streams.

    Variables that a host failed to fill in are removed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Closed. Occupied now, or a file opened later would get this number and receive the stream's output.
            os.open(os.devnull, os.O_RDWR)
    codecs.register_error("retinue", _substitute)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="retinue")
    for name in os.environ.keys() - drop_placeholders(os.environ).keys():
        del os.environ[name]


def deny_inspection() -> None:
    """Let no other process of this user read the environment, memory and descriptors of this process. Linux only.

    Root can read them all the same. Programs that this process starts are not affected.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def flush_stream(stream: IO[Any] | None) -> OSError | None:
    """Flush a stream; if that fails, detach the stream and return the error."""
    if stream is None:
        return None
    try:
        stream.flush()
    except OSError as error:
        detach(stream)
        return error
    return None


def detach(stream: IO[Any]) -> None:
    """Redirect a stream to the null device: buffered output would fail again at interpreter exit."""
    with open(os.devnull, "wb") as null_device:  # noqa: PTH123 - a device, not a path
        os.dup2(null_device.fileno(), stream.fileno())


def is_blocked(stream: IO[Any] | None) -> bool:
    """Return whether a write to the stream would block because its reader does not read."""
    try:
        return stream is not None and not select.select([], [stream.fileno()], [], 0)[1]
    except (OSError, ValueError):  # no file, or the system cannot select on it
        return False


def is_closed(stream: IO[Any] | None) -> bool:
    """Return whether the reader of the stream has closed its end."""
    if stream is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
        return any(flags & (select.POLLERR | select.POLLHUP) for _, flags in poll.poll(0))
    except (OSError, ValueError):  # no file
        return False


def _substitute(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(SUBSTITUTES.get(character, "?") for character in missing), error.end


def list_stop_signals() -> list[signal.Signals]:
    """Return the stop signals to handle, without those ignored at the start of the process, as under `nohup`.

    There are none on Windows, where an event loop cannot receive signals.
    """
    import signal

    if os.name == "nt":
        return []
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]


def is_placeholder(name: str, value: str) -> bool:
    """Return whether the value is only a reference to the variable itself, as hosts leave it if it is not set."""
    return value.startswith("$") and value in {f"${name}", f"${{{name}}}", f"${{env:{name}}}"}


def drop_placeholders(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the environment without variables that a host failed to fill in."""
    return {name: value for name, value in environ.items() if not is_placeholder(name, value)}
