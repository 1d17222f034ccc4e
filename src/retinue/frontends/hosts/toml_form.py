"""An entry in a TOML file: a table at its end, as text, so that comments and order stay."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from retinue.frontends.hosts.forms import Entry, Unfit
from retinue.frontends.hosts.toml_text import checked, parsed


class TomlForm:
    """The entry is the table `[parent.name]`."""

    def __init__(self, parent: str, name: str) -> None:
        self._parent = parent
        self._name = name
        key = rf'\s*"?{re.escape(name)}"?\s*'
        self._header = re.compile(rf"\[\s*{re.escape(parent)}\s*\.{key}(?:\.[^\]]*)?\]\s*(?:#.*)?")

    def entry(self, text: str) -> Entry | None:
        parent = parsed(text).get(self._parent)
        found = parent.get(self._name) if isinstance(parent, dict) else None
        return found if isinstance(found, dict) else None

    def with_entry(self, text: str, entry: Entry) -> str:
        wanted = parsed(text)
        parent = wanted.setdefault(self._parent, {})
        if not isinstance(parent, dict):
            raise Unfit(f"{self._parent} in it is no table")
        rest = self.without_entry(text) if self._name in parent else text
        parent[self._name] = dict(entry)
        line = "\r\n" if "\r\n" in text else "\n"
        before = f"{rest.rstrip()}{line}{line}" if rest.strip() else ""
        table = self.by_hand(entry).replace("\n", line)
        return checked(f"{before}{table}{line}", wanted)

    def without_entry(self, text: str) -> str:
        wanted = parsed(text)
        del wanted[self._parent][self._name]
        left = "".join(self._others(text.splitlines(keepends=True)))
        if not wanted[self._parent] and self._parent not in parsed(left):
            del wanted[self._parent]
        return checked(left, wanted)

    def by_hand(self, entry: Entry) -> str:
        lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items())
        return "\n".join((f"[{self._parent}.{self._name}]", *lines))

    def _others(self, lines: list[str]) -> Iterator[str]:
        """The lines outside our table; comments before the next table are its own."""
        is_ours = False
        held: list[str] = []
        for line in lines:
            if line.lstrip().startswith("["):
                is_ours = self._header.fullmatch(line.strip()) is not None
                yield from [] if is_ours else held
                held = []
            if not is_ours:
                yield line
            elif line.lstrip().startswith("#") or not line.strip():
                held.append(line)
            else:
                held = []
