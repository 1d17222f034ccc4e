"""How wide text is on a screen, and how it is made to fit."""

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.frontends.cells import fit, pad, width, wrap

TEXT = st.text(alphabet=st.characters(blacklist_categories=["Cs", "Cc"]), max_size=60)


def test_wide_and_combining_characters_count_as_a_terminal_draws_them():
    assert [width(text) for text in ("abc", "你好", "e\u0301", "🦊", "")] == [3, 4, 1, 2, 0]


def test_text_that_does_not_fit_says_so():
    assert [fit("abcdef", columns) for columns in (6, 4, 1, 0)] == ["abcdef", "abc…", "…", ""]
    assert fit("你好吗", 4) == "你…"


def test_padding_fills_up_to_the_column():
    assert [pad("你", 4), pad("abcdef", 4)] == ["你  ", "abc…"]


def test_lines_break_between_words_and_the_last_one_says_if_there_is_more():
    assert wrap("one two three four", 9, 3) == ["one two", "three", "four"]
    assert wrap("one two three four", 9, 2) == ["one two", "three fo…"]
    assert wrap("unbreakable", 4, 9) == ["unbr", "eaka", "ble"]
    assert wrap("  ", 4, 3) == []


@settings(max_examples=200, deadline=None)
@given(TEXT, st.integers(0, 40))
def test_nothing_is_ever_wider_than_its_columns(text, columns):
    assert width(fit(text, columns)) <= columns
    assert width(pad(text, columns)) == columns
    assert all(width(line) <= max(columns, 2) for line in wrap(text, columns, 3))
    assert len(wrap(text, columns, 3)) <= 3
