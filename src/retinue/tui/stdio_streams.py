"""The streams of the process: made to take every character, and given up where nobody reads.

Imports nothing heavy: it is what everything else is told through.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
from typing import IO, Any

SUBSTITUTES = {
    "→": ">", "•": "*", "✓": "+", "✗": "x", "…": ".", "○": "o", "—": "-", "“": '"', "”": '"',
    **dict.fromkeys("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*"),
}  # fmt: skip
"""For streams that cannot write these; one column each, as they have."""


def configure() -> None:
    """Makes every stream take every character: where its encoding lacks one, something like it is written."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Closed. Taken up before a file of ours gets its number, and with it what is meant for a stream.
            os.open(os.devnull, os.O_RDWR)
    codecs.register_error("retinue", _substitute)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="retinue")


def flush_stream(stream: IO[Any] | None) -> OSError | None:
    """Writes what a stream still holds; the error if it will not, and then it is given up."""
    if stream is None:
        return None
    try:
        stream.flush()
    except OSError as error:
        detach(stream)
        return error
    return None


def detach(stream: IO[Any]) -> None:
    """Lets all that is still to be written to a stream go nowhere: it would be tried, and fail, again at exit."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device, not a path
        os.dup2(nowhere.fileno(), stream.fileno())


def is_blocked(stream: IO[Any] | None) -> bool:
    """Whether a write to a stream would have to wait now, for someone who does not read."""
    try:
        return stream is not None and not select.select([], [stream.fileno()], [], 0)[1]
    except (OSError, ValueError):  # no file, or a system that cannot tell
        return False


def is_closed(stream: IO[Any] | None) -> bool:
    """Whether whoever read a stream has left, so that nothing written to it will be read."""
    if stream is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)
        return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))
    except (OSError, ValueError):  # no file
        return False


def _substitute(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    return "".join(SUBSTITUTES.get(character, "?") for character in missing), error.end
