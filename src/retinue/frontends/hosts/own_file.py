"""A file that is all ours: the one that loads our extension into pi."""

from __future__ import annotations

import json

from retinue.frontends.hosts.forms import Entry, Unfit

MARK = "// Written by `retinue install pi`; `retinue uninstall pi` removes it."

TEXT = """\
{mark}
import retinue from {extension};
export default (pi) => retinue(pi, {settings});
"""


class OwnFile:
    """The entry is the whole file: `extension`, the address of ours, and what it is given."""

    def entry(self, text: str) -> Entry | None:
        if not text.strip():
            return None
        if not text.startswith(MARK):
            raise Unfit("it was not written by Retinue")
        try:
            _, loads, gives, *_ = text.split("\n")
            extension = json.loads(loads.removeprefix("import retinue from ").removesuffix(";"))
            settings = json.loads(gives.removeprefix("export default (pi) => retinue(pi, ").removesuffix(");"))
        except (ValueError, RecursionError):
            return {}  # ours, and changed by someone: to be written anew
        return {"extension": extension, **settings}

    def with_entry(self, text: str, entry: Entry) -> str:
        self.entry(text)
        settings = {name: value for name, value in entry.items() if name != "extension"}
        return TEXT.format(mark=MARK, extension=json.dumps(entry["extension"]), settings=json.dumps(settings))

    def without_entry(self, text: str) -> str:
        return ""

    def by_hand(self, entry: Entry) -> str:
        return self.with_entry("", entry).rstrip("\n")
