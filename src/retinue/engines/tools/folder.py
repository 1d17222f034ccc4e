"""A folder tools cannot look out of, whatever path they are given and whatever links lie in it."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path

from retinue.engines.toolbox import ToolError

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
# Opening a pipe or a terminal line must not wait for its other end.
_FILE = _READ | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = _READ | getattr(os, "O_DIRECTORY", 0)
_BY_HANDLE = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_MAX_ENTRIES = 100_000
"""Of one directory: more are not kept in memory."""

RelativePath = tuple[str, ...]
"""A place beneath a folder, without links: the names on the way to it. Empty: the folder itself."""


class SandboxedDirectory:
    """A working directory. Every path in or out of it is relative to it."""

    def __init__(self, path: str | Path) -> None:
        self._path = path

    @cached_property
    def root(self) -> Path:
        return Path(self._path).resolve()

    def resolve(self, path: str) -> RelativePath:
        """The place a path means, its links followed. It need not exist.

        Raises:
            ToolError: it is outside the folder.
        """
        try:
            # Like pi, forgives the @ with which people mention a file.
            real = (self.root / path.removeprefix("@")).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"Not a usable path: {escape_name(path)} ({error}).") from error
        if not real.is_relative_to(self.root):
            raise ToolError(
                f"Access denied: {escape_name(path)} is outside the working directory. Use a path inside it."
            )
        return real.relative_to(self.root).parts

    def is_dir(self, place: RelativePath) -> bool:
        """Whether a directory stands at a place.

        Raises:
            ToolError: nothing stands there.
        """
        with _translate_os_errors(place):
            return stat.S_ISDIR(self.root.joinpath(*place).lstat().st_mode)

    def read(self, place: RelativePath, max_bytes: int) -> tuple[bytes, int]:
        """The first bytes of a regular file, `most` at most, and how many it has.

        Raises:
            ToolError: it is no regular file, or cannot be read.
        """
        with _translate_os_errors(place):
            return _read_and_close(self.open(place, _FILE), place, max_bytes)

    def list_entries(self, place: RelativePath) -> list[os.DirEntry[str]]:
        """What a directory holds, up to a large number of entries, sorted by name.

        Raises:
            ToolError: it is none, or cannot be read.
        """
        with _translate_os_errors(place):
            if not _BY_HANDLE:
                with os.scandir(self.root.joinpath(*place)) as found:
                    return sorted(islice(found, _MAX_ENTRIES), key=_entry_name)
            descriptor = self.open(place, _DIRECTORY)
            try:
                with os.scandir(descriptor) as found:
                    return sorted(filter(_needs_stat, islice(found, _MAX_ENTRIES)), key=_entry_name)
            finally:
                os.close(descriptor)

    def open(self, place: RelativePath, flags: int) -> int:
        """Opens step by step from the root, so that a name swapped for a link meanwhile is not followed."""
        if not _BY_HANDLE:
            return os.open(self.root.joinpath(*place), flags)
        descriptor = os.open(self.root, _DIRECTORY)
        for number, name in enumerate(place, 1):
            try:
                below = os.open(name, flags if number == len(place) else _DIRECTORY, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = below
        return descriptor


class FileReader:
    """Reads one file after the other: the directory of the last stays open, as the next is often beside it."""

    def __init__(self, folder: SandboxedDirectory) -> None:
        self._folder = folder
        self._directory: tuple[RelativePath, int] | None = None

    def read(self, place: RelativePath, max_bytes: int) -> tuple[bytes, int]:
        """The same as a folder's `read`."""
        if not _BY_HANDLE or not place:
            return self._folder.read(place, max_bytes)
        with _translate_os_errors(place):
            descriptor = os.open(place[-1], _FILE, dir_fd=self._open_directory(place[:-1]))
            return _read_and_close(descriptor, place, max_bytes)

    def close(self) -> None:
        if self._directory:
            os.close(self._directory[1])
            self._directory = None

    def _open_directory(self, directory: RelativePath) -> int:
        if self._directory and self._directory[0] == directory:
            return self._directory[1]
        self.close()
        descriptor = self._folder.open(directory, _DIRECTORY)
        self._directory = (directory, descriptor)
        return descriptor


def format_path(place: RelativePath) -> str:
    """A place as a model reads it; `.` for the folder itself."""
    return escape_name("/".join(place)) or "."


def escape_name(name: str) -> str:
    r"""A file name that can neither break a line nor move a cursor: `\x0a` for a newline."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _entry_name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _needs_stat(entry: os.DirEntry[str]) -> bool:
    # An entry remembers its kind, and of one that came by a descriptor it cannot be asked later.
    with suppress(OSError):
        entry.is_dir(follow_symlinks=False)
    return True


def _read_and_close(descriptor: int, place: RelativePath, max_bytes: int) -> tuple[bytes, int]:
    """The first bytes of an opened file, which is closed, and how many it has."""
    try:
        state = os.fstat(descriptor)
        if stat.S_ISDIR(state.st_mode):
            raise ToolError(f"{format_path(place)} is a directory. Use ls to list it.")
        if not stat.S_ISREG(state.st_mode):
            raise ToolError(f"{format_path(place)} is not a regular file and is not read.")
        data = _read_up_to(descriptor, max_bytes, state.st_size)
        return data, max(state.st_size, len(data))
    finally:
        os.close(descriptor)


def _read_up_to(descriptor: int, max_bytes: int, size: int) -> bytes:
    # One byte more than it should have: the usual file comes in one go, and a buffer of its size costs least.
    data = os.read(descriptor, min(max_bytes, size + 1, 2**20))
    if len(data) == size and size:
        return data
    chunks, left = [data], max_bytes - len(data)
    while left > 0 and chunks[-1]:
        chunks.append(os.read(descriptor, min(left, 2**20)))
        left -= len(chunks[-1])
    return b"".join(chunks)


@contextmanager
def _translate_os_errors(place: RelativePath) -> Iterator[None]:
    """Puts what the system refuses into words."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"Path not found: {format_path(place)}. Use ls or find to see what exists.") from error
    except PermissionError as error:
        raise ToolError(f"Permission denied: {format_path(place)}.") from error
    except NotADirectoryError as error:
        raise ToolError(f"Not a directory: {format_path(place)}.") from error
    except OSError as error:
        reason = "it is a link, and not followed" if error.errno == errno.ELOOP else error.strerror
        raise ToolError(f"Cannot open {format_path(place)}: {reason}.") from error
