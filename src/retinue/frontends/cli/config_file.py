"""The user's own settings file, changed as text, so that comments and order stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from retinue.frontends.hosts.changes import Change, text_of
from retinue.frontends.hosts.toml_text import checked, parsed


def setting(file: Path, values: Mapping[str, str]) -> Change:
    """The change after which these settings have these values on every surface; none if they have.

    Raises:
        Unfit: the file cannot be read or changed.
    """
    before = text_of(file)
    after = with_values(before or "", values)
    return Change(
        file=file, before=before, after=after if after != (before or "") else before, keeps=before is not None
    )


def with_values(text: str, values: Mapping[str, str]) -> str:
    """The text with these keys set at its top level.

    Raises:
        Unfit: it is no TOML, or none that could be changed safely.
    """
    wanted = {**parsed(text), **values}
    line = "\r\n" if "\r\n" in text else "\n"
    top, tables = _parted(text.splitlines(keepends=True))
    for key, value in values.items():
        _set(top, key, f"{key} = {json.dumps(value, ensure_ascii=False)}{line}")
    if tables and top and top[-1].strip():
        top.append(line)
    return checked("".join((*top, *tables)), wanted)


def _parted(lines: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first table, and the tables."""
    first = next((place for place, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    return lines[:first], lines[first:]


def _set(top: list[str], key: str, written: str) -> None:
    """Writes a key where it stands, or at the end of the top level."""
    for place, line in enumerate(top):
        if re.match(rf'\s*"?{re.escape(key)}"?\s*=', line):
            top[place] = written
            return
    while top and not top[-1].strip():
        top.pop()
    if top and not top[-1].endswith("\n"):
        top[-1] += "\n"
    top.append(written)
