"""Failures of the storage: errno → a failure that names what is not saved and what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from retinue.model.errors import ErrorCode, Failure, RefusedError
from retinue.sessions.segments import NewerVersion

_REASONS = {
    errno.ENOSPC: ("storage_full", "Free some space"),
    errno.EDQUOT: ("storage_full", "Free some space or raise the quota"),
    errno.EFBIG: ("storage_full", "Raise the limit on file sizes (ulimit -f)"),
    errno.EROFS: ("storage_read_only", "Make the folder writable, or set RETINUE_STATE to another folder"),
    errno.EACCES: ("storage_denied", "Make the folder writable, or set RETINUE_STATE to another folder"),
    errno.EPERM: ("storage_denied", "Make the folder writable, or set RETINUE_STATE to another folder"),
    errno.EMFILE: ("resource_limit", "Raise the limit on open files (ulimit -n)"),
    errno.ENFILE: ("resource_limit", "Close programs that hold many files open"),
}
_OTHER_REASON = ("storage_error", "Check the folder and its disk, or set RETINUE_STATE to another folder")


def not_saved_failure(error: OSError, path: Path, since: int | None) -> Failure:
    """Return the fault of a record that cannot be written now; events since `since` wait in memory."""
    reason, advice = _reason_and_advice(error)
    beginning = "its beginning" if since is None else f"event {since}"
    return _storage_failure(
        f"This run is not being saved since {beginning}: {_describe_error(error)} ({path}). The run continues; "
        f"later events are kept in memory and written as soon as possible. {advice}.",
        reason,
    )


def dropped_failure(count: int, path: Path) -> Failure:
    """Return the fault of a record that is writable again after events were lost."""
    return _storage_failure(
        f"{count} events of this run did not fit into memory while {path} could not be written, and are lost. "
        f"Its state and its answer are saved.",
        "storage_full",
    )


def not_synced_failure(error: OSError, path: Path) -> Failure:
    """Return the fault of a record whose bytes were accepted and could not be made durable."""
    return _storage_failure(
        f"The disk reported an error while saving this run: {_describe_error(error)} ({path}). The stored record "
        "may be incomplete, even if later writes succeed. Save the answer elsewhere and check the disk.",
        "storage_error",
    )


def lost_failure(path: Path) -> Failure:
    return _storage_failure(
        f"The record of this run was deleted while the run was active ({path}). The run continues, but its later "
        "events are not stored. Save the answer elsewhere.",
        "storage_lost",
    )


def closed_failure(path: Path) -> Failure:
    return _storage_failure(
        f"The store was closed while this run was active ({path}). Later events were not saved. Save the answer "
        "elsewhere, and close the store only after all runs have ended.",
        "storage_closed",
    )


def unreadable_failure(subject: str, error: OSError) -> Failure:
    """Return the failure of an existing object whose files cannot be read."""
    reason, advice = _reason_and_advice(error)
    where = f" ({error.filename})" if error.filename else ""
    return _storage_failure(
        f"{subject} cannot be read or continued: {_describe_error(error)}{where}. Nothing was changed. {advice}.",
        reason,
    )


def not_continued_failure(session: str, error: OSError, path: Path) -> Failure:
    """Return the refusal to resume an interrupted session whose end cannot be written."""
    reason, advice = _reason_and_advice(error)
    return _storage_failure(
        f"Session {session} was interrupted and cannot be continued now, because its end cannot be saved: "
        f"{_describe_error(error)} ({path}). Its stored output was kept, and nothing was started. {advice}, then "
        "continue "
        "it again.",
        reason,
    )


def only_in_memory_failure(session: str) -> Failure:
    """Return the refusal to resume a session whose lines could not be written and are only in memory."""
    return _storage_failure(
        f"Session {session} cannot be continued: the session could not be written and exists only in memory. "
        "Nothing was started. Start a new session.",
        "storage_error",
    )


@contextmanager
def raise_storage_errors(subject: str) -> Iterator[None]:
    """Convert an `OSError` of the block into a refusal about the subject.

    Raises:
        RefusedError: `storage`.
    """
    try:
        yield
    except OSError as error:
        raise RefusedError(unreadable_failure(subject, error)) from error


def too_new_failure(session: str, newer: NewerVersion) -> Failure:
    return _storage_failure(
        f"Session {session} was written by a newer version of Retinue (record format {newer.version}). The session "
        "was left unchanged. Update Retinue to read or continue the session.",
        "newer_version",
    )


def _storage_failure(message: str, reason: str) -> Failure:
    return Failure(ErrorCode.STORAGE, message, reason)


def _reason_and_advice(error: OSError) -> tuple[str, str]:
    return _REASONS.get(error.errno or 0, _OTHER_REASON)


def _describe_error(error: OSError) -> str:
    return error.strerror or (os.strerror(error.errno) if error.errno else str(error))
