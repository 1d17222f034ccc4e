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


class _Pointer(Struct):
    claude: UUID


def pointer_of(spec: RunSpec) -> Path:
    """Where the id of Claude Code's session is written down."""
    if spec.native_session:
        return Path(spec.native_session)
    return native_file(Path(spec.native_folder), spec.agent.name, spec.session)


def resumable(spec: RunSpec) -> str | None:
    """The id of the session to go on with; None where there is none, or Claude Code has forgotten it."""
    if not spec.native_session:
        return None
    try:
        session = str(msgspec.json.decode(read_regular(spec.native_session, POINTER_BYTES), type=_Pointer).claude)
    except (OSError, TooLarge, ValueError):  # msgspec's errors are value errors
        return None
    return session if _is_recorded(session, spec.environment) else None


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


def _is_recorded(session: str, environ: Mapping[str, str]) -> bool:
    # One folder for each directory in which Claude Code ran; how they are named is its own business.
    return any((claude_folder(environ) / "projects").glob(f"*/{session}.jsonl"))
