"""Where things are: the user's folders, and the levels of a project."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MAX_LEVELS = 64
"""Nobody works deeper; a hostile path cannot make us stat for ever."""


def home_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ["HOME"]) if environ.get("HOME") else Path.home()


def config_folder(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else home_folder(environ) / ".config") / "retinue"


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where all state lives: `$RETINUE_STATE`, else below the user's state folder."""
    if own := environ.get("RETINUE_STATE"):
        return Path(own).absolute()
    base = environ.get("XDG_STATE_HOME")
    return (Path(base) if base else home_folder(environ) / ".local" / "state") / "retinue"


def pi_folder(environ: Mapping[str, str]) -> Path:
    own = environ.get("PI_CODING_AGENT_DIR")
    return Path(own).expanduser() if own else home_folder(environ) / ".pi" / "agent"


def project_levels(cwd: Path) -> tuple[Path, ...]:
    """The working directory and those above it up to the repository root, nearest first.

    Outside a repository the working directory stands alone: what lies above it is nobody's project.
    """
    levels = (cwd, *cwd.parents)[:MAX_LEVELS]
    for i, level in enumerate(levels):
        if (level / ".git").exists():
            return levels[: i + 1]
    return (cwd,)
