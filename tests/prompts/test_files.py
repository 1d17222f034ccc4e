"""Files in a prompt: slices, placeholders and limits."""

import os
from pathlib import Path

import pytest
from tests.support.ordinary_user import as_ordinary_user, open_folder

from retinue.model.tasks import FileSlice
from retinue.prompts.compose import MAX_FILE_BYTES, read_file_blocks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ten.txt").write_text("".join(f"line {i}\n" for i in range(1, 11)))
    return tmp_path


def block(folder: Path, path: str = "ten.txt", **part) -> str:
    return read_file_blocks([FileSlice(path=path, **part)], folder)[0]


def lines(first: int, last: int) -> str:
    return "\n".join(f"line {i}" for i in range(first, last + 1))


@pytest.mark.parametrize(
    ("part", "first", "last"),
    [
        ({}, 1, 10),
        ({"start": 3, "end": 5}, 3, 5),
        ({"start": 8}, 8, 10),
        ({"end": 2}, 1, 2),
        ({"head": 3}, 1, 3),
        ({"tail": 2}, 9, 10),
        ({"head": 50}, 1, 10),
        ({"tail": 50}, 1, 10),
    ],
)
def test_a_part_of_a_file_is_read_by_its_lines(folder, part, first, last):
    assert block(folder, **part) == f"=== ten.txt ===\n{lines(first, last)}"


def test_header_has_the_path_as_written(folder):
    path = str(folder / "ten.txt")
    assert block(Path("/"), path, head=1) == f"=== {path} ===\nline 1"


def test_missing_file_is_a_placeholder(folder):
    assert block(folder, "nope.txt") == "[file not found: nope.txt]"


@pytest.mark.parametrize("kind", ["folder", "fifo", "binary", "device", "nul"])
def test_unreadable_file_is_a_placeholder_and_never_blocks(folder, kind):
    path = {"device": "/dev/zero", "nul": "a\0b"}.get(kind, kind)
    if kind == "folder":
        (folder / kind).mkdir()
    elif kind == "fifo":
        os.mkfifo(folder / kind)
    elif kind == "binary":
        (folder / kind).write_bytes(b"\xff\xfe\x00")
    assert block(folder, path) == f"[could not read file: {path}]"


LOCKED = """
import json, sys
from pathlib import Path
from retinue.prompts.compose import read_file_blocks
from retinue.model.tasks import FileSlice
from tests.support.ordinary_user import drop_rights
drop_rights()
folder = Path(sys.argv[1])
(folder / "locked").mkdir()
(folder / "locked" / "a").touch()
(folder / "secret").touch()
(folder / "secret").chmod(0)
(folder / "locked").chmod(0)
print(json.dumps(read_file_blocks([FileSlice(path="secret"), FileSlice(path="locked/a")], folder)))
(folder / "locked").chmod(0o700)
"""


@pytest.mark.process
def test_file_without_permission_is_a_placeholder():
    with open_folder() as folder:
        told = as_ordinary_user(LOCKED, str(folder))
    assert told == ["[could not read file: secret]", "[could not read file: locked/a]"]


def test_the_limit_is_one_megabyte(folder):
    (folder / "fits").write_bytes(b"x" * MAX_FILE_BYTES)
    (folder / "large").write_bytes(b"x" * (MAX_FILE_BYTES + 1024))
    assert block(folder, "fits").startswith("=== fits ===")
    assert block(folder, "large") == "[file too large: large (1025KB, limit 1024KB)]"


@pytest.mark.parametrize(("excess", "size"), [(1, 1025), (1023, 1025), (1024, 1025), (1025, 1026)])
def test_size_of_a_file_that_is_too_large_is_rounded_up(folder, excess, size):
    (folder / "huge.bin").write_bytes(b"x" * (MAX_FILE_BYTES + excess))
    assert block(folder, "huge.bin") == f"[file too large: huge.bin ({size}KB, limit 1024KB)]"


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"start": 5, "end": 3}, "end 3 is before start 5"),
        ({"start": 11}, "start 11 is past the end of the file (10 lines)"),
        ({"start": 11, "end": 20}, "start 11 is past the end of the file (10 lines)"),
        ({"end": 0}, "end 0 is before start 1"),
        ({"start": 50, "end": 40}, "end 40 is before start 50"),
    ],
)
def test_slice_without_lines_has_a_reason(folder, part, reason):
    assert block(folder, **part) == f"=== ten.txt ===\n[no lines: {reason}]"


def test_slice_past_the_end_of_a_one_line_file_has_a_reason(folder):
    (folder / "one").write_text("x\n")
    assert block(folder, "one", start=2) == ("=== one ===\n[no lines: start 2 is past the end of the file (1 line)]")


def test_empty_file_is_an_empty_block(folder):
    (folder / "empty").touch()
    assert block(folder, "empty") == block(folder, "empty", head=3) == "=== empty ===\n"


def test_roots_limit_the_files_that_are_read(folder):
    (folder / "in").mkdir()
    (folder / "in" / "ok").write_text("fine")
    (folder / "in" / "link").symlink_to(folder / "ten.txt")
    parts = [FileSlice(path=p) for p in ("in/ok", "ten.txt", "in/../ten.txt", "in/link")]
    assert read_file_blocks(parts, folder, roots=[folder / "in"]) == [
        "=== in/ok ===\nfine",
        "[access denied: ten.txt]",
        "[access denied: in/../ten.txt]",
        "[access denied: in/link]",
    ]


def test_circular_link_is_a_placeholder(folder):
    (folder / "loop").symlink_to("loop")
    assert read_file_blocks([FileSlice(path="loop")], folder, roots=[folder]) == ["[could not read file: loop]"]


@pytest.mark.parametrize("letter", ["x", "é", "😀"])
def test_number_and_total_are_bounded(folder, letter):
    (folder / "big").write_text(letter * (2**20 // len(letter.encode())))
    found = read_file_blocks([FileSlice(path="big")] * 9, folder)
    assert found[8] == "[file skipped: big (limit 8MB in all)]"
    many = read_file_blocks([FileSlice(path="ten.txt", head=1)] * 65, folder)
    assert many[64] == "[file skipped: ten.txt (limit 64 files)]"
