"""Parsing of terminal input into keys."""

import pytest

from retinue.tui.keys import KeyName, PastedText, parse_keys


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", [KeyName.UP, KeyName.DOWN]),
        (b"\x1bOA", [KeyName.UP]),
        (b"\x1b[5~\x1b[6~", [KeyName.PAGE_UP, KeyName.PAGE_DOWN]),
        (b"\x1b[H\x1b[4~", [KeyName.HOME, KeyName.END]),
        (b"\t\x1b[Z\r\n", [KeyName.TAB, KeyName.BACK_TAB, KeyName.ENTER, KeyName.ENTER]),
        (b"\x1b", [KeyName.ESCAPE]),
        (b"\x0f", [KeyName.EXPAND]),
        (b"\x1b[1;5A\x1b[99~\x01", []),
        ("é日".encode(), ["é", "日"]),
        (b"\xff", ["\ufffd"]),
        (b"\x7f\x08\x15\x17", [KeyName.BACKSPACE, KeyName.BACKSPACE, KeyName.CLEAR_LINE, KeyName.DELETE_WORD]),
        (b"a\x1b[200~q\ny\x1b[201~b", ["a", "q\ny", "b"]),
    ],
)
def test_known_sequences_become_keys_and_unknown_ones_are_ignored(typed, keys):
    assert list(parse_keys(typed)) == keys


def test_pasted_text_is_distinguished_from_keys():
    assert [type(key) for key in parse_keys(b"q\x1b[200~q\x1b[201~")] == [str, PastedText]
