"""Detect loops: stop a run that repeats the same tool calls, or writes the same text over and over."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from retinue.guards.base import EventTypes, GuardWithoutDeadline
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import (
    AttemptStarted,
    Event,
    MessageEnded,
    Text,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import Limits, ToolArguments

LOOP_FAILURE = Failure(ErrorCode.LOOP, "Loop detected: sub-agent is repeating the same tool calls")
TEXT_REASON = "text"
CHANGING_REASON = "changing_arguments"

MAX_PERIOD = 4
"""Calls of the longest pattern that is recognized."""
MAX_COMPARED_BYTES = 64 * 1024
"""Larger calls are compared as they are: only small ones have a counter in otherwise equal arguments."""
MIN_LOOPED_CHARS = 2_000
"""Characters that repetitions within one message must have: tables and lists repeat shorter parts."""
MAX_LOOPED_CHARS = 32_000
"""Characters at the end of a message that are searched for repetitions."""
CHECK_EVERY_CHARS = 1_000
"""Characters of a message between two searches."""
PROBE_CHARS = 40
MAX_PROBES = 8
"""Earlier places of the last characters that are tried as the beginning of a repetition."""
MIN_UNIT_WORDS = 3
"""Words of the text that is repeated: rulers and empty table cells are no loop."""

_canonical = msgspec.json.Encoder(order="deterministic").encode
# Numbers, and ids such as hashes and UUIDs.
_COUNTER = re.compile(rb"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[a-f]*\d)[0-9a-f]{4,}\b|\d+")
_WORD = re.compile(r"[^\W\d_]{2,}")


def call_signature(name: str, args: ToolArguments) -> bytes:
    """Return a value that is equal for equal calls, whatever the order of keys at any depth.

    It is empty for arguments nested too deep to compare: such a call equals no other.
    """
    try:
        return _canonical((name, args))
    except UnicodeEncodeError:  # a lone surrogate: rare, and the slower encoder escapes it
        import json

        return json.dumps((name, args), sort_keys=True).encode()
    except RecursionError:
        return b""


class LoopGuard(GuardWithoutDeadline):
    """Finds identical calls in a row, and patterns of up to four calls whose results no longer change.

    Identical calls count when they are made: `loop_count` in a row stop the run whatever they return. Patterns count
    when they return, because polling whose answer changes is no loop: only calls that are repeated in the same
    order with unchanged results, for twice `pair_count` calls, are a loop. If they differ in nothing but a number or
    an id and return the same text, `pattern_count` calls are enough. Zero turns a rule off.
    """

    observes: ClassVar[EventTypes] = (AttemptStarted, ToolCalled, ToolReturned)

    def __init__(self, limits: Limits) -> None:
        self._max_same = limits.loop_count
        self._exact_calls = 2 * limits.pair_count
        self._pattern_calls = max(limits.pattern_count, 2) if limits.pattern_count else 0
        self._reset()

    def _reset(self) -> None:
        self._in_a_row = 0
        self._last: bytes | None = None
        self._called: dict[str, bytes] = {}
        self._exact: list[tuple[bytes, int]] = []
        self._similar: list[tuple[bytes, int]] = []

    def observe(self, event: Event, now: float) -> Failure | None:
        match event:
            case AttemptStarted():
                self._reset()  # a new attempt repeats the calls of the previous one, which is not a loop
            case ToolCalled(call=call, name=name, args=args):
                mark = call_signature(name, args)
                self._called[call] = mark
                return self._observe_call(mark)
            case ToolReturned(call=call, name=name, text=text) if mark := self._called.pop(call, b""):
                return self._observe_result(mark, name, text)
        return None

    def _observe_call(self, mark: bytes) -> Failure | None:
        self._in_a_row = self._in_a_row + 1 if mark and mark == self._last else 1
        self._last = mark
        return LOOP_FAILURE if self._max_same and self._in_a_row >= self._max_same else None

    def _observe_result(self, mark: bytes, name: str, text: str) -> Failure | None:
        result = hash(text)
        longest = max(self._exact_calls, self._pattern_calls, 4 * MAX_PERIOD)
        self._exact = [*self._exact[1 - longest :], (mark, result)]
        # A command that prints nothing returns the same whatever it did.
        shape = _without_counters(mark) if text.strip() else mark
        self._similar = [*self._similar[1 - longest :], (shape, result)]
        if self._exact_calls and any(
            _has_period(self._exact, period, self._exact_calls) for period in range(2, MAX_PERIOD + 1)
        ):
            return LOOP_FAILURE
        for period in range(1, MAX_PERIOD + 1):
            calls = max(self._pattern_calls, 4 * period)
            if self._pattern_calls and _has_period(self._similar, period, calls) and self._changes(period, calls):
                return _changing_failure(name, calls, period)
        return None

    def _changes(self, period: int, calls: int) -> bool:
        """Return whether each of the last calls of one place in the pattern differs from the one before."""
        window = self._exact[-calls:]
        return any(
            all(window[i][0] != window[i - period][0] for i in range(place + period, calls, period))
            for place in range(period)
        )


def _has_period(window: list[tuple[bytes, int]], period: int, calls: int) -> bool:
    """Return whether the last calls repeat with this period, and with no shorter one that has a rule of its own."""
    if len(window) < calls or (period > 1 and window[-1] == window[-2]):
        return False
    return all(window[i] == window[i - period] for i in range(-1, period - calls - 1, -1))


def _without_counters(mark: bytes) -> bytes:
    return _COUNTER.sub(b"0", mark) if len(mark) <= MAX_COMPARED_BYTES else mark


def _changing_failure(name: str, calls: int, period: int) -> Failure:
    what = "the same tool call" if period == 1 else f"the same {period} tool calls"
    return Failure(
        ErrorCode.LOOP,
        f"Loop detected: sub-agent is repeating {what} with only a number or an id changed, {calls} calls with the "
        f"same results (last: {name}). Its partial output was kept. Make the task more precise, or raise "
        "looping_pattern_count.",
        CHANGING_REASON,
        {"tool": name, "calls": calls, "period": period},
    )


class TextLoopGuard(GuardWithoutDeadline):
    """Finds an assistant that writes the same text `count` times: in one message, or as messages without a tool call.

    Within a message, what is repeated must be words, and fill thousands of characters.
    """

    observes: ClassVar[EventTypes] = (AttemptStarted, TextDelta, ThinkingDelta, Text, ToolCalled, MessageEnded)

    def __init__(self, count: int) -> None:
        self._count = max(count, 2)
        self._reset()

    def _reset(self) -> None:
        self._tail = ""
        self._pieces: list[str] = []
        self._unchecked = 0
        self._message: list[str] = []
        self._last_message = 0
        self._in_a_row = 0

    def observe(self, event: Event, now: float) -> Failure | None:
        match event:
            case TextDelta(text=text) | ThinkingDelta(text=text):
                self._pieces.append(text)
                self._unchecked += len(text)
                if self._unchecked >= CHECK_EVERY_CHARS:
                    return self._check_message()
            case Text(text=text):
                self._message.append(text)
            case MessageEnded(stop_reason=stop_reason):
                return self._observe_message(has_ended=stop_reason != "tool_use")
            case ToolCalled() | AttemptStarted():
                self._reset()
        return None

    def _check_message(self) -> Failure | None:
        self._tail = (self._tail + "".join(self._pieces))[-MAX_LOOPED_CHARS:]
        self._pieces.clear()
        self._unchecked = 0
        unit = find_repeated_text(self._tail, self._count)
        return self._failure(unit) if unit else None

    def _observe_message(self, *, has_ended: bool) -> Failure | None:
        text = " ".join("".join(self._message).split())
        self._tail, self._unchecked = "", 0
        self._pieces.clear()
        self._message.clear()
        if not text or not has_ended:
            return None
        self._in_a_row = self._in_a_row + 1 if hash(text) == self._last_message else 1
        self._last_message = hash(text)
        return self._failure(text) if self._in_a_row >= self._count else None

    def _failure(self, text: str) -> Failure:
        return Failure(
            ErrorCode.LOOP,
            f"Loop detected: sub-agent wrote the same text {self._count} times. Its partial output was kept. Make "
            "the task more precise, choose another model, or raise looping_text_count.",
            TEXT_REASON,
            {"count": self._count, "chars": len(text)},
        )


def find_repeated_text(tail: str, count: int) -> str | None:
    """Return the text that a message ends with `count` times in a row; None if there is none."""
    probe, end = tail[-PROBE_CHARS:], len(tail)
    place = end - PROBE_CHARS
    for _ in range(MAX_PROBES):
        place = tail.rfind(probe, 0, place + PROBE_CHARS - 1)
        period = end - PROBE_CHARS - place
        times = max(count, -(-MIN_LOOPED_CHARS // period)) if period else 0
        if place < 0 or period * times > end:
            return None
        # Equal to itself shifted by one period: repeated all over.
        if tail[end - period * times : end - period] == tail[end - period * (times - 1) :]:
            unit = tail[-period:]
            return unit if len(_WORD.findall(unit + unit)) >= MIN_UNIT_WORDS else None
    return None
