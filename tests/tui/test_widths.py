"""How wide text is on a screen, and how it is made to fit."""

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.tui.widths import fit_text, pad_text, text_width, wrap_text

TEXT = st.text(alphabet=st.characters(blacklist_categories=["Cs", "Cc"]), max_size=60)


def test_wide_and_combining_characters_count_as_a_terminal_draws_them():
    assert [text_width(text) for text in ("abc", "你好", "e\u0301", "🦊", "")] == [3, 4, 1, 2, 0]


def test_text_that_does_not_fit_says_so():
    assert [fit_text("abcdef", columns) for columns in (6, 4, 1, 0)] == ["abcdef", "abc…", "…", ""]
    assert fit_text("你好吗", 4) == "你…"


def test_padding_fills_up_to_the_column():
    assert [pad_text("你", 4), pad_text("abcdef", 4)] == ["你  ", "abc…"]


def test_lines_break_between_words_and_the_last_one_says_if_there_is_more():
    assert wrap_text("one two three four", 9, 3) == ["one two", "three", "four"]
    assert wrap_text("one two three four", 9, 2) == ["one two", "three fo…"]
    assert wrap_text("unbreakable", 4, 9) == ["unbr", "eaka", "ble"]
    assert wrap_text("  ", 4, 3) == []


@settings(max_examples=200, deadline=None)
@given(TEXT, st.integers(0, 40))
def test_nothing_is_ever_wider_than_its_columns(text, columns):
    assert text_width(fit_text(text, columns)) <= columns
    assert text_width(pad_text(text, columns)) == columns
    assert all(text_width(line) <= max(columns, 2) for line in wrap_text(text, columns, 3))
    assert len(wrap_text(text, columns, 3)) <= 3
