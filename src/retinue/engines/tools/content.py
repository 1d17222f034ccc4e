"""The text of a file, and what a reader must know about it."""

from __future__ import annotations

from codecs import BOM_UTF8

from msgspec import Struct

from retinue.engines.tools.folder import FileReader, RelativePath, SandboxedDirectory
from retinue.output.truncate import format_size

MAX_FILE_BYTES = 16 * 2**20
"""Of one file; what is larger is data, not text a model can use."""
_SNIFFED_BYTES = 8192
"""Where a NUL byte means binary, as git has it."""


class FileContent(Struct, frozen=True):
    text: str = ""
    """Its lines end with a line feed, the last one perhaps with nothing."""
    notes: tuple[str, ...] = ()
    """What is not as it seems, in words for the model."""
    is_binary: bool = False

    def lines(self) -> tuple[str, ...]:
        """Lines as editors count them: nothing is one after the last line feed."""
        lines = self.text.split("\n")
        return tuple(lines if lines[-1] else lines[:-1])


def read_content(folder: SandboxedDirectory | FileReader, path: RelativePath) -> FileContent:
    """The text of a file. Of a binary file there is none; of a huge one only the beginning.

    Raises:
        ToolError: it is no regular file, or cannot be read.
    """
    data, size = folder.read(path, MAX_FILE_BYTES)
    if b"\0" in data[:_SNIFFED_BYTES]:
        return FileContent(notes=(f"Binary file, {format_size(size)}, not shown",), is_binary=True)
    notes: list[str] = []
    if size > len(data):
        notes.append(f"The file has {format_size(size)}; only the first {format_size(len(data))} are looked at")
    data = data.removeprefix(BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        notes.append("Not UTF-8: bytes that cannot be decoded are shown as \N{REPLACEMENT CHARACTER}")
    if "\r" in text:
        text = text.replace("\r\n", "\n").removesuffix("\r")
    return FileContent(text, tuple(notes))
