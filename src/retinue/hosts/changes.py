"""Plan, show and apply a change to a configuration file; the previous content is kept in a backup beside it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path

from msgspec import Struct

from retinue.hosts.config_editors import ConfigEditor, ConfigEntry, UnsupportedConfigError
from retinue.support.safe_files import FileTooLargeError, NotRegularFileError, read_regular_file

MAX_CONFIG_BYTES = 32 * 2**20
"""Limit of a configuration file; Claude Code keeps its history in its own."""
BACKUP_SUFFIX = ".before-retinue"


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A planned change of one file."""

    file: Path
    """With links resolved: the target is changed, the link stays."""
    before: str | None
    """None if there is no such file."""
    after: str | None
    keeps_backup: bool = False
    """Whether the previous content is written to the backup."""

    @property
    def backup(self) -> Path:
        return _backup_path(self.file)

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff_lines(self) -> Iterator[str]:
        """Return the removed lines with a minus and the added lines with a plus.

        If one line changes, only the changed part is returned: the rest is of other programs, maybe with secrets.
        """
        old, new = (self.before or "").splitlines(), (self.after or "").splitlines()
        diff = [
            line for line in unified_diff(old, new, n=0, lineterm="") if not line.startswith(("---", "+++", "@@"))
        ]
        if [line[0] for line in diff] == ["-", "+"]:
            diff = [*_changed_parts(diff[0][1:], diff[1][1:])]
        return iter(diff)


def plan_install(file: Path, editor: ConfigEditor, entry: ConfigEntry) -> ConfigChange:
    """Plan the change that writes our entry; an equal entry makes it a change of nothing.

    Raises:
        UnsupportedConfigError: the file cannot be read or changed.
    """
    file, before = read_config(file)
    known = editor.find_entry(before or "")
    after = before if known == entry else editor.with_entry(before or "", entry)
    return ConfigChange(file=file, before=before, after=after, keeps_backup=before is not None and known is None)


def plan_uninstall(file: Path, editor: ConfigEditor) -> ConfigChange:
    """Plan the change that removes our entry, restoring the backup if nothing else has changed since.

    Raises:
        UnsupportedConfigError: the file cannot be read or changed.
    """
    file, before = read_config(file)
    known = editor.find_entry(before or "")
    if known is None:
        return ConfigChange(file=file, before=before, after=before)
    original = read_text(_backup_path(file))
    with suppress(UnsupportedConfigError):
        if editor.with_entry(original or "", known) == before:
            return ConfigChange(file=file, before=before, after=original)
    return ConfigChange(file=file, before=before, after=editor.without_entry(before or "") or None)


def apply_change(change: ConfigChange) -> None:
    """Apply a change completely or not at all.

    Raises:
        UnsupportedConfigError: the file has changed since the change was planned, or cannot be written.
    """
    file = change.file
    if read_text(file) != change.before:
        raise UnsupportedConfigError("the file changed in the meantime; nothing was written. Try again")
    try:
        # A file can be replaced in spite of its mode; its owner has protected it.
        if change.before is not None and not file.stat().st_mode & stat.S_IWUSR:
            raise UnsupportedConfigError("the file is read-only")
        file.parent.mkdir(parents=True, exist_ok=True)
        if change.keeps_backup and change.before is not None:
            _write_atomically(change.backup, change.before, like=file)
        if change.after is None:
            file.unlink(missing_ok=True)
        else:
            _write_atomically(file, change.after, like=file)
        if not change.keeps_backup and change.after == read_text(change.backup):
            change.backup.unlink(missing_ok=True)
    except OSError as error:
        raise UnsupportedConfigError(f"the file cannot be written: {error.strerror}") from error


def read_config(file: Path) -> tuple[Path, str | None]:
    """Return the path of a file with links resolved, and its text.

    Raises:
        UnsupportedConfigError: it is not a text file.
    """
    real = Path(os.path.realpath(file))
    return real, read_text(real)


def read_text(file: Path) -> str | None:
    """Return the text of a file with its line ends unchanged; None if there is no such file.

    Raises:
        UnsupportedConfigError: it is not a text file.
    """
    try:
        return read_regular_file(file, MAX_CONFIG_BYTES).decode()
    except FileNotFoundError:
        return None
    except NotRegularFileError as error:
        raise UnsupportedConfigError(f"the path is {error.kind}") from error
    except FileTooLargeError as error:
        raise UnsupportedConfigError(f"the file has more than {MAX_CONFIG_BYTES // 2**20} MiB") from error
    except UnicodeDecodeError as error:
        raise UnsupportedConfigError("the file is not valid UTF-8") from error
    except OSError as error:
        raise UnsupportedConfigError(f"the file cannot be read: {error.strerror}") from error


def _changed_parts(old: str, new: str) -> Iterator[str]:
    """Yield what only one of two lines has between their common start and end."""
    start = _count_common(old, new)
    end = _count_common(old[start:][::-1], new[start:][::-1])
    for sign, line in (("-", old), ("+", new)):
        if part := line[start : len(line) - end]:
            yield f"{sign}{'…' * bool(start)}{part}{'…' * bool(end)}"


def _count_common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _backup_path(file: Path) -> Path:
    return file.with_name(file.name + BACKUP_SUFFIX)


def _write_atomically(file: Path, text: str, *, like: Path) -> None:
    """Replace a file atomically, with the mode of `like`, or readable by its owner only if that does not exist."""
    try:
        mode = stat.S_IMODE(like.stat().st_mode)
    except FileNotFoundError:
        mode = 0o600
    descriptor, scratch = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file_handle:
            file_handle.write(text.encode())
            file_handle.flush()
            os.fsync(file_handle.fileno())
        Path(scratch).chmod(mode)
        Path(scratch).replace(file)
    except OSError:
        Path(scratch).unlink(missing_ok=True)
        raise
