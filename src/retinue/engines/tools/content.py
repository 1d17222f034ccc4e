"""The text of a file, and what a reader must know about it."""

from __future__ import annotations

from msgspec import Struct

from retinue.engines.bounds import size_text
from retinue.engines.tools.folder import Folder, Parts

MAX_FILE_BYTES = 16 * 2**20
"""Of one file; what is larger is data, not text a model can use."""
_SNIFFED_BYTES = 8192
"""Where a NUL byte means binary, as git has it."""


class Content(Struct, frozen=True):
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is not as it seems, in words for the model."""
    is_binary: bool = False


def content(folder: Folder, place: Parts) -> Content:
    """The lines of a file. Of a binary file there are none; of a huge one only the first.

    Raises:
        ToolError: it is no regular file, or cannot be read.
    """
    data, size = folder.read(place, MAX_FILE_BYTES)
    if b"\0" in data[:_SNIFFED_BYTES]:
        return Content(notes=(f"Binary file, {size_text(size)}, not shown",), is_binary=True)
    notes: list[str] = []
    if size > len(data):
        notes.append(f"The file has {size_text(size)}; only the first {size_text(len(data))} are looked at")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", "replace")
        notes.append("Not UTF-8: bytes that cannot be decoded are shown as \N{REPLACEMENT CHARACTER}")
    return Content(lines_of(text), tuple(notes))


def lines_of(text: str) -> tuple[str, ...]:
    r"""Lines as editors count them: ended by `\n` or `\r\n`, nothing after the last."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return tuple(line.removesuffix("\r") for line in lines) if "\r" in text else tuple(lines)
