"""The command line of bubblewrap for a sandbox."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from retinue.engines.sandbox.access import SYSTEM_PATHS, SYSTEM_SECRETS, FileAccess
from retinue.engines.sandbox.mechanisms import NAMESPACES

TEMPORARY_FOLDER = "/tmp"  # noqa: S108 - inside the sandbox, a folder of its own
_HIDE_FILE = "/dev/null"
KERNEL_PATHS = (
    "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/scsi", "/proc/acpi",
    "/proc/mtrr", "/proc/pressure",
)  # fmt: skip
"""Settings of the kernel. Root may change them without capabilities: `core_pattern` names a program that it runs."""


def build_command(
    program: str, argv: Sequence[str], cwd: str, access: FileAccess, *, temporary: str, sockets: Sequence[str]
) -> list[str]:
    """Return the command that runs `argv` inside the sandbox.

    `temporary` is the folder that stands for `/tmp`; the `sockets` can be connected to.
    """
    arguments = [
        program,
        *NAMESPACES,
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]
    arguments += _system_arguments()
    arguments += ["--bind", temporary, TEMPORARY_FOLDER, "--dir", "/var", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108
    # A mount hides what lies below it, so that a folder comes before what it contains.
    for _, mount in sorted(_list_mounts(access), key=lambda pair: pair[0].count("/")):
        arguments += mount
    for path in sockets:
        arguments += ["--bind-try", path, path]
    arguments += ["--remount-ro", "/", "--chdir", cwd, "--", *argv]
    return arguments


def _system_arguments() -> Iterator[str]:
    for path in filter(os.path.exists, KERNEL_PATHS):
        yield from ("--ro-bind", path, path)
    for path in (*SYSTEM_PATHS, "/sys"):
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        elif os.path.exists(path):
            yield from ("--ro-bind", path, path)
    for path in SYSTEM_SECRETS:
        # For others than root they are out of reach anyway.
        if os.access(path, os.R_OK):
            yield from ("--tmpfs", path) if os.path.isdir(path) else ("--ro-bind", _HIDE_FILE, path)


def _list_mounts(access: FileAccess) -> Iterator[tuple[str, Sequence[str]]]:
    yield from ((path, ("--ro-bind", path, path)) for path in access.read)
    yield from ((path, ("--bind", path, path)) for path in access.write)
    # A mount cannot be renamed: the folder stays the one whose content is protected.
    yield from ((path, ("--bind", path, path)) for path in access.pinned)
    yield from ((path, ("--ro-bind", path, path)) for path in access.protected)
    for path in access.hidden:
        if os.path.isdir(path):
            yield path, ("--tmpfs", path)
        else:
            yield path, ("--ro-bind", _HIDE_FILE, path)
