"""Prune old sessions and logs: details first, results only on request, nothing that is in use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from retinue.model.errors import RefusedError
from retinue.model.event_codec import to_line
from retinue.model.events import EngineSessionStarted, RunEnded, RunQueued, RunStarted
from retinue.sessions.conversation_log import LOCK_FILE, LOG_STEM
from retinue.sessions.lease import SessionLease
from retinue.sessions.paths import (
    StateLayout,
    make_folder,
    make_random_id,
    open_folder,
    open_private,
    parse_id_digits,
    read_run_pointer,
    sync_file,
    vault_logs_folder,
)
from retinue.sessions.reader import TORN_FILE, find_start, read_header
from retinue.sessions.recovery import end_run
from retinue.sessions.segments import RecordDecoder, SegmentCursor, SegmentedFile, SegmentHeader
from retinue.sessions.store import PruneReport
from retinue.sessions.writer import WriterLimits

UNUSED_CLAIM_AGE = 3600.0
"""Seconds after which an id that was claimed and never used is released."""
RESULT_EVENTS = (RunQueued, RunStarted, EngineSessionStarted, RunEnded)
"""Events that remain of a thinned session: enough to list it, show its answers and resume it."""


class SessionPruner:
    """Prunes one state folder. `acquire_lease` leases a session, so that no run is started in it meanwhile.

    `on_prune` is called with the folder of each session just before it is thinned or deleted.
    Of the logs in a `vault`, only those of conversations in the state folder are deleted.
    """

    def __init__(
        self,
        layout: StateLayout,
        limits: WriterLimits,
        *,
        now: float,
        older_than: float,
        acquire_lease: Callable[[str], SessionLease | None],
        on_prune: Callable[[Path], None],
        vault: Path | None = None,
    ) -> None:
        self._layout = layout
        self._limits = limits
        self._now = now
        self._before = now - older_than
        self._acquire_lease = acquire_lease
        self._on_prune = on_prune
        self._vault = vault

    def prune(self, *, keep_results: bool) -> PruneReport:
        """Thin old sessions, or delete them without `keep_results`; delete old logs and unused claims."""
        _remove_tree(self._layout.trash)  # left by an earlier call that was killed
        claims = self._read_claims()
        report = PruneReport()
        for folder in self._folders():
            report += self._prune_session(folder, claims, keep_results=keep_results)
        self._free_unused(claims)
        return report + self._prune_logs()

    def _folders(self) -> list[Path]:
        return [path for path in _list_entries(self._layout.sessions) if path.is_dir() and not path.is_symlink()]

    def _read_claims(self) -> dict[str, list[Path]]:
        """Return the claims of later runs by session; those that cannot be read under the empty name."""
        found: dict[str, list[Path]] = {}
        for path in _list_entries(self._layout.sessions):
            if path.is_file() and not path.is_symlink():
                claimed = read_run_pointer(path)
                found.setdefault(claimed[0].session if claimed else "", []).append(path)
        return found

    def _prune_session(self, folder: Path, claims: dict[str, list[Path]], *, keep_results: bool) -> PruneReport:
        try:
            head = read_header(SegmentedFile(folder))
            if not isinstance(head, SegmentHeader) or not self._is_old(folder):
                return PruneReport()
            lease = self._acquire_lease(head.id)
            if lease is None:
                return PruneReport(skipped=1)
            try:
                report = self._prune_leased(folder, claims.get(head.id, []), keep_results=keep_results)
                lease.release()
            finally:
                lease.abandon()
        except (OSError, RefusedError):
            return PruneReport(skipped=1)
        return report

    def _prune_leased(self, folder: Path, claims: list[Path], *, keep_results: bool) -> PruneReport:
        # A session that had to be ended first, or was resumed until a moment ago, is not old.
        if end_run(folder, self._limits, self._now) or not self._is_old(folder):
            return PruneReport()
        return thin_record(folder, self._on_prune) if keep_results else self._remove(folder, claims)

    def _is_old(self, folder: Path) -> bool:
        changed = [path.stat().st_mtime for path in SegmentedFile(folder).list_files()]
        return bool(changed) and max(changed) < self._before

    def _remove(self, folder: Path, claims: list[Path]) -> PruneReport:
        freed = sum(path.stat().st_size for path in (*SegmentedFile(folder).list_files(), *claims))
        self._on_prune(folder)
        make_folder(self._layout.trash)
        doomed = self._layout.trash / f"{folder.name}.{make_random_id()}"
        folder.rename(doomed)
        for path in claims:
            path.unlink(missing_ok=True)
        _remove_tree(doomed)
        return PruneReport(removed=1, freed_bytes=freed)

    def _free_unused(self, claims: dict[str, list[Path]]) -> None:
        """Release the ids whose session never had a run or is gone."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < self._now - UNUSED_CLAIM_AGE:
                    # Fails, as it should, if the folder is not empty.
                    folder.rmdir()
        for session, paths in claims.items():
            if parse_id_digits(session) and self._layout.session(session).exists():
                continue
            for path in paths:
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < self._now - UNUSED_CLAIM_AGE:
                        path.unlink()

    def _prune_logs(self) -> PruneReport:
        report = PruneReport()
        for folder in _list_entries(self._layout.roots):
            if self._vault:
                report += self._prune_log(vault_logs_folder(self._vault) / folder.name)
            report += self._prune_log(folder)
        return report

    def _prune_log(self, folder: Path) -> PruneReport:
        report = PruneReport()
        for path in SegmentedFile(folder, LOG_STEM).list_files():
            with contextlib.suppress(OSError):
                status = path.stat()
                if status.st_mtime < self._before:
                    path.unlink()
                    report += PruneReport(logs=1, freed_bytes=status.st_size)
        if not SegmentedFile(folder, LOG_STEM).list_files():
            with contextlib.suppress(OSError):
                (folder / LOCK_FILE).unlink(missing_ok=True)
                folder.rmdir()  # fails, as it should, if other files are in it
        return report


def thin_record(folder: Path, on_thin: Callable[[Path], None]) -> PruneReport:
    """Reduce a record to its results, if that makes it smaller. The caller holds the session's lease.

    Raises:
        OSError: the record could not be rewritten and is unchanged.
    """
    segments = SegmentedFile(folder)
    head = read_header(segments)
    if not isinstance(head, SegmentHeader):
        return PruneReport()
    before = segments.list_files()
    old_size = sum(path.stat().st_size for path in before)
    remaining = folder / "session.kept"
    descriptor = open_private(remaining, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(replace(head, first=head.part).to_line())
        file.writelines(_read_results(segments, head))
        file.flush()
        sync_file(file.fileno())
        new_size = file.tell()
    if new_size >= old_size:
        remaining.unlink()
        return PruneReport()
    # The time of the last change is preserved: thinning is not use.
    changed = max(path.stat().st_mtime_ns for path in before)
    os.utime(remaining, ns=(changed, changed))
    on_thin(folder)
    # From here on the older segments no longer count, even if they are not deleted.
    remaining.replace(segments.newest)
    descriptor = open_folder(folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for path in (*map(segments.segment_path, segments.list_closed()), folder / TORN_FILE):
        path.unlink(missing_ok=True)
    return PruneReport(thinned=1, freed_bytes=old_size - new_size)


def _read_results(segments: SegmentedFile, head: SegmentHeader) -> Iterator[bytes]:
    decoder = RecordDecoder(head.id)
    cursor = SegmentCursor(segments, find_start(segments, head))
    while lines := cursor.read():
        for line in lines:
            yield from (
                to_line(each) for each in decoder.decode_events(line) if isinstance(each.event, RESULT_EVENTS)
            )


def _list_entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _remove_tree(folder: Path) -> None:
    from shutil import rmtree

    rmtree(folder, ignore_errors=True)
