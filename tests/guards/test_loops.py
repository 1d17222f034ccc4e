"""Loops beyond identical calls: patterns, changing arguments, and text."""

import pytest

from retinue.guards.loop import LOOP_FAILURE, LoopGuard, TextLoopGuard, find_repeated_text
from retinue.model.errors import ErrorCode
from retinue.model.events import (
    AttemptStarted,
    MessageEnded,
    Text,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
)
from retinue.model.runs import Limits


def play(calls, **limits):
    """Return the number of the call at which the guard stops the run and its failure; None for an honest run."""
    guard = LoopGuard(Limits(**limits))
    for number, (name, args, result) in enumerate(calls, 1):
        for event in (ToolCalled(f"c{number}", name, args), ToolReturned(f"c{number}", name, result)):
            if failure := guard.observe(event, 0.0):
                return number, failure
    return None


def cycle(period, count, result=lambda n: "same"):
    return [("bash", {"command": f"step {'abcdefgh'[n % period]}"}, result(n)) for n in range(count)]


@pytest.mark.parametrize("period", [2, 3, 4])
def test_pattern_of_two_to_four_calls_with_unchanged_results_is_a_loop(period):
    assert play(cycle(period, 100)) == (40, LOOP_FAILURE)


@pytest.mark.parametrize("period", [5, 8])
def test_longer_pattern_is_no_loop(period):
    assert play(cycle(period, 100)) is None


@pytest.mark.parametrize("period", [2, 3, 4])
def test_pattern_with_changing_results_is_no_loop(period):
    assert play(cycle(period, 200, lambda n: f"{n // period} percent")) is None


def test_call_with_a_counter_and_the_same_result_is_a_loop_with_evidence():
    calls = [("bash", {"command": f"curl -s 'localhost/health?t={n}'"}, "connection refused") for n in range(50)]
    stopped = play(calls)
    assert stopped is not None
    number, failure = stopped
    assert (number, failure.code, failure.reason) == (12, ErrorCode.LOOP, "changing_arguments")
    assert failure.detail == {"tool": "bash", "calls": 12, "period": 1}
    assert "looping_pattern_count" in failure.message


@pytest.mark.parametrize(
    "argument",
    [
        lambda n: {"at": 1_700_000_000 + n},
        lambda n: {"query": "status", "nonce": f"{n:08x}-{n * 7:04x}-4abc"},
        lambda n: {"query": "status", "page": {"cursor": f"2026-11-{n % 28:02}T10:{n:02}:00Z"}},
    ],
)
def test_timestamp_nonce_and_counter_do_not_hide_a_loop(argument):
    assert play([("web_search", argument(n), "nothing found") for n in range(20)]) is not None


@pytest.mark.parametrize("period", [2, 3, 4])
def test_pattern_with_a_changing_argument_is_a_loop(period):
    calls = [
        ("bash", {"command": f"step {'abcd'[n % period]}", "try": n // period}, f"result {n % period}")
        for n in range(50)
    ]
    stopped = play(calls)
    assert stopped is not None
    assert (stopped[0], stopped[1].detail["period"]) == (max(12, 4 * period), period)


HONEST = {
    "pages of a file": [("read", {"path": "a.py", "offset": n * 200}, f"lines from {n * 200}") for n in range(60)],
    "files with numbers": [("read", {"path": f"part{n}.txt"}, f"text of {n}") for n in range(60)],
    "polls whose result changes": [("bash", {"command": "squeue"}, f"{n} waiting") for n in range(4)]
    + [("bash", {"command": f"sleep {n}; squeue"}, f"{n} waiting") for n in range(60)],
    "silent commands": [("bash", {"command": f"mkdir out/{n}"}, "") for n in range(60)],
    "silent commands with a newline": [("bash", {"command": f"touch {n}"}, "\n") for n in range(60)],
    "eleven misses": [("grep", {"pattern": f"E{n}"}, "No matches found") for n in range(11)],
    "other words": [("grep", {"pattern": word}, "No matches found") for word in "abcdefghijklmnopqrstuvwxyz"],
    "edit and test": [
        step
        for n in range(30)
        for step in (
            ("edit", {"path": "a.py", "new": "x" * n}, f"edited {n}"),
            ("bash", {"command": "pytest -q"}, "1 failed"),
        )
    ],
    "writing numbered files": [
        ("write", {"path": f"case{n}.txt", "content": "x"}, f"Wrote 1 byte to case{n}.txt") for n in range(60)
    ],
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_repetition_is_no_loop(name):
    assert play(HONEST[name]) is None


def test_new_attempt_starts_the_count_again():
    guard = LoopGuard(Limits())
    calls = [("read", {"n": n}, "same") for n in range(11)]
    for _ in range(3):
        assert guard.observe(AttemptStarted(1, "retry", None), 0.0) is None
        for number, (name, args, result) in enumerate(calls):
            assert guard.observe(ToolCalled(str(number), name, args), 0.0) is None
            assert guard.observe(ToolReturned(str(number), name, result), 0.0) is None


def test_zero_switches_the_rule_off():
    assert play([("read", {"n": n}, "same") for n in range(100)], pattern_count=0) is None


# -- text ------------------------------------------------------------------------------------------

SENTENCE = "Let me check the configuration file once more before I answer. "


def write(text, size=7, kind=TextDelta, count=10):
    """Return after how many characters the guard stops a message; None if it does not."""
    guard = TextLoopGuard(count)
    for begin in range(0, len(text), size):
        if guard.observe(kind(text[begin : begin + size]), 0.0):
            return begin + size
    return None


@pytest.mark.parametrize("kind", [TextDelta, ThinkingDelta])
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_message_that_repeats_a_sentence_is_stopped_early(kind, size):
    stopped = write("First I read the files. " + SENTENCE * 1000, size, kind)
    assert stopped is not None
    assert stopped <= max(5000, 2000 + 24 + 2 * 1000)


def test_message_that_repeats_a_paragraph_is_stopped():
    paragraph = "".join(f"Step {n}: look at module number {n} and compare it with the table. " for n in range(30))
    assert write(paragraph * 30) is not None


@pytest.mark.parametrize(
    "text",
    [
        "-" * 20_000,
        "| --- | --- | --- |\n" * 2_000,
        "0, 0, 0, 0, 0, 0, 0, 0,\n" * 2_000,
        " " * 20_000,
        "".join(f"{n:05} the quick brown fox jumps over the lazy dog\n" for n in range(2_000)),
        SENTENCE * 9,
        SENTENCE * 9 + "And now the result.",
        "".join(f"- [ ] Check module {n}: read, test, document and release it.\n" for n in range(500)),
    ],
)
def test_text_that_only_looks_repetitive_is_no_loop(text):
    assert write(text) is None


def messages(texts, stop_reason="length"):
    guard = TextLoopGuard(10)
    for number, text in enumerate(texts, 1):
        for event in (Text(text), MessageEnded(stop_reason=stop_reason)):
            if failure := guard.observe(event, 0.0):
                return number, failure.reason
    return None


def test_same_message_ten_times_without_a_tool_call_is_a_loop():
    assert messages([SENTENCE, *[f"{SENTENCE}\n"] * 20]) == (10, "text")


def test_different_messages_and_messages_with_tool_calls_are_no_loop():
    assert messages([f"{SENTENCE} {n}" for n in range(50)]) is None
    assert messages([SENTENCE] * 50, stop_reason="tool_use") is None


def test_repetition_is_found_wherever_the_message_is_cut():
    for cut in range(len(SENTENCE)):
        assert find_repeated_text((SENTENCE * 50)[: 2500 + cut], 10) is not None
