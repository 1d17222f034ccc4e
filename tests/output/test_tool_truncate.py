"""Truncation of tool results."""

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.output.truncate import TruncatedLines, truncate_result, truncate_to_limits

texts = st.text(st.sampled_from("ab\né€😀"), max_size=60)


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(4, 40), st.integers(1, 8))
def test_truncated_tool_result_fits_and_is_the_start_of_the_text(text, max_bytes, max_lines):
    part = truncate_to_limits(text, max_bytes=max_bytes, max_lines=max_lines)
    assert len(part.text.encode()) <= max_bytes
    assert part.text.count("\n") < max_lines
    assert text.startswith(part.text)
    assert part.total_lines == text.count("\n") + 1
    assert (part.truncated_by is None) == (part.text == text)


def test_tool_result_keeps_whole_lines_unless_the_first_is_too_long():
    assert truncate_to_limits("ab\ncd\nef", max_bytes=6) == TruncatedLines("ab\ncd", 2, 3, "bytes")
    assert truncate_to_limits("ab\ncd\nef", max_lines=1) == TruncatedLines("ab", 1, 3, "lines")
    assert truncate_to_limits("€€\nb", max_bytes=5) == TruncatedLines("€", 1, 2, "line")


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_fitting_tool_result_is_unchanged_except_for_surrogates(text):
    assert truncate_result(text) == text.encode("utf-8", "replace").decode()
