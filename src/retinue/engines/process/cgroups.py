"""A control group per child, where Linux allows it: every process the child starts stays in it and ends with it.

The watchdog starts the child inside the group.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import anyio

CGROUP_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
"""Mount points of version 2: alone, or beside version 1."""
CONTROLLERS_ON = "+memory +pids"
REMOVE_INTERVALS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""Seconds in which the kernel releases processes that have ended."""


class ControlGroup:
    """One control group. It holds processes together; the watchdog limits what they use, where it has controllers."""

    def __init__(self, folder: Path) -> None:
        """Create the group.

        Raises:
            OSError: no group can be created here.
        """
        folder.mkdir()
        self.folder = folder

    def enable_controllers(self) -> None:
        """Let the groups below have limits, if this one has controllers. It must contain no process itself."""
        if not has_controllers(self.folder / "cgroup.controllers"):
            return
        _write(self.folder / "cgroup.subtree_control", CONTROLLERS_ON)

    def list_pids(self) -> set[int]:
        """Return the live processes in the group and in the groups below it.

        Raises:
            OSError: no descriptor is left to read them with.
        """
        found: set[int] = set()
        for folder, _, _ in os.walk(self.folder, onerror=_raise_unless_removed):
            try:
                found.update(map(int, Path(folder, "cgroup.procs").read_bytes().split()))
            except OSError as error:
                _raise_unless_removed(error)
        return found

    def kill(self) -> None:
        """Send SIGKILL to all at one moment, so that no fork escapes. Does nothing on kernels before 5.14."""
        _write(self.folder / "cgroup.kill", "1")

    async def remove(self) -> None:
        """Remove the group and the groups below it; a group that still has a process stays."""
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
    """Return the group of this process if groups can be created below it; else the reason why not."""
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
    # To move a process down, the kernel requires its present group to be writable, too.
    if not (os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)):
        return f"{folder} is not writable"
    return folder


def find_base_cgroup(own: Path) -> Path:
    """Return the group to create groups below: one with controllers, if there is one that is delegated to this user.

    It is the group of this process, or the one above it if the service manager has delegated that: nothing that is
    started below it escapes limits of a group above.
    """
    above = own.parent
    if has_controllers(own / "cgroup.subtree_control") or not is_delegated(above):
        return own
    if not has_controllers(above / "cgroup.subtree_control"):
        _write(above / "cgroup.subtree_control", CONTROLLERS_ON)
    return above if has_controllers(above / "cgroup.subtree_control") else own


def has_controllers(file: Path) -> bool:
    """Return whether the file of a control group names the controllers that limit memory and processes."""
    try:
        return set(file.read_text(encoding="ascii").split()) >= {"memory", "pids"}
    except (OSError, UnicodeDecodeError):
        return False


def is_delegated(folder: Path) -> bool:
    """Return whether systemd has delegated a group (`Delegate=`, `DelegateSubgroup=`) and this user may use it."""
    try:
        return os.getxattr(folder, "user.delegate") == b"1" and os.access(folder / "cgroup.procs", os.W_OK)
    except (AttributeError, OSError):
        return False


def _raise_unless_removed(error: OSError) -> None:
    """Raise the error unless it means that the group was removed meanwhile."""
    if error.errno not in {errno.ENOENT, errno.ENODEV}:
        raise error


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
