"""The answer of one run, printed while its model writes it.

Only the end of a run decides which of its messages is the answer. Until then the latest message is taken for it. If
that turns out to be wrong, a break separates what is printed already from the answer, which is always printed whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TextIO

from msgspec import structs

from retinue.model.event_codec import EventRecord
from retinue.model.events import (
    CONTINUED_NOTICE_CODE,
    AttemptStarted,
    MessageEnded,
    Notice,
    RunEnded,
    RunQueued,
    Text,
    TextDelta,
)
from retinue.output.untrusted_text import strip_control_characters
from retinue.runtime.progress import CallProgress, TextItem
from retinue.tui.renderer import StyledLine, StyledSpan
from retinue.tui.widths import text_width, wrap_text

NOT_THE_ANSWER = "[the text above is not the answer]"
"""Printed between the text of a failed attempt, or of a draft, and the answer."""
MAX_INDENT = 3
"""Blanks before a line of prose; Markdown takes more for code."""
MIN_WRAP_COLUMNS = 10
"""With fewer columns, indented lines are wrapped without their indent."""


class AnswerStream:
    """The latest message of a run, and how much of it is printed. Follows the first run that it sees queued."""

    def __init__(self) -> None:
        self.lock = Lock()
        """Held while text is printed and marked as printed."""
        self.run: str | None = None
        self.is_final = False
        """Whether the text is the answer of the ended run."""
        self.is_printed = False
        """Whether the whole answer is printed, with its line end."""
        self._before = ""
        """The text of the message that the latest one continues."""
        self._blocks: list[str] = []
        self._deltas: list[str] = []
        self._printed = ""
        self._rest = ""
        """The end of a partly printed message that another one replaced."""
        self._break: str | None = None
        self._end: str | None = None
        """The stop reason of the latest message."""
        self._is_continued = False

    @property
    def is_open(self) -> bool:
        """Whether the text may be the answer, as far as it is known: no tool was called after it."""
        return self._end != "tool_use" or self.is_final

    @property
    def is_partly_printed(self) -> bool:
        return bool(self._printed)

    @property
    def is_decided(self) -> bool:
        """Whether nothing more is written to the text."""
        return self._end is not None or self.is_final

    def observe(self, record: EventRecord) -> None:
        """Follow an event of the run."""
        event = record.event
        if self.run is None and isinstance(event, RunQueued):
            self.run = record.origin.run
        if record.origin.run != self.run:
            return
        match event:
            case TextDelta(text):
                self._start_text()
                self._deltas.append(text)
            case Text(text):
                self._start_text()
                self._deltas = []
                self._blocks.append(text)
            case MessageEnded(stop_reason=stop_reason):
                self._end = stop_reason
            case Notice(code=code) if code == CONTINUED_NOTICE_CODE:
                self._is_continued = True
            case AttemptStarted(number=number) if number > 1:
                self._start_over(NOT_THE_ANSWER)
            case RunEnded(text=text, answer=answer) if answer.is_text:
                self.finish(text)
            case _:
                pass

    def finish(self, text: str) -> None:
        """Take the text as the answer of the ended run."""
        self._before, self._blocks, self._deltas = text, [], []
        self.is_final = True
        if not text.startswith(self._printed):
            self._break, self._printed = NOT_THE_ANSWER, ""

    def pending(self) -> str:
        """Return the text that is not printed yet."""
        text = self._text()
        if not text.startswith(self._printed):
            self._break, self._printed = NOT_THE_ANSWER, ""
        return text[len(self._printed) :]

    def mark_printed(self, text: str) -> None:
        """Count the start of the pending text, and the break before it, as printed."""
        self._printed += text
        if text:
            self._break = None

    def lines_before(self) -> list[str]:
        """Return the lines that separate the pending text from printed text which is not part of it."""
        if self._break is None:
            return []
        return ["", self._break, ""] if self._break else [""]

    def take_rest(self) -> str:
        """Return the end of a partly printed message that another one replaced, sanitized, and forget it."""
        rest, self._rest = self._rest, ""
        return strip_control_characters(f"\n{rest}")[1:]

    def sanitize(self, text: str) -> str:
        """Return the start of the pending text as it is printed."""
        # Elsewhere than at the start of a text, an invisible first character is shown.
        return strip_control_characters(f"\n{text}")[1:] if self._printed else strip_control_characters(text)

    def _start_text(self) -> None:
        if self._end is None:
            return
        if self._is_continued and self._end == "length":
            self._before, self._blocks, self._deltas = self._text(), [], []
        else:
            self._start_over("")
        self._end, self._is_continued = None, False

    def _start_over(self, separator: str) -> None:
        if self._printed:
            text = self._text()
            is_unprinted = self._end is not None and text.startswith(self._printed)
            self._rest = text[len(self._printed) :] if is_unprinted else ""
            self._break, self._printed = separator, ""
        self._before, self._blocks, self._deltas, self._end = "", [], [], None

    def _text(self) -> str:
        blocks = (*self._blocks, "".join(self._deltas))
        return self._before + "\n".join(block for block in blocks if block.strip())


class AnswerPrinter:
    """Prints an answer on a terminal that nothing else draws on, word by word."""

    def __init__(self, stream: TextIO, answer: AnswerStream, *, whole_lines: bool) -> None:
        """Take the stream; other lines may be printed on its terminal between `whole_lines`."""
        self._stream = stream
        self._answer = answer
        self._whole_lines = whole_lines
        self._is_line_open = False

    def observe(self, record: EventRecord) -> None:
        self._answer.observe(record)

    def print_pending(self) -> None:
        """Print the words that are complete; of a text that has ended, all."""
        answer = self._answer
        with answer.lock:
            text = answer.pending()
            if not answer.is_decided:
                text = text[: _find_safe_end(text, whole_lines=self._whole_lines)]
            if text:
                self._print_text(text)
            if answer.is_final and not answer.is_printed:
                if self._is_line_open:
                    self._write("\n")
                answer.is_printed = True

    def _print_text(self, text: str) -> None:
        if rest := self._answer.take_rest():
            self._write(rest)
        before = self._answer.lines_before()
        if before and self._is_line_open:
            before = ["", *before]
        self._write("".join(f"{line}\n" for line in before) + self._answer.sanitize(text))
        self._answer.mark_printed(text)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
        if text:  # nothing is left of a text of control characters alone
            self._is_line_open = not text.endswith("\n")


class AnswerScreen:
    """Shows an answer above the frame of a live view: lines that no longer fit are printed, the newest are drawn.

    Both are wrapped between words, except that code and tables are printed as they are written.
    """

    def __init__(self, answer: AnswerStream) -> None:
        self.answer = answer
        self._is_in_code = False
        """Whether the last printed line was inside a fenced block of code."""

    def split(self, columns: int, rows: int) -> tuple[str, list[StyledLine]]:
        """Return the pending text to print now, and the lines to draw of the rest, at most so many rows."""
        pending = self.answer.pending()
        if self.answer.is_final or (not self.answer.is_open and self.answer.is_partly_printed):
            return pending, []
        if not self.answer.is_open:
            return "", []
        drawn: list[list[StyledLine]] = []
        lines = pending.split("\n")
        rows = max(rows, 1)
        count = 0
        while lines and count < rows:
            drawn.append(_draw_line(lines[-1], columns))
            if drawn[1:] and count + len(drawn[-1]) > rows:
                drawn.pop()
                break
            count += len(drawn[-1])
            lines.pop()
        shown = [line for group in reversed(drawn) for line in group][-rows:]
        while shown and not shown[-1]:
            shown.pop()
        return "".join(f"{line}\n" for line in lines), shown

    def render_printed(self, text: str, columns: int) -> list[str]:
        """Return the rows of a text that is printed for good."""
        lines = self.answer.sanitize(text).removesuffix("\n").split("\n") if text else []
        if text and (rest := self.answer.take_rest()):
            lines = [*rest.removesuffix("\n").split("\n"), *self.answer.lines_before(), *lines]
        elif text:
            lines = [*self.answer.lines_before(), *lines]
        return [row for line in lines for row in self._wrap_prose(line, columns)]

    def _wrap_prose(self, line: str, columns: int) -> list[str]:
        start = line.lstrip()
        if line == NOT_THE_ANSWER:
            self._is_in_code = False
        is_fence = start.startswith(("```", "~~~"))
        self._is_in_code ^= is_fence
        is_prose = not (self._is_in_code or is_fence or start.startswith("|") or len(line) - len(start) > MAX_INDENT)
        return _wrap_line(line, columns) if is_prose and text_width(line) > columns else [line]

    def without_answer(self, progress: CallProgress) -> CallProgress:
        """Return the progress of the runs without the text that is shown as the answer."""
        run = self.answer.run
        if run is None or run not in progress.runs or not self.answer.is_open:
            return progress
        view = progress.runs[run]
        items = view.items
        while items and isinstance(items[-1], TextItem):
            items = items[:-1]
        return CallProgress({**progress.runs, run: structs.replace(view, partial="", items=items)})


def _find_safe_end(text: str, *, whole_lines: bool) -> int:
    """Return the length of the start of an unfinished text whose sanitized form no longer depends on its end."""
    end = text.rfind("\n") + 1
    if whole_lines:
        return end
    word = max(text.rfind(" ", end), text.rfind("\t", end)) + 1
    # A line with control or invisible characters waits for its end: these depend on what follows.
    return word if word and strip_control_characters(text[end:]) == text[end:] else end


def _draw_line(line: str, columns: int) -> list[StyledLine]:
    """Return the rows of one line of an unfinished answer."""
    return [(StyledSpan(row),) if row else () for row in _wrap_line(strip_control_characters(line), columns)]


def _wrap_line(line: str, columns: int) -> list[str]:
    """Return the rows of a sanitized line, wrapped between words with its indent."""
    text = " ".join(line.expandtabs().split("\n"))
    indent = text[: len(text) - len(text.lstrip(" "))]
    if columns - text_width(indent) < MIN_WRAP_COLUMNS:
        indent = ""
    wrapped: Sequence[str] = wrap_text(text, columns - len(indent), len(text) + 1)
    return [indent + row for row in wrapped] or [""]
