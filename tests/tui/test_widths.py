"""Columns of text on a terminal: measuring, cutting, padding and wrapping."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from retinue.tui.widths import fit_text, pad_text, text_width, wrap_text

TEXT = st.text(alphabet=st.characters(blacklist_categories=["Cs", "Cc"]), max_size=60)
EMOJI = {"family": "👨‍👩‍👧", "technologist": "👩‍💻", "skin tone": "👍🏽", "variation selector": "❤️", "flag": "🇩🇪"}
CLUSTERS = st.lists(st.sampled_from(["a", "bc", " ", "e\u0301", "你", "…", *EMOJI.values()]), max_size=30).map(
    "".join
)


def test_wide_and_combining_characters_count_as_a_terminal_draws_them():
    assert [text_width(text) for text in ("abc", "你好", "e\u0301", "🦊", "")] == [3, 4, 1, 2, 0]


@pytest.mark.parametrize("emoji", EMOJI.values(), ids=EMOJI)
def test_emoji_of_several_code_points_takes_two_columns(emoji):
    assert text_width(emoji) == 2
    assert text_width(f"a{emoji}b{emoji}") == 6
    assert fit_text(f"a{emoji}{emoji}", 4) == f"a{emoji}…"
    assert fit_text(f"a{emoji}{emoji}", 3) == "a…"
    assert wrap_text(emoji * 3, 4, 3) == [emoji * 2, emoji]


def test_fit_text_marks_a_cut_with_an_ellipsis():
    assert [fit_text("abcdef", columns) for columns in (6, 4, 1, 0)] == ["abcdef", "abc…", "…", ""]
    assert fit_text("你好吗", 4) == "你…"


def test_pad_text_fills_the_columns_with_blanks():
    assert [pad_text("你", 4), pad_text("abcdef", 4)] == ["你  ", "abc…"]


def test_wrap_text_breaks_between_words_and_marks_text_left_over():
    assert wrap_text("one two three four", 9, 3) == ["one two", "three", "four"]
    assert wrap_text("one two three four", 9, 2) == ["one two", "three fo…"]
    assert wrap_text("unbreakable", 4, 9) == ["unbr", "eaka", "ble"]
    assert wrap_text("  ", 4, 3) == []


@settings(max_examples=200, deadline=None)
@given(TEXT, st.integers(0, 40))
def test_no_line_is_wider_than_its_columns(text, columns):
    assert text_width(fit_text(text, columns)) <= columns
    assert text_width(pad_text(text, columns)) == columns
    assert all(text_width(line) <= max(columns, 2) for line in wrap_text(text, columns, 3))
    assert len(wrap_text(text, columns, 3)) <= 3


@settings(max_examples=200, deadline=None)
@given(CLUSTERS, st.integers(2, 12))
def test_cutting_never_splits_a_grapheme_cluster(text, columns):
    whole = set(iter_graphemes(text)) | {"…", " "}
    pieces = [fit_text(text, columns), *wrap_text(text, columns, 99)]
    assert {cluster for piece in pieces for cluster in iter_graphemes(piece)} <= whole
    assert "".join(wrap_text(text, columns, 999)).replace(" ", "") == text.replace(" ", "")
