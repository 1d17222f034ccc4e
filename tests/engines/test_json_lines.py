"""The line splitter returns the same lines for any chunks."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.engines.json_lines import LineSplitter, LineTooLong


def split_lines(chunks: list[bytes], limit: int = 2**20) -> list[bytes | LineTooLong]:
    lines = LineSplitter(limit)
    found = []
    for chunk in chunks:
        found += lines.feed(chunk)
    return found + lines.flush()


TEXT = st.lists(st.sampled_from([b"\n", b"\r", b"a", b"\xe2\x80\xa8", b"\x0b", b"bcdefgh"]), max_size=40).map(
    b"".join
)


def cut(text: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@given(text=TEXT, places=st.lists(st.integers(0, 300), max_size=8), limit=st.integers(1, 12))
@settings(max_examples=300, deadline=None)
def test_line_splitter_gives_the_same_lines_for_any_chunks(text, places, limit):
    *whole, last = text.split(b"\n")
    expected = [
        LineTooLong(len(line)) if len(line) > limit else line.removesuffix(b"\r")
        for line in [*whole, *([last] if last else [])]
    ]
    assert split_lines(cut(text, places), limit) == expected


def test_only_lf_ends_a_line():
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\rg".encode()
    assert split_lines([text + b"\r\n"]) == [text]


def test_last_line_needs_no_lf():
    assert split_lines([b"one\ntwo"]) == [b"one", b"two"]
    assert split_lines([b"one\n"]) == [b"one"]


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 2**20])
def test_lines_up_to_the_limit_are_whole(size):
    line = b"x" * size
    assert split_lines([line[:1000], line[1000:] + b"\nnext\n"]) == [line, b"next"]


def test_stream_continues_after_a_line_over_the_limit():
    assert split_lines([b"x" * 11 + b"\nok\n"], limit=10) == [LineTooLong(11), b"ok"]
    assert split_lines([b"x"] * 11 + [b"\nok\n"], limit=10) == [LineTooLong(11), b"ok"]
    assert split_lines([b"x" * 10 + b"\n"], limit=10) == [b"x" * 10]


def test_endless_line_takes_bounded_memory():
    lines = LineSplitter(limit=2**20)
    chunk = b"x" * 2**18
    tracemalloc.start()
    for _ in range(256):
        assert lines.feed(chunk) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 2**20
    assert lines.feed(b"\n") == [LineTooLong(2**26)]


def test_single_byte_chunks_give_the_same_lines():
    text = b'{"type":"text"}\n' * 6_250
    assert split_lines([bytes([byte]) for byte in text]) == [b'{"type":"text"}'] * 6_250
    one = b"y" * 100_000
    assert split_lines([b"y"] * 100_000) == [one]
