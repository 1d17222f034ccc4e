"""Records are read from both ends, in batches, while they grow and rotate."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.sessions.paths import RecordPosition
from retinue.sessions.segments import SegmentCursor, SegmentedFile, read_backwards

blocks = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=30)


def all_lines(cursor: SegmentCursor) -> list[bytes]:
    found: list[bytes] = []
    while lines := cursor.read():
        found += lines
    return found


@settings(max_examples=100, deadline=None)
@given(blocks, st.integers(1, 40))
def test_cursor_returns_the_same_lines_for_any_batch_size(tmp_path_factory, lines, batch):
    folder = tmp_path_factory.mktemp("parts")
    (folder / "x.jsonl").write_bytes(b"".join(line + b"\n" for line in lines) + b"rest")
    cursor = SegmentCursor(SegmentedFile(folder, "x"), RecordPosition(1), batch)
    assert all_lines(cursor) == lines
    assert cursor.read_rest() == b"rest"


@settings(max_examples=100, deadline=None)
@given(blocks, st.binary(max_size=10), st.integers(1, 40))
def test_read_backwards_returns_all_lines_with_their_offsets(tmp_path_factory, lines, rest, block):
    rest = rest.replace(b"\n", b"")
    path = tmp_path_factory.mktemp("parts") / "x"
    content = b"".join(line + b"\n" for line in lines) + rest
    path.write_bytes(content)
    with path.open("rb", buffering=0) as file:
        found = list(read_backwards(file, block))
    assert [line for _, line in found] == [rest, *reversed(lines)]
    assert all(content[offset : offset + len(line)] == line for offset, line in found)


def test_segments_are_read_in_numeric_order(tmp_path: Path):
    for number in (2, 10, 9):
        (tmp_path / f"x.{number}.jsonl").write_bytes(b"%d\n" % number)
    (tmp_path / "x.jsonl").write_bytes(b"newest\n")
    (tmp_path / "x.old.jsonl").write_bytes(b"not ours\n")
    parts = SegmentedFile(tmp_path, "x")
    assert parts.list_closed() == [2, 9, 10]
    assert all_lines(SegmentCursor(parts, RecordPosition(2))) == [b"2", b"9", b"10", b"newest"]


def test_cursor_continues_after_growth_and_rotation(tmp_path: Path):
    newest = tmp_path / "x.jsonl"
    newest.write_bytes(b"one\ntw")
    parts = SegmentedFile(tmp_path, "x")
    cursor = SegmentCursor(parts, RecordPosition(1))
    assert cursor.read() == [b"one"]
    assert cursor.read() == []
    with newest.open("ab") as file:
        file.write(b"o\nthree\n")
    newest.rename(parts.segment_path(1))
    newest.write_bytes(b"four\n")
    assert all_lines(cursor) == [b"two", b"three", b"four"]


def test_torn_end_of_a_closed_segment_is_not_joined_with_the_next(tmp_path: Path):
    (tmp_path / "x.1.jsonl").write_bytes(b"one\ntorn")
    (tmp_path / "x.jsonl").write_bytes(b"two\n")
    assert all_lines(SegmentCursor(SegmentedFile(tmp_path, "x"), RecordPosition(1))) == [b"one", b"torn", b"two"]


def test_line_over_the_limit_is_skipped_and_counted(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"one\n" + b"x" * 5000 + b"\ntwo\n")
    cursor = SegmentCursor(SegmentedFile(tmp_path, "x"), RecordPosition(1), batch_bytes=64, line_bytes=1000)
    assert [line for line in all_lines(cursor) if line] == [b"one", b"two"]
    assert cursor.skipped == 1
    with path.open("rb", buffering=0) as file:
        assert [len(line) for _, line in read_backwards(file, 64, 1000)] == [0, 3, len(b"(too long)"), 3]


def test_cursor_of_a_missing_record_reads_nothing(tmp_path: Path):
    assert SegmentCursor(SegmentedFile(tmp_path / "none", "x"), RecordPosition(1)).read() == []
    assert SegmentedFile(tmp_path / "none", "x").list_closed() == []
