"""What is forgotten, and when: first the detail of old sessions, results last, nothing that is in use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from retinue.events import NativeSession, RunEnded, RunQueued, RunStarted, to_line
from retinue.sessions.claims import random_id, read_claim
from retinue.sessions.framing import Decoder, Header
from retinue.sessions.lease import Lease
from retinue.sessions.parts import Cursor, Parts, session_parts
from retinue.sessions.paths import Layout, digits, make_folder, open_folder, open_private, sync_file, vault_logs
from retinue.sessions.reading import TORN, beginning, read_header
from retinue.sessions.recover import end_run
from retinue.sessions.rotating import EVENTS, LOCK
from retinue.sessions.writer import Bounds
from retinue.types import Refused

UNUSED = 3600.0
"""Seconds after which an id that was claimed and never used is free again."""
RESULTS = (RunQueued, RunStarted, NativeSession, RunEnded)
"""What remains of a thinned session: enough to list it, show its answers and continue it."""


class Pruned(Struct, frozen=True, kw_only=True):
    """What pruning did."""

    thinned: int = 0
    """Sessions that lost their detail and kept their results."""
    removed: int = 0
    """Sessions that are gone."""
    skipped: int = 0
    """Old sessions left alone: in use, or the disk would not."""
    logs: int = 0
    """Files of root logs that are gone."""
    freed_bytes: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(
            thinned=self.thinned + other.thinned,
            removed=self.removed + other.removed,
            skipped=self.skipped + other.skipped,
            logs=self.logs + other.logs,
            freed_bytes=self.freed_bytes + other.freed_bytes,
        )


class Pruner:
    """One sweep through a state folder. `take` leases a session, so that nobody begins a run in it meanwhile.

    Of the logs in a `vault`, only those of conversations we know are ours to remove.
    """

    def __init__(
        self,
        layout: Layout,
        bounds: Bounds,
        *,
        now: float,
        older_than: float,
        take: Callable[[str], Lease | None],
        vault: Path | None = None,
    ) -> None:
        self._layout = layout
        self._bounds = bounds
        self._now = now
        self._before = now - older_than
        self._take = take
        self._vault = vault

    def prune(self, *, keep_results: bool) -> Pruned:
        """Thins sessions unchanged for long, or removes them whole; removes root logs as old, and what is unused."""
        self._empty_trash()
        claims = self._claims()
        done = Pruned()
        for folder in self._folders():
            done += self._prune_session(folder, claims, keep_results=keep_results)
        self._free_unused(claims)
        return done + self._prune_logs()

    def _folders(self) -> list[Path]:
        return [path for path in _entries(self._layout.sessions) if path.is_dir() and not path.is_symlink()]

    def _claims(self) -> dict[str, list[Path]]:
        """The files that claim the ids of later runs, by session; under no session those that name none."""
        found: dict[str, list[Path]] = {}
        for path in _entries(self._layout.sessions):
            if path.is_file() and not path.is_symlink():
                claimed = read_claim(path)
                found.setdefault(claimed[0].session if claimed else "", []).append(path)
        return found

    def _prune_session(self, folder: Path, claims: dict[str, list[Path]], *, keep_results: bool) -> Pruned:
        try:
            head = read_header(session_parts(folder))
            if not isinstance(head, Header) or not self._is_old(folder):
                return Pruned()
            lease = self._take(head.id)
            if lease is None:
                return Pruned(skipped=1)
            try:
                done = self._prune_leased(folder, claims.get(head.id, []), keep_results=keep_results)
                lease.release()
            finally:
                lease.abandon()
        except (OSError, Refused):
            return Pruned(skipped=1)
        return done

    def _prune_leased(self, folder: Path, claims: list[Path], *, keep_results: bool) -> Pruned:
        # What had to be ended first, or was continued until a moment ago, is not old.
        if end_run(folder, self._bounds, self._now) or not self._is_old(folder):
            return Pruned()
        return thin(folder) if keep_results else self._remove(folder, claims)

    def _is_old(self, folder: Path) -> bool:
        changed = [path.stat().st_mtime for path in session_parts(folder).files()]
        return bool(changed) and max(changed) < self._before

    def _remove(self, folder: Path, claims: list[Path]) -> Pruned:
        freed = sum(path.stat().st_size for path in (*session_parts(folder).files(), *claims))
        make_folder(self._layout.trash)
        doomed = self._layout.trash / f"{folder.name}.{random_id()}"
        folder.rename(doomed)
        for path in claims:
            path.unlink(missing_ok=True)
        _remove(doomed)
        return Pruned(removed=1, freed_bytes=freed)

    def _free_unused(self, claims: dict[str, list[Path]]) -> None:
        """Gives back ids whose session never began or is gone."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < self._now - UNUSED:
                    # Fails, as it should, unless the folder is empty.
                    folder.rmdir()
        for session, paths in claims.items():
            if digits(session) and self._layout.session(session).exists():
                continue
            for path in paths:
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < self._now - UNUSED:
                        path.unlink()

    def _prune_logs(self) -> Pruned:
        done = Pruned()
        for folder in _entries(self._layout.roots):
            if self._vault:
                done += self._prune_log(vault_logs(self._vault) / folder.name)
            done += self._prune_log(folder)
        return done

    def _prune_log(self, folder: Path) -> Pruned:
        done = Pruned()
        for path in Parts(folder, EVENTS).files():
            with contextlib.suppress(OSError):
                status = path.stat()
                if status.st_mtime < self._before:
                    path.unlink()
                    done += Pruned(logs=1, freed_bytes=status.st_size)
        if not Parts(folder, EVENTS).files():
            with contextlib.suppress(OSError):
                (folder / LOCK).unlink(missing_ok=True)
                folder.rmdir()  # fails, as it should, where someone else keeps something there
        return done

    def _empty_trash(self) -> None:
        """Removes what an earlier sweep had moved and did not come to delete."""
        _remove(self._layout.trash)


def thin(folder: Path) -> Pruned:
    """Keeps of a record only its results. The caller holds the session's lease.

    Raises:
        OSError: it could not be done; the record is as before.
    """
    parts = session_parts(folder)
    head = read_header(parts)
    if not isinstance(head, Header):
        return Pruned()
    before = parts.files()
    old_size = sum(path.stat().st_size for path in before)
    kept = folder / "session.kept"
    descriptor = open_private(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(replace(head, first=head.part).line())
        file.writelines(_results(parts, head))
        file.flush()
        sync_file(file.fileno())
        new_size = file.tell()
    if new_size >= old_size:
        kept.unlink()
        return Pruned()
    # Its age stays what it was: thinning is not use.
    changed = max(path.stat().st_mtime_ns for path in before)
    os.utime(kept, ns=(changed, changed))
    # From here on the older parts no longer count, whether they are deleted or not.
    kept.replace(parts.newest)
    descriptor = open_folder(folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for path in (*map(parts.path, parts.older()), folder / TORN):
        path.unlink(missing_ok=True)
    return Pruned(thinned=1, freed_bytes=old_size - new_size)


def _results(parts: Parts, head: Header) -> Iterator[bytes]:
    decoder = Decoder(head.id)
    cursor = Cursor(parts, beginning(parts, head))
    while lines := cursor.read():
        for line in lines:
            yield from (to_line(each) for each in decoder.events(line) if isinstance(each.event, RESULTS))


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _remove(folder: Path) -> None:
    from shutil import rmtree

    rmtree(folder, ignore_errors=True)
