"""Surrogates, nested strings, first lines and JSON escapes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.output.untrusted_text import (
    MAX_DEPTH,
    TOO_DEEP,
    complete_escapes,
    first_line,
    first_prose_line,
    first_prose_sentence,
    map_strings,
    replace_surrogates,
)

ANY = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\ud83d\ude00a"))


@settings(max_examples=200, deadline=None)
@given(text=ANY)
def test_replaced_surrogates_make_a_text_encodable_and_change_nothing_else(text):
    whole = replace_surrogates(text)
    assert whole.encode().decode() == whole
    assert [after for after, before in zip(whole, text, strict=True) if after != before] == ["\ufffd"] * sum(
        "\ud800" <= character <= "\udfff" for character in text
    )


def test_valid_text_is_returned_unchanged():
    text = "é漢🔥"
    assert replace_surrogates(text) is text


def test_map_strings_changes_every_string_and_nothing_else():
    value = {"a": ["b", ("c", 1, None)], "d": {"e": True}, 2: 1.5}
    assert map_strings(value, str.upper) == {"A": ["B", ["C", 1, None]], "D": {"E": True}, 2: 1.5}


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {"x": inner}])
def test_map_strings_omits_too_deep_parts(wrap):
    value = "text"
    for _ in range(3000):
        value = wrap(value)
    found = map_strings(value, str.upper)
    for _ in range(MAX_DEPTH):
        (found,) = found.values() if isinstance(found, dict) else found
    assert found == TOO_DEEP


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("## Findings\n\nTwo callers go **around** the `facade`.", "Two callers go around the facade."),
        ("# Only a heading", "Only a heading"),
        ("", ""),
        ("# \n", ""),
        ("- [x] done **b**", "done b"),
        ("| a | b |\n|---|---|", "a | b |"),
        ("---\n> quoted [x](http://y.example)", "quoted x"),
        ("```\ncode\n```", "code"),
        ("1. first\n2. second", "first"),
        ("a_b_c __init__ 2 * 3 * 4", "a_b_c __init__ 2 * 3 * 4"),
        ("-v is an option", "-v is an option"),
        ("```python\nimport os\n```\nThat is *all* of _it_ and ***more***.", "That is all of it and more."),
        ("~~~\n```\n~~~\nafter", "after"),
        ("Findings\n====\n\nNone.", "None."),
        ("No heading.\n\n---\nrest", "No heading."),
    ],
)
def test_first_prose_line_skips_headings_and_marks(text, line):
    assert first_prose_line(text) == line


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("## Findings\n\n- The log is rotated every day. It is kept.", "The log is rotated every day."),
        ("Yes. The bus is in `bus.py`, line 3. See there.", "Yes. The bus is in bus.py, line 3."),
        (
            "It reads several files, e.g. the log and v1.2.3 of it",
            "It reads several files, e.g. the log and v1.2.3 of it",
        ),
        ("Was it (really a long question?) Yes.", "Was it (really a long question?)"),
        ("It is in **`views.py:12`** and *[a link](http://x.example)*.", "It is in views.py:12 and a link."),
        ("", ""),
    ],
)
def test_first_prose_sentence_is_of_the_first_line_of_prose(text, sentence):
    assert first_prose_sentence(text) == sentence


@pytest.mark.parametrize(
    ("text", "line"), [("", ""), (" \n\t\n", ""), ("\n\n  one \r\n two", "one"), ("one", "one"), ("a b\nc", "a b")]
)
def test_first_line_is_the_first_nonblank_line(text, line):
    assert first_line(text) == line


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        (r'"\ud83d\ude00 \uD83D\uDE00"', r'"\ud83d\ude00 \uD83D\uDE00"'),
        (r'"\ud83d"', r'"\ufffd"'),
        (r'"\ude00\ud83d"', r'"\ufffd\ufffd"'),
        (r'"\ud83d\ud83d\ude00"', r'"\ufffd\ud83d\ude00"'),
        (r'"\\ud83d"', r'"\\ud83d"'),
        (r'"\\\ud83d \n"', r'"\\\ufffd \n"'),
        ("\\ud", "\\ud"),
    ],
)
def test_complete_escapes_replaces_only_lone_surrogate_escapes(text, whole):
    assert complete_escapes(text) == whole
