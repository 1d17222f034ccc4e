"""A control group per child, where Linux lets us make one: whatever a process starts stays in it and ends with it."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import anyio

CGROUP_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""Where version 2 is mounted: alone, or beside version 1."""

REMOVE_INTERVALS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""Seconds in which the kernel lets go of processes that have ended."""


class ControlGroup:
    """One control group of ours, without controllers: it holds processes together and limits nothing."""

    def __init__(self, folder: Path) -> None:
        """Makes the group.

        Raises:
            OSError: no group can be made here.
        """
        folder.mkdir()
        self.folder = folder

    def add_process(self, pid: int) -> None:
        """Puts a process in, if it is still there; what it starts from then on is in, too."""
        _write(self.folder / "cgroup.procs", str(pid))

    def list_pids(self) -> set[int]:
        """The living processes in it and in the groups below it.

        Raises:
            OSError: there is no descriptor left to look with.
        """
        found: set[int] = set()
        for folder, _, _ in os.walk(self.folder, onerror=_raise_unless_removed):
            try:
                found.update(map(int, Path(folder, "cgroup.procs").read_bytes().split()))
            except OSError as error:
                _raise_unless_removed(error)
        return found

    def kill(self) -> None:
        """SIGKILL to everything in it at one moment, so that no fork escapes. Nothing on kernels before 5.14."""
        _write(self.folder / "cgroup.kill", "1")

    async def remove(self) -> None:
        """Removes it and the groups below it; one that still holds a process stays."""
        for pause in REMOVE_INTERVALS:
            if self._try_remove():
                return
            await anyio.sleep(pause)

    def _try_remove(self) -> bool:
        for folder, _, _ in os.walk(self.folder, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not self.folder.exists()


def find_own_cgroup() -> Path | str:
    """The group this process is in, if groups can be made below it; else why not."""
    mount = next((mount for mount in CGROUP_MOUNTS if (mount / "cgroup.procs").exists()), None)
    if mount is None:
        return "control groups of version 2 are not mounted"
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return "/proc/self/cgroup cannot be read"
    place = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if place is None:
        return "this process is in no control group of version 2"
    folder = mount / place
    # To move a process down, the kernel wants to see its present group writable, too.
    if not (os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)):
        return f"{folder} is not writable"
    return folder


def _raise_unless_removed(error: OSError) -> None:
    """Raises what does not come of a group that was removed meanwhile."""
    if error.errno not in {errno.ENOENT, errno.ENODEV}:
        raise error


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
