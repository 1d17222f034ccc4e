"""Where things are: the user's folders, and the levels of a project."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

MISSING_HOME = Path("/nonexistent")
MAX_PROJECT_LEVELS = 64
"""Nobody works deeper; a hostile path cannot make us stat for ever."""
CWD_HASH_DIGITS = 16
"""Hex digits of a path's hash that stand for it."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_VERSION_4 = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")


def home_folder(environ: Mapping[str, str]) -> Path:
    """The user's home. Where there is none nothing is found in it, and saving says that HOME is missing."""
    if home := _absolute_or_none(environ.get("HOME")):
        return home
    try:
        return Path.home()
    except RuntimeError:  # a user id of its own and no HOME, as in many containers
        return MISSING_HOME


def expand_user_path(text: str, environ: Mapping[str, str]) -> Path:
    """A path a person wrote: `~` is home."""
    if text == "~" or text.startswith("~/"):
        return home_folder(environ) / text[2:]
    return Path(text).absolute()


def config_folder(environ: Mapping[str, str]) -> Path:
    return (_absolute_or_none(environ.get("XDG_CONFIG_HOME")) or home_folder(environ) / ".config") / "retinue"


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where all state lives: `$RETINUE_STATE`, else below the user's state folder."""
    if override := environ.get("RETINUE_STATE"):
        return expand_user_path(override, environ)
    return (_absolute_or_none(environ.get("XDG_STATE_HOME")) or home_folder(environ) / ".local" / "state") / "retinue"


def pi_folder(environ: Mapping[str, str]) -> Path:
    override = environ.get("PI_CODING_AGENT_DIR")
    return expand_user_path(override, environ) if override else home_folder(environ) / ".pi" / "agent"


def claude_folder(environ: Mapping[str, str]) -> Path:
    override = environ.get("CLAUDE_CONFIG_DIR")
    return expand_user_path(override, environ) if override else home_folder(environ) / ".claude"


def sticky_session_dir(home: Path, cwd: str) -> Path:
    """Where seed 002 keeps the sessions of a working directory, whichever of its names that was given by."""
    from hashlib import sha256

    real = os.path.realpath(cwd)
    return home / ".pi" / "subagent-sessions" / sha256(os.fsencode(real)).hexdigest()[:CWD_HASH_DIGITS]


def engine_session_file(folder: Path, agent: str, session: str) -> Path:
    """The file in which an engine keeps its own record of a session."""
    return folder / f"{_UNSAFE.sub('_', agent).lstrip('.') or 'agent'}_{_with_dashes(session)}.jsonl"


def session_uuid(session: str) -> str:
    """The id of a session as a version 4 UUID; an id of an earlier version of Retinue, which is none, as it is."""
    return _with_dashes(session) if _VERSION_4.fullmatch(session) else session


def _with_dashes(session: str) -> str:
    return "-".join((session[:8], session[8:12], session[12:16], session[16:20], session[20:]))


def _absolute_or_none(text: str | None) -> Path | None:
    """The folder a variable names; a relative one would mean another place in every directory and counts as unset."""
    return Path(text) if text and Path(text).is_absolute() else None


def find_project_levels(cwd: Path) -> tuple[Path, ...]:
    """The working directory and those above it up to the repository root, nearest first.

    Outside a repository the working directory stands alone: what lies above it is nobody's project.
    """
    for levels, marker in _candidate_levels(cwd):
        if os.path.exists(marker):  # noqa: PTH110 - Path.exists raises where nothing may be looked at
            return levels
    return (cwd,)


@lru_cache(maxsize=256)
def _candidate_levels(cwd: Path) -> tuple[tuple[tuple[Path, ...], str], ...]:
    """What the levels are if a repository begins at one of them, with what would mark it. Every call asks."""
    levels = (cwd, *cwd.parents)[:MAX_PROJECT_LEVELS]
    return tuple((levels[: i + 1], str(level / ".git")) for i, level in enumerate(levels))
