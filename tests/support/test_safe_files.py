"""Bounded reads of regular files, and refusals of everything else."""

import os
import socket
from pathlib import Path

import pytest

from retinue.support.safe_files import FileTooLargeError, NotRegularFileError, read_regular_file, resolve_path


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 10, b"\x00\xff\r\n"])
def test_a_regular_file_within_the_limit_is_read_whole(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    assert read_regular_file(path, 10) == read_regular_file(str(path), len(content)) == content


def test_too_large_file_is_refused_with_its_size(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 11)
    with pytest.raises(FileTooLargeError) as raised:
        read_regular_file(path, 10)
    assert raised.value.size_bytes == 11


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no file here hides its size")
def test_a_file_that_hides_its_size_is_too_large_not_cut():
    path = Path("/proc/self/environ")
    assert path.stat().st_size == 0
    with pytest.raises(FileTooLargeError):
        read_regular_file(path, 1)


def test_a_pipe_without_a_writer_is_refused_at_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(NotRegularFileError, match="a pipe, not a file") as raised:
        read_regular_file(path, 10)
    assert raised.value.kind == "a pipe"


def test_folders_sockets_and_devices_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        kinds = []
        for path in (".", "socket", "/dev/null"):
            with pytest.raises(NotRegularFileError) as raised:
                read_regular_file(path, 10)
            kinds.append(raised.value.kind)
    assert kinds == ["a directory", "a socket", "a device"]


def test_links_are_followed_unless_forbidden(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to("file")
    assert read_regular_file(link, 10) == b"x"
    with pytest.raises(NotRegularFileError, match="a link"):
        read_regular_file(link, 10, follow_link=False)


def test_system_errors_are_raised_unchanged(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_regular_file(tmp_path / "missing", 10)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        read_regular_file(tmp_path / "loop", 10)
    with pytest.raises(ValueError, match="null"):
        read_regular_file("a\0b", 10)


def test_no_handle_is_left_open(tmp_path):
    before = len(list(Path("/dev/fd").iterdir()))
    (tmp_path / "file").write_bytes(b"x" * 11)
    for _ in range(20):
        with pytest.raises(FileTooLargeError):
            read_regular_file(tmp_path / "file", 10)
        assert read_regular_file(tmp_path / "file", 11)
    assert len(list(Path("/dev/fd").iterdir())) <= before + 1


def test_the_real_path_has_no_links_and_need_not_exist(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    assert resolve_path(tmp_path / "link" / "file") == (tmp_path / "folder" / "file").resolve()
