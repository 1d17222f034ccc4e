"""Detect loops: stop a run that repeats the same tool calls."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from retinue.guards.base import EventTypes, GuardWithoutDeadline
from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import AttemptStarted, Event, ToolCalled, ToolReturned
from retinue.model.runs import ToolArguments

LOOP_FAILURE = Failure(ErrorCode.LOOP, "Loop detected: sub-agent is repeating the same tool calls")

_canonical = msgspec.json.Encoder(order="deterministic").encode


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
    """Finds identical calls in a row, and two calls in turn whose results no longer change.

    Identical calls count when they are made: `same` in a row stop the run whatever they return. Pairs count when
    they return, because polling whose answer changes is honest work: only A, B, A, B with unchanged results,
    `pairs` times over, is a loop. Zero switches either rule off.
    """

    observes: ClassVar[EventTypes] = (AttemptStarted, ToolCalled, ToolReturned)

    def __init__(self, same: int, pairs: int) -> None:
        self._max_same = same
        self._max_pairs = pairs
        self._reset()

    def _reset(self) -> None:
        self._in_a_row = 0
        self._last: bytes | None = None
        self._called: dict[str, bytes] = {}
        self._returned: list[tuple[bytes, int]] = []

    def observe(self, event: Event, now: float) -> Failure | None:
        match event:
            case AttemptStarted():
                self._reset()  # a new attempt repeats the calls of the previous one, which is not a loop
            case ToolCalled(call=call, name=name, args=args):
                mark = call_signature(name, args)
                self._called[call] = mark
                return self._observe_call(mark)
            case ToolReturned(call=call, text=text) if mark := self._called.pop(call, b""):
                self._returned = [*self._returned[1 - 2 * self._max_pairs :], (mark, hash(text))]
                return LOOP_FAILURE if self._alternates() else None
        return None

    def _observe_call(self, mark: bytes) -> Failure | None:
        self._in_a_row = self._in_a_row + 1 if mark and mark == self._last else 1
        self._last = mark
        return LOOP_FAILURE if self._max_same and self._in_a_row >= self._max_same else None

    def _alternates(self) -> bool:
        window = self._returned
        if not self._max_pairs or len(window) < 2 * self._max_pairs or window[-1] == window[-2]:
            return False
        return all(window[i] == window[i - 2] for i in range(2, len(window)))
