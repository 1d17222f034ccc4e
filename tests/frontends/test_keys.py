"""Keys behind what a terminal sends."""

import pytest

from retinue.frontends.keys import Key, pressed


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", [Key.UP, Key.DOWN]),
        (b"\x1bOA", [Key.UP]),
        (b"\x1b[5~\x1b[6~", [Key.PAGE_UP, Key.PAGE_DOWN]),
        (b"\x1b[H\x1b[4~", [Key.HOME, Key.END]),
        (b"\t\x1b[Z\r\n", [Key.TAB, Key.BACK_TAB, Key.ENTER, Key.ENTER]),
        (b"\x1b", [Key.ESCAPE]),
        (b"\x0f", [Key.EXPAND]),
        (b"\x1b[1;5A\x1b[99~\x01", []),
        ("é日".encode(), ["é", "日"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_each_sequence_is_one_key_and_unknown_ones_are_none(typed, keys):
    assert list(pressed(typed)) == keys
