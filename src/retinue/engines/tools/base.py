"""Shared parts of the local tools: the sandboxed directory, file contents, call budgets and notices."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from msgspec import Struct

from retinue.engines.toolbox import ToolError
from retinue.model.sandbox import AGENT_CONFIGURATION, NO_SANDBOX, PROTECTED_GIT_NAMES, SandboxPolicy
from retinue.output.truncate import format_size, truncate_to_limits

CALL_TIMEOUT = 10.0
"""Seconds of one call: ten times what a search of a large repository takes."""
MAX_READERS = 2
"""Threads that read and search at once: Python runs one at a time, so more of them would only wait."""
MAX_FILES = 50_000
"""Files one call examines."""
MAX_FILE_BYTES = 16 * 2**20
"""Bytes of one file; a larger one is data, not text a model can use."""
_MAX_ENTRIES = 100_000
"""Entries of one directory that are kept in memory."""
_MAX_NAMED = 3
"""Unreadable paths that a notice names; the others are counted."""
_SNIFFED_BYTES = 8192
"""Bytes in which a NUL means binary, as in git."""
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
# Opening a pipe or a terminal line must not wait for its other end.
_FILE = _READ | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = _READ | getattr(os, "O_DIRECTORY", 0)
_HAS_DIR_FD = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

Result = TypeVar("Result")
RelativePath = tuple[str, ...]
"""Names on the way from the working directory to a file, free of links. Empty: the directory itself."""


# -- files -----------------------------------------------------------------------------------------


class DirectoryEntry(Struct, frozen=True, order=True):
    name: str
    kind: Literal["directory", "file", "link", "other"]


class FileContent(Struct, frozen=True):
    lines: tuple[str, ...] = ()
    """Lines as editors count them: a final line feed starts no further line."""
    notes: tuple[str, ...] = ()
    """Deviations from the file's bytes, described for the model."""
    is_binary: bool = False
    size: int = 0
    """Bytes of the whole file."""


FileVersion = tuple[int, int, int]
"""Inode, size and modification time."""


class SandboxedDirectory:
    """A working directory that tools cannot leave, whatever path they receive and whatever links it contains."""

    def __init__(self, path: str | Path, ripgrep: str | None = None, sandbox: SandboxPolicy = NO_SANDBOX) -> None:
        self._path = path
        self._sandbox = sandbox
        self.ripgrep = ripgrep
        """Path of the `rg` program that speeds up searches; None where there is none."""
        self.changing = threading.Lock()
        """Held while a file is read, checked and replaced: calls of one message run in parallel."""
        self._seen: dict[RelativePath, FileVersion] = {}
        """Versions of the files this run has read or written."""

    @cached_property
    def root(self) -> Path:
        """The directory without links.

        Raises:
            ToolError: it is another than when the sandbox of the run was planned.
        """
        root = Path(self._path).resolve()
        if self._sandbox.folder not in {"", str(root)}:
            raise ToolError("Access denied: the working directory was replaced by a link after the run was planned.")
        return root

    def resolve(self, path: str) -> RelativePath:
        """Resolve a path and its links to a place beneath the root; it need not exist.

        Raises:
            ToolError: the path leads outside.
        """
        try:
            # Like pi, accepts the @ with which people mention a file.
            real = (self.root / path.removeprefix("@")).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ToolError(f"Not a usable path: {escape_name(path)} ({error}).") from error
        if not real.is_relative_to(self.root):
            raise ToolError(
                f"Access denied: {escape_name(path)} is outside the working directory. Use a path inside it."
            )
        return real.relative_to(self.root).parts

    def is_dir(self, place: RelativePath) -> bool:
        """Return whether a path is a directory.

        Raises:
            ToolError: it does not exist.
        """
        with _translate_os_errors(place):
            return stat.S_ISDIR(self.root.joinpath(*place).lstat().st_mode)

    def read(self, place: RelativePath) -> FileContent:
        """Read a text file: none of a binary one, the first `MAX_FILE_BYTES` of a huge one.

        Raises:
            ToolError: it is no regular file, or cannot be read.
        """
        data, size = self.read_bytes(place, MAX_FILE_BYTES)
        if b"\0" in data[:_SNIFFED_BYTES]:
            return FileContent(notes=(f"Binary file, {format_size(size)}, not shown",), is_binary=True, size=size)
        notes: list[str] = []
        if size > len(data):
            notes.append(f"The file has {format_size(size)}; only the first {format_size(len(data))} are shown")
        data = data.removeprefix(BOM_UTF8)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            notes.append("Not UTF-8: bytes that cannot be decoded are shown as \N{REPLACEMENT CHARACTER}")
        lines = text.replace("\r\n", "\n").removesuffix("\r").split("\n")
        return FileContent(tuple(lines if lines[-1] else lines[:-1]), tuple(notes), size=size)

    def read_bytes(self, place: RelativePath, max_bytes: int, *, to_edit: bool = False) -> tuple[bytes, int]:
        """Return the first bytes of a regular file, and how many it has in all.

        With `to_edit` the file must be as the run's agent last saw it.

        Raises:
            ToolError: it is no regular file, or cannot be read.
        """
        with _translate_os_errors(place), self._open(place, _FILE) as descriptor:
            state = os.fstat(descriptor)
            if stat.S_ISDIR(state.st_mode):
                raise ToolError(f"{format_path(place)} is a directory. Use ls to list it.")
            if not stat.S_ISREG(state.st_mode):
                raise ToolError(f"{format_path(place)} is not a regular file and is not read.")
            if to_edit and self._seen.setdefault(place, _file_version(state)) != _file_version(state):
                raise _changed_error(place)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes)
            return data, max(state.st_size, len(data))

    def mark_seen(self, place: RelativePath) -> None:
        """Record that the run's agent has read the file as it is now."""
        with suppress(OSError):
            self._seen[place] = _file_version(self.root.joinpath(*place).lstat())

    def write_bytes(self, place: RelativePath, data: bytes, *, create: bool) -> None:
        """Replace a file as a whole, or create it with its directories; readers see the old or the new file.

        Mode and owner of an existing file are kept. A file that others changed since this run read it is not
        replaced.

        Raises:
            ToolError: it is no regular file, changed meanwhile, or cannot be written.
        """
        if not place:
            raise ToolError("The path is the working directory. Give the path of a file.")
        self._check_writable(place)
        with _translate_os_errors(place):
            if create:
                self._make_directories(place[:-1])
            with self._open(place[:-1], _DIRECTORY) as directory:
                self._replace(directory, place, data)

    def _replace(self, directory: int, place: RelativePath, data: bytes) -> None:
        name, temporary = place[-1], f".{place[-1][:100]}.{os.urandom(4).hex()}.tmp"
        folder = {"dir_fd": directory} if _HAS_DIR_FD else {}
        base = "" if _HAS_DIR_FD else f"{self.root.joinpath(*place[:-1])}{os.sep}"
        before = self._check_unchanged(place, base + name, folder)
        descriptor = os.open(base + temporary, _CREATE, 0o666 if before is None else 0o600, **folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    _copy_ownership(file.fileno(), before)
                os.fsync(file.fileno())
                after = os.fstat(file.fileno())
            os.replace(  # noqa: PTH105 - relative to a descriptor
                base + temporary,
                base + name,
                **({"src_dir_fd": directory, "dst_dir_fd": directory} if folder else {}),
            )
        except BaseException:
            with suppress(OSError):
                os.unlink(base + temporary, **folder)
            raise
        self._seen[place] = _file_version(after)

    def _check_unchanged(self, place: RelativePath, name: str, folder: dict[str, int]) -> os.stat_result | None:
        try:
            state = os.stat(name, follow_symlinks=False, **folder)  # noqa: PTH116 - relative to a descriptor
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(state.st_mode):
            raise ToolError(f"{format_path(place)} is not a regular file and is not written.")
        if place in self._seen and self._seen[place] != _file_version(state):
            raise _changed_error(place)
        return state

    def _make_directories(self, place: RelativePath) -> None:
        path = self.root
        for name in place:
            path = path / name
            with suppress(FileExistsError):
                path.mkdir()

    def list_entries(self, place: RelativePath) -> list[DirectoryEntry]:
        """Return the entries of a directory, up to a large number, sorted by name.

        Raises:
            ToolError: it is no directory, or cannot be read.
        """
        path = self.root.joinpath(*place)
        with (
            _translate_os_errors(place),
            self._open(place, _DIRECTORY) as directory,
            os.scandir(directory if _HAS_DIR_FD else path) as found,
        ):
            return sorted(DirectoryEntry(entry.name, _entry_kind(entry)) for entry in islice(found, _MAX_ENTRIES))

    @cached_property
    def _hidden(self) -> tuple[RelativePath, ...]:
        """The paths inside the directory that the sandbox takes out of it."""
        if not self._sandbox.is_on:
            return ()
        hidden = (Path(path).resolve() for path in self._sandbox.hidden)
        return tuple(path.relative_to(self.root).parts for path in hidden if path.is_relative_to(self.root))

    @property
    def hides_paths(self) -> bool:
        """Whether something inside the directory must not be read."""
        return bool(self._hidden)

    def _check_visible(self, place: RelativePath) -> None:
        # A directory that is hidden itself was chosen as the working directory all the same.
        if any(hidden and place[: len(hidden)] == hidden for hidden in self._hidden):
            raise ToolError(f"Access denied: {format_path(place)} is out of reach in the sandbox of this run.")

    def _check_writable(self, place: RelativePath) -> None:
        if not self._sandbox.is_on:
            return
        if not self._sandbox.writes_cwd:
            raise ToolError("Access denied: the sandbox of this run does not allow it to change files here.")
        if is_protected_git_path(place, whole=self._sandbox.is_strict) or self._is_configuration(place):
            raise ToolError(f"Access denied: {format_path(place)} is read-only in the sandbox of this run.")

    def _is_configuration(self, place: RelativePath) -> bool:
        """Return whether agents load code from a path, and the user did not name it in `sandbox_write`."""
        if not is_agent_configuration(place):
            return False
        granted = (Path(path).resolve() for path in self._sandbox.write)
        inside = (path.relative_to(self.root).parts for path in granted if path.is_relative_to(self.root))
        return not any(names and place[: len(names)] == names for names in inside)

    @contextmanager
    def _open(self, place: RelativePath, flags: int) -> Iterator[int]:
        """Open a path name by name from the root, so that a name swapped for a link meanwhile is not followed."""
        self._check_visible(place)
        if not _HAS_DIR_FD:
            # Windows: a directory cannot be opened, and its listing needs no descriptor.
            descriptor = -1 if flags == _DIRECTORY else os.open(self.root.joinpath(*place), flags)
        else:
            descriptor = os.open(self.root, _DIRECTORY)
            for number, name in enumerate(place, 1):
                try:
                    below = os.open(name, flags if number == len(place) else _DIRECTORY, dir_fd=descriptor)
                finally:
                    os.close(descriptor)
                descriptor = below
        try:
            yield descriptor
        finally:
            if descriptor >= 0:
                os.close(descriptor)


def is_protected_git_path(place: RelativePath, *, whole: bool) -> bool:
    """Return whether a path is one by which git executes programs, or with `whole` any of git's own."""
    names = [name.casefold() for name in place]
    if ".git" not in names:
        return False
    inside = names[names.index(".git") + 1 :]
    return whole or not inside or not PROTECTED_GIT_NAMES.isdisjoint(inside)


def is_agent_configuration(place: RelativePath) -> bool:
    """Return whether a path is one that agents or their programs load code from, at any level."""
    path = "/".join(("", *(name.casefold() for name in place), ""))
    return any(f"/{name}/" in path for name in AGENT_CONFIGURATION)


def _changed_error(place: RelativePath) -> ToolError:
    return ToolError(f"{format_path(place)} changed since you read it. Read it again before you change it.")


def _file_version(state: os.stat_result) -> FileVersion:
    return state.st_ino, state.st_size, state.st_mtime_ns


def _copy_ownership(descriptor: int, before: os.stat_result) -> None:
    """Give a new file the mode and, where permitted, the owner of the old one."""
    if hasattr(os, "fchown"):
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def format_path(place: RelativePath) -> str:
    """Return a path as a model reads it; `.` for the working directory."""
    return escape_name("/".join(place)) or "."


def escape_name(name: str) -> str:
    r"""Escape a file name so that it can neither break a line nor move a cursor: `\x0a` for a newline."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _entry_kind(entry: os.DirEntry[str]) -> Literal["directory", "file", "link", "other"]:
    with suppress(OSError):
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "directory"
        if entry.is_file(follow_symlinks=False):
            return "file"
    return "other"


@contextmanager
def _translate_os_errors(place: RelativePath) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"Path not found: {format_path(place)}. Use ls or find to see what exists.") from error
    except PermissionError as error:
        raise ToolError(f"Permission denied: {format_path(place)}.") from error
    except NotADirectoryError as error:
        raise ToolError(f"Not a directory: {format_path(place)}.") from error
    except OSError as error:
        reason = "it is a link, and links are not followed" if error.errno == errno.ELOOP else error.strerror
        raise ToolError(f"Cannot open {format_path(place)}: {reason}.") from error


# -- one call --------------------------------------------------------------------------------------


class CallBudget:
    """The time and the number of files one call has left."""

    def __init__(self, seconds: float = CALL_TIMEOUT, files: int = MAX_FILES) -> None:
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._files = self._files_left = files
        self._slow_pattern = False

    @property
    def remaining_seconds(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    @property
    def exhausted(self) -> bool:
        return self._slow_pattern or self._files_left < 0 or self.remaining_seconds == 0.0

    def take_file(self) -> bool:
        """Count one more file and return whether it may be examined."""
        self._files_left -= 1
        return not self.exhausted

    def mark_slow_pattern(self) -> None:
        """Record that the pattern alone used up the time."""
        self._slow_pattern = True

    def cancel(self) -> None:
        self._deadline = 0.0

    @property
    def notices(self) -> list[str]:
        """The reason why a result is incomplete; empty if it is complete."""
        if self._slow_pattern:
            return [
                f"Stopped: the pattern takes too long (over {self._seconds:g}s). Results are incomplete; simplify it"
            ]
        if self._files_left < 0:
            return [f"Stopped after {self._files} entries. Results are incomplete; narrow the path"]
        if self.remaining_seconds == 0.0:
            return [f"Stopped after {self._seconds:g}s. Results are incomplete; narrow the path or the pattern"]
        return []


async def run_in_thread(work: Callable[[CallBudget], Result], readers: CapacityLimiter) -> Result:
    """Run blocking work within a budget, whose time starts once one of the `readers` is free.

    A cancelled caller does not wait for the work, which stops soon after.
    """
    async with readers:
        budget = CallBudget()
        try:
            return await anyio.to_thread.run_sync(work, budget, abandon_on_cancel=True)
        finally:
            budget.cancel()


# -- results ---------------------------------------------------------------------------------------


def format_listing(lines: Sequence[str], notices: Iterable[str], *, empty: str) -> str:
    """Return the lines that fit, or the text for none, with notices beneath."""
    part = truncate_to_limits("\n".join(lines) if lines else empty)
    cut = [f"Only {part.shown_lines} of {part.total_lines} lines are shown"] if part.truncated_by else []
    return append_notices(part.text, [*notices, *cut])


def append_notices(text: str, notices: Iterable[str]) -> str:
    """Append notices in one bracket beneath a result."""
    notes = ". ".join(notices)
    return "\n\n".join(filter(None, (text, notes and f"[{notes}.]")))


def unreadable_notices(places: Sequence[str]) -> list[str]:
    """Return the notice about paths that could not be read; empty if there are none."""
    if not places:
        return []
    more = f" and {len(places) - _MAX_NAMED} more" if len(places) > _MAX_NAMED else ""
    return [f"Could not read {', '.join(places[:_MAX_NAMED])}{more}"]
