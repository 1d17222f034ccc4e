"""Record the storage calls of real code, and rebuild on disk what a power cut could leave of them.

    with DiskRecorder(folder) as disk:      # every call below the folder, made with the functions of `os`
        ...                                 # real sessions; `disk.acknowledge(value)` after each durable report
    for cut in plan_cuts(disk.history, count=1000, seed=7):
        rebuild(disk.history, cut).write_to(other_folder)

What POSIX and journaling file systems promise is kept, nothing more:

- What was written before an `fsync` or `fdatasync` of the same file started is there once the sync has returned.
- Entries of a folder are there once an `fsync` of that folder has returned; the sync of a file does not sync its entry.
- Everything else may be lost in any combination: each 512-byte sector of a file and each entry of a folder on its own,
  and a file may have grown over sectors that were never written, which then read as zeros.
- A rename is atomic. Two operations on the same name of a folder take effect in their order.
"""

from __future__ import annotations

import io
import os
import random
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from msgspec import Struct

SECTOR_BYTES = 512
ROOT_NODE = 0

CutKind = Literal["dropped", "kept", "prefix", "torn", "sectors"]
CUT_KINDS: tuple[CutKind, ...] = ("dropped", "kept", "prefix", "torn", "sectors")
"""What happens to the operations that no sync covers: all lost, none lost, the later ones lost, the last one cut in
two, any subset lost."""


# -- what happened ---------------------------------------------------------------------------------


class Link(Struct, frozen=True):
    """An entry appeared in a folder."""

    folder: int
    name: str
    node: int


class Unlink(Struct, frozen=True):
    """An entry disappeared."""

    folder: int
    name: str


class Rename(Struct, frozen=True):
    """An entry moved, in place of another if there was one."""

    folder: int
    name: str
    to_folder: int
    to_name: str
    node: int


class Write(Struct, frozen=True):
    node: int
    offset: int
    data: bytes


class Truncate(Struct, frozen=True):
    node: int
    size: int


class Sync(Struct, frozen=True):
    """A sync of a file or folder returned; it covers the operations before `started`."""

    node: int
    started: int


class Acknowledgement(Struct, frozen=True):
    """The recorded code reported something as durable."""

    value: Any


Operation = Link | Unlink | Rename | Write | Truncate | Sync | Acknowledgement
EntryOperation = Link | Unlink | Rename


class History(Struct, frozen=True):
    """Everything that happened below a folder, in order."""

    operations: Sequence[Operation]
    folders: frozenset[int]
    """Nodes that are folders."""


# -- recording -------------------------------------------------------------------------------------


class DiskRecorder:
    """Replaces the storage functions of `os` for the time of a block; other folders are not touched."""

    def __init__(self, folder: Path, *, ignored: str = "sqlite") -> None:
        """Record below an empty folder, but for names with the ignored word: files of libraries not written by `os`."""
        self._root = str(folder)
        self._ignored = ignored
        self._operations: list[Operation] = []
        self._entries: dict[int, dict[str, int]] = {ROOT_NODE: {}}
        self._contents: dict[int, bytearray] = {}
        self._descriptors: dict[int, int] = {}
        """The node behind each descriptor."""
        self._lock = threading.RLock()
        self._originals: dict[str, Any] = {}

    @property
    def history(self) -> History:
        return History(tuple(self._operations), frozenset(self._entries))

    def acknowledge(self, value: Any) -> None:
        with self._lock:
            self._operations.append(Acknowledgement(value))

    def __enter__(self) -> Self:
        for name in ("open", "write", "ftruncate", "close", "mkdir", "rmdir", "unlink", "rename", "fdopen"):
            self._replace(name, getattr(self, f"_call_{name}"))
        self._replace("replace", self._call_rename)
        for name in ("fsync", "fdatasync"):
            self._replace(name, self._call_sync)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, original in self._originals.items():
            setattr(os, name, original)

    def assert_complete(self) -> None:
        """Assert that the recorded operations lead to what is on the disk: none was missed."""
        found = {
            str(path.relative_to(self._root)): path.read_bytes()
            for path in Path(self._root).rglob("*")
            if path.is_file() and self._ignored not in path.name
        }
        assert found == rebuild(self.history, Cut(len(self._operations), "kept", 0)).files

    def _replace(self, name: str, record: Callable[..., Any]) -> None:
        original = self._originals[name] = getattr(os, name)

        @wraps(original)
        def call(*args: Any, **options: Any) -> Any:
            with self._lock:
                return record(original, *args, **options)

        @wraps(original)
        def call_unlocked(*args: Any, **options: Any) -> Any:
            return record(original, *args, **options)

        # Operations during a sync are not covered by it: a sync must not hold them back.
        setattr(os, name, call_unlocked if record == self._call_sync else call)

    def _locate(self, path: Any) -> tuple[int, str] | None:
        """Return the folder and the name behind a path; None if it is elsewhere or ignored."""
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not isinstance(text, str) or not text.startswith(f"{self._root}/") or self._ignored in text:
            return None
        *folders, name = text.removeprefix(f"{self._root}/").split("/")
        node = ROOT_NODE
        for folder in folders:
            if folder not in self._entries.get(node, {}):
                return None
            node = self._entries[node][folder]
        return node, name

    def _find_node(self, path: Any) -> int | None:
        if isinstance(path, str | os.PathLike) and os.fspath(path) == self._root:
            return ROOT_NODE
        place = self._locate(path)
        return self._entries[place[0]].get(place[1]) if place else None

    def _add_node(self, place: tuple[int, str], *, is_folder: bool) -> int:
        folder, name = place
        node = len(self._entries) + len(self._contents)
        if is_folder:
            self._entries[node] = {}
        else:
            self._contents[node] = bytearray()
        self._entries[folder][name] = node
        self._operations.append(Link(folder, name, node))
        return node

    def _call_open(self, original: Any, path: Any, flags: int, *args: Any, **options: Any) -> int:
        descriptor: int = original(path, flags, *args, **options)
        node = self._find_node(path)
        if node is None and flags & os.O_CREAT and (place := self._locate(path)):
            node = self._add_node(place, is_folder=False)
        if node is not None:
            self._descriptors[descriptor] = node
            if flags & os.O_TRUNC and self._contents[node]:
                self._cut_to(node, 0)
        return descriptor

    def _call_write(self, original: Any, descriptor: int, data: Any) -> int:
        node = self._descriptors.get(descriptor)
        before = os.lseek(descriptor, 0, os.SEEK_CUR) if node is not None else 0
        written: int = original(descriptor, data)
        if node is not None:
            after = os.lseek(descriptor, 0, os.SEEK_CUR)  # with O_APPEND the write began at the end of the file
            offset = max(before, after - written)
            content = self._contents[node]
            content[offset : offset + written] = bytes(data[:written])
            self._operations.append(Write(node, offset, bytes(data[:written])))
        return written

    def _call_ftruncate(self, original: Any, descriptor: int, size: int) -> None:
        original(descriptor, size)
        if (node := self._descriptors.get(descriptor)) is not None and len(self._contents[node]) != size:
            self._cut_to(node, size)

    def _cut_to(self, node: int, size: int) -> None:
        del self._contents[node][size:]
        self._operations.append(Truncate(node, size))

    def _call_sync(self, original: Any, descriptor: int) -> None:
        with self._lock:
            started, node = len(self._operations), self._descriptors.get(descriptor)
        original(descriptor)
        if node is not None:
            with self._lock:
                self._operations.append(Sync(node, started))

    def _call_close(self, original: Any, descriptor: int) -> None:
        self._descriptors.pop(descriptor, None)
        original(descriptor)

    def _call_mkdir(self, original: Any, path: Any, *args: Any, **options: Any) -> None:
        original(path, *args, **options)
        if place := self._locate(path):
            self._add_node(place, is_folder=True)

    def _call_rmdir(self, original: Any, path: Any, **options: Any) -> None:
        self._call_unlink(original, path, **options)

    def _call_unlink(self, original: Any, path: Any, *, dir_fd: int | None = None) -> None:
        original(path, dir_fd=dir_fd)
        folder = self._descriptors.get(dir_fd) if dir_fd is not None else None  # as `rmtree` does
        place = self._locate(path) if folder is None else (folder, os.fspath(path))
        if place:
            del self._entries[place[0]][place[1]]
            self._operations.append(Unlink(*place))

    def _call_rename(self, original: Any, source: Any, target: Any, **options: Any) -> None:
        original(source, target, **options)
        before, after = self._locate(source), self._locate(target)
        if before and after:
            node = self._entries[before[0]].pop(before[1])
            self._entries[after[0]][after[1]] = node
            self._operations.append(Rename(*before, *after, node))

    def _call_fdopen(self, original: Any, descriptor: int, mode: str = "r", *args: Any, **options: Any) -> Any:
        file = original(descriptor, mode, *args, **options)
        if descriptor not in self._descriptors:
            return file
        if mode == "wb":  # its buffer would be written by C code
            return io.BufferedWriter(_RecordedFile(descriptor, file))
        return file


class _RecordedFile(io.RawIOBase):
    """A file whose writes go through `os.write`."""

    def __init__(self, descriptor: int, file: Any) -> None:
        self._descriptor = descriptor
        self._file = file

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._descriptor, offset, whence)

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        return os.write(self._descriptor, bytes(data))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._file.close()


# -- what a power cut leaves -----------------------------------------------------------------------


class Cut(Struct, frozen=True):
    """A moment at which the power failed, and the fate of what was not synced by then."""

    at: int
    """Operations that had happened."""
    kind: CutKind
    seed: int


class DiskState(Struct, frozen=True):
    """The folders and files below the root, by relative path."""

    folders: Sequence[str]
    files: dict[str, bytes]
    acknowledged: Sequence[Any]
    """What had been reported as durable."""

    def write_to(self, root: Path) -> None:
        for folder in self.folders:
            (root / folder).mkdir(parents=True)
        for name, data in self.files.items():
            (root / name).write_bytes(data)


def plan_cuts(history: History, count: int, seed: int) -> list[Cut]:
    """Return so many cuts, spread evenly over all operations, in any of the kinds."""
    choose = random.Random(seed)
    total = len(history.operations)
    moments = [1 + (number * total + seed) // count % total for number in range(count)]
    return [Cut(at, choose.choice(CUT_KINDS), choose.getrandbits(32)) for at in moments]


def rebuild(history: History, cut: Cut) -> DiskState:
    """Return what is on the disk after a power cut."""
    happened = history.operations[: cut.at]
    choose = random.Random(cut.seed)
    durable: dict[int, int] = {}
    """The number of the operation before which everything about a node is durable."""
    changes: dict[int, list[tuple[int, Write | Truncate]]] = {}
    for number, each in enumerate(happened):
        if isinstance(each, Sync):
            durable[each.node] = max(each.started, durable.get(each.node, 0))
        elif isinstance(each, Write | Truncate):
            changes.setdefault(each.node, []).append((number, each))
    entries = _rebuild_entries(happened, durable, cut.kind, choose)
    folders: list[str] = []
    files: dict[str, bytes] = {}
    reached = [(ROOT_NODE, "")]
    while reached:
        node, path = reached.pop()
        for name, child in entries.get(node, {}).items():
            if child in history.folders:
                folders.append(f"{path}{name}")
                reached.append((child, f"{path}{name}/"))
            else:
                files[f"{path}{name}"] = _rebuild_content(
                    changes.get(child, []), durable.get(child, 0), cut.kind, choose
                )
    acknowledged = [each.value for each in happened if isinstance(each, Acknowledgement)]
    return DiskState(sorted(folders), files, acknowledged)


def _choose_survivors(unsynced: list[int], kind: CutKind, choose: random.Random) -> set[int]:
    if kind == "dropped":
        return set()
    if kind == "kept":
        return set(unsynced)
    if kind == "sectors":
        return {number for number in unsynced if choose.random() < 0.5}
    return set(unsynced[: choose.randint(0, len(unsynced))])


def _rebuild_entries(
    happened: Sequence[Operation], durable: dict[int, int], kind: CutKind, choose: random.Random
) -> dict[int, dict[str, int]]:
    changes = [(number, each) for number, each in enumerate(happened) if isinstance(each, EntryOperation)]
    # A rename is one change in two folders: once either folder is synced after it, it has happened.
    synced = {n for n, each in changes if any(n < durable.get(folder, 0) for folder, _ in _slots(each))}
    survivors = synced | _choose_survivors([n for n, _ in changes if n not in synced], kind, choose)
    # The state of a name is that of its last surviving operation, which includes those before it.
    for number, each in reversed(changes):
        if number in survivors:
            slots = set(_slots(each))
            survivors |= {n for n, earlier in changes if n < number and slots & set(_slots(earlier))}
    entries: dict[int, dict[str, int]] = {}
    for number, each in changes:
        if number not in survivors:
            continue
        match each:
            case Link(folder, name, node):
                entries.setdefault(folder, {})[name] = node
            case Unlink(folder, name):
                entries.get(folder, {}).pop(name, None)
            case Rename(folder, name, to_folder, to_name, node):
                entries.get(folder, {}).pop(name, None)
                entries.setdefault(to_folder, {})[to_name] = node
    return entries


def _slots(operation: EntryOperation) -> list[tuple[int, str]]:
    if isinstance(operation, Rename):
        return [(operation.folder, operation.name), (operation.to_folder, operation.to_name)]
    return [(operation.folder, operation.name)]


def _rebuild_content(
    changes: list[tuple[int, Write | Truncate]], durable: int, kind: CutKind, choose: random.Random
) -> bytes:
    """Return the content of a file: what was synced, and what is left of the rest."""
    content = bytearray()
    for number, change in changes:
        if number < durable:
            _apply(content, change)
    unsynced = [change for number, change in changes if number >= durable]
    if kind == "sectors":
        return _mix_sectors(content, unsynced, choose)
    survivors = _choose_survivors(list(range(len(unsynced))), kind, choose)
    for number in sorted(survivors):
        _apply(content, unsynced[number])
    if kind == "torn" and len(survivors) < len(unsynced):
        match unsynced[len(survivors)]:
            case Write(node, offset, data):
                _apply(content, Write(node, offset, data[: choose.randint(0, len(data))]))
    return bytes(content)


def _mix_sectors(before: bytearray, changes: list[Write | Truncate], choose: random.Random) -> bytes:
    """Return the content with any subset of its changed sectors, in a size the file had at some moment."""
    after = bytearray(before)
    sizes = [len(before)]
    for change in changes:
        _apply(after, change)
        sizes.append(len(after))
    size = choose.choice(sizes)
    mixed = bytearray(size)
    for start in range(0, size, SECTOR_BYTES):
        end = min(start + SECTOR_BYTES, size)
        source = choose.choice((before, after))
        piece = source[start:end]
        mixed[start : start + len(piece)] = piece
    return bytes(mixed)


def _apply(content: bytearray, change: Write | Truncate) -> None:
    match change:
        case Write(_, offset, data):
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data
        case Truncate(_, size):
            del content[size:]
