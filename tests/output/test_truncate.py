"""Truncation of long answers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.output.truncate import MAX_BYTES, MAX_LINES, TruncatedText, format_size, truncate_text

LIMITS = st.tuples(st.integers(0, 60), st.integers(1, 8))


def test_answer_within_the_limits_is_unchanged():
    text = "x" * (MAX_BYTES - MAX_LINES + 1) + "\n" * (MAX_LINES - 1)
    assert truncate_text(text) == TruncatedText(
        text=text, shown_lines=MAX_LINES, total_lines=MAX_LINES, shown_bytes=MAX_BYTES, total_bytes=MAX_BYTES
    )


def test_too_many_lines_are_truncated_with_a_notice():
    text = "\n".join(f"line {i}" for i in range(6000))
    cut = truncate_text(text)
    head = "\n".join(f"line {i}" for i in range(5000))
    assert cut == TruncatedText(
        text=f"[TRUNCATED: showing first 5000 of 6000 lines, 47.7 KB of 57.5 KB]\n{head}",
        truncated=True,
        shown_lines=5000,
        total_lines=6000,
        shown_bytes=len(head),
        total_bytes=len(text),
    )


def test_too_many_bytes_are_truncated_between_characters():
    cut = truncate_text("é" * MAX_BYTES)
    assert cut.text == f"[TRUNCATED: showing first 1 of 1 lines, 200.0 KB of 400.0 KB]\n{'é' * (MAX_BYTES // 2)}"


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ab\né漢🔥\ud83d\u0301"), max_size=60), limits=LIMITS)
def test_truncated_text_is_a_prefix_within_both_limits(text, limits):
    max_bytes, max_lines = limits
    cut = truncate_text(text, max_bytes=max_bytes, max_lines=max_lines)
    shown = cut.text.split("\n", 1)[1] if cut.truncated else cut.text
    assert text.startswith(shown)
    assert cut.truncated == (shown != text)
    assert cut.shown_bytes == len(shown.encode("utf-8", "surrogatepass")) <= max_bytes
    assert cut.shown_lines == shown.count("\n") + 1 <= max_lines


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=60), limit=st.integers(0, 60))
def test_truncation_keeps_as_much_as_possible(text, limit):
    cut = truncate_text(text, max_bytes=limit)
    if cut.truncated:
        shown = cut.text.split("\n", 1)[1]
        assert cut.shown_bytes + len(text[len(shown)].encode()) > limit


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KB"), (1536, "1.5 KB"), (2**20, "1.0 MB"), (5 * 2**30, "5.0 GB")],
)
def test_sizes_are_formatted_in_the_largest_fitting_unit(size, shown):
    assert format_size(size) == shown
