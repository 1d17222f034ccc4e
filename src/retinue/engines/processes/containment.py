"""What holds the processes of a child together on this machine, and why nothing better does."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from retinue.engines.processes.cgroups import own_folder


class Containment(StrEnum):
    """What holds the processes of a child together, the surest first."""

    CGROUP = "cgroup"
    SUBREAPER = "subreaper"
    MARKER = "marker"
    GROUP = "group"
    TASKKILL = "taskkill"


def containment(*, owns_process: bool = False) -> tuple[Containment, str]:
    """What is in force here, and one sentence about it for whoever asks. Starts no process."""
    if os.name == "nt":
        return Containment.TASKKILL, "Processes are ended with taskkill: one whose parent ended before may get away."
    if not _has_descriptors():
        return Containment.GROUP, (
            "Processes are found by their group and their parents, because this system has no process descriptors: "
            "one that starts its own session and loses its parents may get away."
        )
    folder = own_folder()
    if isinstance(folder, Path):
        return (
            Containment.CGROUP,
            f"Each child has a control group below {folder}: it holds all that the child starts.",
        )
    if owns_process:
        return Containment.SUBREAPER, (
            "Processes are found by a mark in their environment and by their parents, and orphans come to this "
            f"process. There is no control group because {folder}."
        )
    return Containment.MARKER, (
        "Processes are found by a mark in their environment and by their parents: one that clears its environment, "
        f"starts its own session and loses its parents may get away. There is no control group because {folder}."
    )


def _has_descriptors() -> bool:
    """Whether processes can be seen and held without naming them by number."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return Path("/proc/self/environ").exists()
