"""Which session of Claude Code's own belongs to one of ours.

Claude Code keeps its records itself, below its own folder, by an id of its own. A file of ours, where other engines
have their records, says which: one line, `{"claude": "<id>"}`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from retinue.folders import claude_folder, native_file
from retinue.regular_files import TooLarge, read_regular
from retinue.types import RunSpec

POINTER_BYTES = 1024
FIRST_LINE_BYTES = 64 << 20

FORGOTTEN = "Claude Code has no record of this session any more: it goes on from the stored messages."
DAMAGED = (
    "Claude Code's own record {} is damaged. It is kept as it is. The session continues from the stored messages."
)


class _Pointer(Struct):
    claude: UUID


def pointer_of(spec: RunSpec) -> Path:
    """Where the id of Claude Code's session is written down."""
    if spec.native_session:
        return Path(spec.native_session)
    return native_file(Path(spec.native_folder), spec.agent.name, spec.session)


def resumable(spec: RunSpec) -> str | None:
    """The id of the session to go on with; None where there is none, or Claude Code cannot continue it."""
    session = _noted_session(spec)
    record = _record_of(session, spec.environment) if session else None
    return session if record and not _is_damaged(record) else None


def why_not_resumable(spec: RunSpec) -> str:
    """Return the sentence for a session that Claude Code cannot continue."""
    session = _noted_session(spec)
    record = _record_of(session, spec.environment) if session else None
    if record and _is_damaged(record):
        return DAMAGED.format(record)
    return FORGOTTEN


def new_session() -> str:
    """An id for a session that is to begin: no two may ever have the same, and a run may begin more than once."""
    return str(uuid4())


def remember(pointer: Path, session: str) -> None:
    """Writes down which session was begun."""
    pointer.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = pointer.with_name(f".{pointer.name}.{session}")
    beside.write_bytes(msgspec.json.encode({"claude": session}) + b"\n")
    beside.chmod(0o600)
    os.replace(beside, pointer)  # noqa: PTH105 - of a link it replaces the link


def _noted_session(spec: RunSpec) -> str | None:
    if not spec.native_session:
        return None
    try:
        return str(msgspec.json.decode(read_regular(spec.native_session, POINTER_BYTES), type=_Pointer).claude)
    except (OSError, TooLarge, ValueError):  # msgspec's errors are value errors
        return None


def _record_of(session: str, environ: Mapping[str, str]) -> Path | None:
    # One folder for each directory in which Claude Code ran; how they are named is its own business.
    return next((claude_folder(environ) / "projects").glob(f"*/{session}.jsonl"), None)


def _is_damaged(record: Path) -> bool:
    """Whether the beginning of the record is lost: Claude Code would continue without it, and not say so."""
    try:
        with record.open("rb") as file:
            first = file.readline(FIRST_LINE_BYTES)
        if first.strip():
            msgspec.json.decode(first, type=dict)
    except (OSError, ValueError):
        return True
    return False
