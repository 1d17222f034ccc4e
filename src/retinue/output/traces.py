"""Shorten long stack traces of JavaScript, Java, C#, Python, Ruby, Go and Rust; short ones stay unchanged.

Each line is matched once, and none longer than `MAX_FRAME_LINE` is a frame: the time is linear in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from retinue.support.cache import compile_pattern

MAX_SHORT_TRACE = 10
"""Frames of a trace that is not shortened."""
NEAR_FRAMES, FAR_FRAMES = 5, 3
"""Frames kept at the end of a trace where the error is, and at its other end."""
MAX_PROJECT_FRAMES = 5
"""Frames of the project's own files that are kept between them."""
MIN_FRAME_LINE, MAX_FRAME_LINE = 4, 1000
"""Characters of a line that can be a frame."""

CUT_FRAMES = "    [Additional stack frames truncated]"

_MARKS = ("at ", 'File "', "from ", ":in ", "goroutine ", "backtrace:")
"""A text without any of these has no trace."""


class _TraceFormat(Struct, frozen=True):
    """The format of stack frames in some languages."""

    frame: str
    """The first line of a frame."""
    more: str = ""
    """Further lines of the same frame; empty: none."""
    needs_more: bool = False
    """Whether a frame always has a second line."""
    header: str = ""
    """The line before the first frame; empty: any."""
    error_is_last: bool = False


_PLACE = r":\d+\)?|\((?:native|<anonymous>|Native Method|Unknown Source)\)|[\w>\]]\([^()]*\)|:line \d+"
_TRACE_FORMATS = (
    # JavaScript, Java, C#
    _TraceFormat(rf"[ \t]+at \S.*?(?:{_PLACE})(?: ~?\[[^\]]*\])?\s*"),
    _TraceFormat(
        r'[ \t]+File ".*", line \d+(?:, in .*)?', more=r"[ \t]{3,}\S.*|[ \t]+\[Previous line.*", error_is_last=True
    ),
    # Ruby
    _TraceFormat(r"[ \t]*(?:\d+: )?(?:from )?\S.*:\d+:in [`'][^'`]*['`]\s*|[ \t]+(?:\d+: )?from \S.*:\d+\s*"),
    # Go
    _TraceFormat(
        r"[\w./*()\[\]{}…-]+\(.*\)|created by \S.*|\.\.\.additional frames elided\.\.\.",
        more=r"\t\S.*:\d+(?: \+0x[0-9a-f]+)?\s*",
        needs_more=True,
        header=r"goroutine \d+ .*\[.*\]:\s*",
    ),
    # Rust
    _TraceFormat(
        r"\s*\d+: \s*\S.*", more=r"\s+at \S.*:\d+(?::\d+)?\s*", header=r"(?i)(?:note: )?\s*stack backtrace:\s*"
    ),
)

_FRAME_PATH = (
    r'(?m)File "([^"]+)"|\(([^()]+?):\d+(?::\d+)?\)| in (\S.*):line \d+|(?:\bat|\bfrom|^)\s+(?:async )?(\S+?):\d+'
)
_LIBRARY = (
    r"node_modules|site-packages|dist-packages|[/\\]lib[/\\]|[/\\]\.cargo[/\\]|[/\\]rustc[/\\]|[/\\]pkg[/\\]mod[/\\]"
    r"|[/\\]gems[/\\]|[/\\]vendor[/\\]|^(?:node:|<|internal[/\\])"
)
_LIBRARY_CALL = (
    r"\bat (?:java|javax|jdk|sun|com\.sun|kotlin|scala|org\.(?:springframework|apache|junit|eclipse)"
    r"|System|Microsoft)[./]"
)


def fold_stack_traces(text: str, cwd: str = "") -> str:
    """Return the text with each long stack trace shortened: the frames at both ends and the project's own are kept.

    `cwd` is the folder of the project; a relative path is of the project, too.
    """
    if not any(mark in text for mark in _MARKS):
        return text
    lines = text.split("\n")
    folded: list[str] = []
    at = 0
    while at < len(lines):
        trace_format = _format_at(lines, at)
        frames = list(_find_frames(lines, at, trace_format)) if trace_format else []
        if trace_format is None or len(frames) <= MAX_SHORT_TRACE:
            end = frames[-1][1] if frames else at + 1
            folded += lines[at:end]
        else:
            end = frames[-1][1]
            folded += _shorten_trace(lines, frames, trace_format, cwd)
        at = end
    return "\n".join(folded)


def _format_at(lines: list[str], at: int) -> _TraceFormat | None:
    """Return the format of the frame that starts on this line; None if none does."""
    if not _may_be_frame(lines[at]):
        return None
    for trace_format in _TRACE_FORMATS:
        if trace_format.header and not (
            at and compile_pattern(trace_format.header).fullmatch(lines[at - 1][:MAX_FRAME_LINE])
        ):
            continue
        if _find_frame_end(lines, at, trace_format):
            return trace_format
    return None


def _find_frames(lines: list[str], at: int, trace_format: _TraceFormat) -> Iterator[tuple[int, int]]:
    """Yield the first line of each frame that follows, and the line behind its last."""
    while at < len(lines) and (end := _find_frame_end(lines, at, trace_format)):
        yield at, end
        at = end


def _find_frame_end(lines: list[str], at: int, trace_format: _TraceFormat) -> int:
    """Return the line behind the frame that starts here; 0 if none does."""
    if not _may_be_frame(lines[at]) or not compile_pattern(trace_format.frame).fullmatch(lines[at]):
        return 0
    end = at + 1
    while trace_format.more and end < len(lines) and _continues_frame(lines[end], trace_format):
        end += 1
    return 0 if trace_format.needs_more and end == at + 1 and not lines[at].startswith("...") else end


def _continues_frame(line: str, trace_format: _TraceFormat) -> bool:
    return (
        _may_be_frame(line)
        and not compile_pattern(trace_format.frame).fullmatch(line)
        and _matches(trace_format.more, line)
    )


def _matches(pattern: str, line: str) -> bool:
    return compile_pattern(pattern).fullmatch(line) is not None


def _may_be_frame(line: str) -> bool:
    return MIN_FRAME_LINE <= len(line) <= MAX_FRAME_LINE


def _shorten_trace(
    lines: list[str], frames: list[tuple[int, int]], trace_format: _TraceFormat, cwd: str
) -> Iterator[str]:
    """Yield the lines of a long trace that are kept, and the number of frames left out between them."""
    first, last = (FAR_FRAMES, NEAR_FRAMES) if trace_format.error_is_last else (NEAR_FRAMES, FAR_FRAMES)
    middle = range(first, len(frames) - last)
    own = [number for number in middle if _is_project_frame(lines[slice(*frames[number])], cwd)]
    kept = sorted({*range(first), *own[:MAX_PROJECT_FRAMES], *range(len(frames) - last, len(frames))})
    final_gap = max((before for before, after in pairwise(kept) if after - before > 1), default=-1)
    for number, following in pairwise([*kept, len(frames)]):
        yield from lines[slice(*frames[number])]
        if left_out := following - number - 1:
            yield f"    ... [{left_out} stack frame{'s' * (left_out > 1)} left out]"
        if number == final_gap:
            yield CUT_FRAMES


def _is_project_frame(frame: list[str], cwd: str) -> bool:
    text = "\n".join(frame)
    found = compile_pattern(_FRAME_PATH).search(text)
    if found is None or compile_pattern(_LIBRARY_CALL).search(text):
        return False
    path = next(part for part in found.groups() if part).removeprefix("file://").strip()
    within = path.removeprefix(cwd.rstrip("/\\")) if cwd else path
    if compile_pattern(_LIBRARY).search(within):
        return False
    return within != path or not compile_pattern(r"[/\\]|[A-Za-z]:").match(path)
