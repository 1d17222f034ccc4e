"""The user's own settings file, changed as text, so that comments and order stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from retinue.frontends.hosts.changes import Change, opened
from retinue.frontends.hosts.toml_text import checked, parsed


def setting(file: Path, values: Mapping[str, str]) -> Change:
    """The change after which these settings have these values on every surface; none if they have.

    Raises:
        Unfit: the file cannot be read or changed.
    """
    file, before = opened(file)
    after = with_values(before or "", values)
    return Change(file=file, before=before, after=after or before, keeps=before is not None)


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The text with these keys set at its top level.

    Raises:
        Unfit: it is no TOML, or none that could be changed safely.
    """
    wanted = {**parsed(text), **values}
    end = "\r\n" if "\r\n" in text else "\n"
    top, tables = _parted(text.splitlines(keepends=True))
    new = []
    for key, value in values.items():
        written = json.dumps(value, ensure_ascii=False)
        if not _replaced(top, key, written):
            new.append(f"{key} = {written}{end}")
    if new:
        top = [*_closed(top, end), *new, *([end] if tables else [])]
    return checked("".join((*top, *tables)), wanted)


def _parted(lines: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first table, and the tables."""
    first = next((place for place, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    return lines[:first], lines[first:]


def _replaced(lines: list[str], key: str, value: str) -> bool:
    """Writes a value where its key stands, if it does; what else stands in the line stays."""
    stands = re.compile(rf"""(\s*"?{re.escape(key)}"?\s*=\s*)(?:"[^"\\]*"|'[^']*'|[^\s#"']+)(\s*(?:#.*\s*)?)""")
    for place, line in enumerate(lines):
        if found := stands.fullmatch(line):
            lines[place] = f"{found[1]}{value}{found[2]}"
            return True
    return False


def _closed(lines: list[str], end: str) -> list[str]:
    """The lines without empty ones at their end, the last of them ended."""
    left = "".join(lines).rstrip()
    return [left, end] if left else []
