"""A change of a host's or the user's configuration: worked out, shown, then made; what was there is kept beside."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path

from msgspec import Struct

from retinue.frontends.hosts.forms import Entry, Form, Unfit
from retinue.regular_files import NotRegular, TooLarge, read_regular

MOST_BYTES = 32 * 2**20
"""Of a configuration; Claude Code keeps its history in its own."""
BACKUP = ".before-retinue"


class Change(Struct, frozen=True, kw_only=True):
    """What a file is to become."""

    file: Path
    """Without links: what they lead to is changed, not what they are."""
    before: str | None
    """None: there is no such file."""
    after: str | None
    keeps: bool = False
    """Whether what is there is to be kept beside it."""

    @property
    def backup(self) -> Path:
        return _backup(self.file)

    @property
    def is_one(self) -> bool:
        return self.before != self.after

    def lines(self) -> Iterator[str]:
        """The lines that go, with a minus, and those that come, with a plus; nothing of what stays."""
        old, new = (self.before or "").splitlines(), (self.after or "").splitlines()
        return (
            line for line in unified_diff(old, new, n=0, lineterm="") if not line.startswith(("---", "+++", "@@"))
        )


def installing(file: Path, form: Form, entry: Entry) -> Change:
    """The change that puts our entry in; none if it is there.

    Raises:
        Unfit: the file cannot be read or changed.
    """
    file, before = opened(file)
    known = form.entry(before or "")
    after = before if known == entry else form.with_entry(before or "", entry)
    return Change(file=file, before=before, after=after, keeps=before is not None and known is None)


def uninstalling(file: Path, form: Form) -> Change:
    """The change that takes it out: back to what was there before us, if nobody has changed anything since.

    Raises:
        Unfit: the same.
    """
    file, before = opened(file)
    known = form.entry(before or "")
    if known is None:
        return Change(file=file, before=before, after=before)
    original = text_of(_backup(file))
    with suppress(Unfit):
        if form.with_entry(original or "", known) == before:
            return Change(file=file, before=before, after=original)
    return Change(file=file, before=before, after=form.without_entry(before or "") or None)


def make(change: Change) -> None:
    """Makes a change: whole or not at all.

    Raises:
        Unfit: the file has changed since the change was worked out, or cannot be written.
    """
    file = change.file
    if text_of(file) != change.before:
        raise Unfit("it has changed meanwhile; nothing was done. Try again")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if change.keeps and change.before is not None:
            _write(change.backup, change.before, like=file)
        if change.after is None:
            file.unlink(missing_ok=True)
        else:
            _write(file, change.after, like=file)
        if not change.keeps and change.after == text_of(change.backup):
            change.backup.unlink(missing_ok=True)
    except OSError as error:
        raise Unfit(f"it cannot be written: {error.strerror}") from error


def opened(file: Path) -> tuple[Path, str | None]:
    """Where a file really is, behind all links, and what stands in it.

    Raises:
        Unfit: it is no file of text.
    """
    real = Path(os.path.realpath(file))
    return real, text_of(real)


def text_of(file: Path) -> str | None:
    """What stands in a file, line ends as they are; None if there is no such file.

    Raises:
        Unfit: the same.
    """
    try:
        return read_regular(file, MOST_BYTES).decode()
    except FileNotFoundError:
        return None
    except NotRegular as error:
        raise Unfit(f"it is {error.kind}") from error
    except TooLarge as error:
        raise Unfit(f"it has more than {MOST_BYTES // 2**20} MiB") from error
    except UnicodeDecodeError as error:
        raise Unfit("it is not valid UTF-8") from error
    except OSError as error:
        raise Unfit(f"it cannot be read: {error.strerror}") from error


def _backup(file: Path) -> Path:
    return file.with_name(file.name + BACKUP)


def _write(file: Path, text: str, *, like: Path) -> None:
    """Writes a file whole or not at all, as private as the one that is there; its owner's alone if there is none."""
    try:
        mode = stat.S_IMODE(like.stat().st_mode)
    except FileNotFoundError:
        mode = 0o600
    descriptor, scratch = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(text.encode())
            opened.flush()
            os.fsync(opened.fileno())
        Path(scratch).chmod(mode)
        Path(scratch).replace(file)
    except OSError:
        Path(scratch).unlink(missing_ok=True)
        raise
