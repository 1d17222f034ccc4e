"""Find the user's folders and the levels of a project."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

MISSING_HOME = Path("/nonexistent")
MAX_PROJECT_LEVELS = 64
"""Limits the file checks for a hostile path."""
CWD_HASH_DIGITS = 16
"""Hex digits of a path's hash."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_VERSION_4 = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")


def home_folder(environ: Mapping[str, str]) -> Path:
    """Return the user's home; without one, a folder that does not exist."""
    if home := _absolute_or_none(environ.get("HOME")):
        return home
    try:
        return Path.home()
    except RuntimeError:  # an unknown user id without HOME, as in many containers
        return MISSING_HOME


def expand_user_path(text: str, environ: Mapping[str, str]) -> Path:
    """Return a path written by a user, with `~` replaced by the home folder."""
    if text == "~" or text.startswith("~/"):
        return home_folder(environ) / text[2:]
    return Path(text).absolute()


def config_folder(environ: Mapping[str, str]) -> Path:
    return (_absolute_or_none(environ.get("XDG_CONFIG_HOME")) or home_folder(environ) / ".config") / "retinue"


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of all state: `$RETINUE_STATE`, else below the user's state folder."""
    if override := environ.get("RETINUE_STATE"):
        return expand_user_path(override, environ)
    return (_absolute_or_none(environ.get("XDG_STATE_HOME")) or home_folder(environ) / ".local" / "state") / "retinue"


def runtime_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's folder of sockets; None if the system has none."""
    return _absolute_or_none(environ.get("XDG_RUNTIME_DIR"))


def pi_folder(environ: Mapping[str, str]) -> Path:
    override = environ.get("PI_CODING_AGENT_DIR")
    return expand_user_path(override, environ) if override else home_folder(environ) / ".pi" / "agent"


def claude_folder(environ: Mapping[str, str]) -> Path:
    override = environ.get("CLAUDE_CONFIG_DIR")
    return expand_user_path(override, environ) if override else home_folder(environ) / ".claude"


def sticky_session_dir(home: Path, cwd: str) -> Path:
    """Return the folder with the engine sessions of a working directory, the same for all names of it."""
    from hashlib import sha256

    real = os.path.realpath(cwd)
    return home / ".pi" / "subagent-sessions" / sha256(os.fsencode(real)).hexdigest()[:CWD_HASH_DIGITS]


def engine_session_file(folder: Path, agent: str, session: str) -> Path:
    """Return the file in which an engine keeps its own record of a session."""
    return folder / f"{_UNSAFE.sub('_', agent).lstrip('.') or 'agent'}_{_with_dashes(session)}.jsonl"


def session_uuid(session: str) -> str:
    """Return the id of a session as a version 4 UUID; ids of earlier versions of Retinue unchanged."""
    return _with_dashes(session) if _VERSION_4.fullmatch(session) else session


def _with_dashes(session: str) -> str:
    return "-".join((session[:8], session[8:12], session[12:16], session[16:20], session[20:]))


def _absolute_or_none(text: str | None) -> Path | None:
    """Return the folder in a variable; a relative one depends on the directory and counts as unset."""
    return Path(text) if text and Path(text).is_absolute() else None


def find_project_levels(cwd: Path) -> tuple[Path, ...]:
    """Return the working directory and its parents up to the repository root, nearest first.

    Outside a repository it is only the working directory: its parents belong to no project.
    """
    for levels, marker in _candidate_levels(cwd):
        if os.path.exists(marker):  # noqa: PTH110 - Path.exists raises where access is denied
            return levels
    return (cwd,)


@lru_cache(maxsize=256)
def _candidate_levels(cwd: Path) -> tuple[tuple[tuple[Path, ...], str], ...]:
    """Return the levels for each possible repository root, with its marker file. Cached: every call needs them."""
    levels = (cwd, *cwd.parents)[:MAX_PROJECT_LEVELS]
    return tuple((levels[: i + 1], str(level / ".git")) for i, level in enumerate(levels))
