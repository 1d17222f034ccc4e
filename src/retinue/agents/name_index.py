"""Remember by which names the agents of files are called, so that a run reads the files of its own agents only.

`agent-names.json` in the state folder is derived from the files: deleted, it is written again. An entry counts only
for the state of the file that it was made from. Small trees have no index, because reading them costs as little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, field

from retinue import __version__
from retinue.agents.parse import AgentFileError, read_bytes
from retinue.agents.search_paths import AgentFolder, ChangeStamp
from retinue.support.safe_files import write_private_file

MIN_FILES = 200
"""Files from which on an index is written."""
MAX_INDEX_BYTES = 64 * 2**20
MAX_UNKNOWN_FILES = 50
"""Files without an entry that a run reads beside those of its agents; with more, it reads all and writes an index."""

FileNames = tuple[ChangeStamp, tuple[str, ...]]
"""The state of a file, and the names that call its agents."""


class _IndexFile(Struct):
    version: str = ""
    """The release that wrote it: another one may name agents in another way."""
    folders: Mapping[str, Mapping[str, FileNames]] = field(default_factory=dict)


class NameIndex:
    """The names that the files of large trees define, in a file shared by all processes of a user."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Mapping[str, Mapping[str, FileNames]]:
        """Return the files of each folder; nothing if there is no index, or if it cannot be used."""
        try:
            found = msgspec.json.decode(read_bytes(self._path, limit=MAX_INDEX_BYTES), type=_IndexFile)
        except (AgentFileError, msgspec.DecodeError):
            return {}
        return found.folders if found.version == __version__ else {}

    def write(self, folders: Mapping[str, Mapping[str, FileNames]]) -> None:
        """Replace the index if these folders have many files and it states other names; a failure costs nothing."""
        if sum(map(len, folders.values())) < MIN_FILES:
            return
        before = self.read()
        if all(before.get(name) == files for name, files in folders.items()):
            return
        content = _IndexFile(__version__, {**before, **folders})
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private_file(self._path, msgspec.json.encode(content))


def index_key(folder: AgentFolder) -> str:
    """Return the key of a folder: its place, and what else decides the names of its agents."""
    plugin = folder.origin.plugin
    return f"{folder.origin.dialect.value}:{plugin.name if plugin else ''}:{folder.path}"


def select_files(
    files: Iterable[tuple[str, ChangeStamp]], known: Mapping[str, FileNames], names: Collection[str]
) -> tuple[list[str], int]:
    """Return the files that may define one of the names, and how many of them the index does not know."""
    selected, unknown = [], 0
    for path, stamp in files:
        entry = known.get(path)
        if entry is None or entry[0] != stamp:
            unknown += 1
        elif not any(name in names for name in entry[1]):
            continue
        selected.append(path)
    return selected, unknown
