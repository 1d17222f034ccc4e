"""Lines of a descriptor in chunks of any size."""

from __future__ import annotations

import os

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.servers.stdio import DescriptorWriter, LineReader

LIMIT = 20


def read_lines(chunks: list[bytes]) -> list[str]:
    """Write the chunks into a pipe and return the lines that the reader yields."""

    async def work() -> list[str]:
        out, into = os.pipe()
        found = []
        try:
            for chunk in chunks:
                os.write(into, chunk)
            os.close(into)
            found = [line async for line in LineReader(out, LIMIT)]
        finally:
            os.close(out)
        return found

    return anyio.run(work)


@given(st.lists(st.binary(min_size=1, max_size=30)))
@settings(max_examples=60, deadline=None)
def test_every_line_within_the_limit_is_read_once_and_in_order(chunks):
    *lines, _ = b"".join(chunks).split(b"\n")
    wanted = [line.decode("utf-8", "replace") + "\n" for line in lines if line.strip() and len(line) <= LIMIT]
    assert read_lines(chunks) == wanted


def test_lines_are_read_from_a_regular_file(tmp_path):
    (tmp_path / "lines").write_bytes(b"a\n\nb\n")

    async def work() -> list[str]:
        with (tmp_path / "lines").open("rb") as file:
            return [line async for line in LineReader(file.fileno())]

    assert anyio.run(work) == ["a\n", "b\n"]


async def test_closed_reading_end_is_reported_once():
    out, into = os.pipe()
    os.close(out)
    writer, gone = DescriptorWriter(into), []
    writer.reader_left = lambda: gone.append(1)
    try:
        with pytest.raises(anyio.ClosedResourceError):
            await writer.write("a\n")
    finally:
        os.close(into)
    assert gone == [1]


async def test_slow_reader_receives_all_of_a_long_text():
    out, into = os.pipe()
    os.set_blocking(into, False)
    text, found = "é" * 2**18 + "\n", b""
    async with anyio.create_task_group() as group:
        group.start_soon(DescriptorWriter(into).write, text)
        while len(found) < len(text.encode()):
            await anyio.wait_readable(out)
            found += os.read(out, 5000)
    os.close(out)
    os.close(into)
    assert found.decode() == text
