"""Confine this process for good, between fork and exec: Landlock rules, and a network namespace with one socket.

It imports nothing of Retinue, so that it also works in a process that must not load more: `apply_sandbox` is called
in a forked child, last before exec. The request is a JSON object with these optional keys:

    read      paths that can be read and executed
    write     paths that can be read, executed and changed; with either key, everything else is out of reach, and the
              capabilities of root are dropped: they pass by some of these rules
    scopes    true: processes outside cannot be signalled, and their abstract sockets not connected to
    proxy     {"port": number, "socket": path}: enter a network namespace without a way out, listen on its loopback
              address, and send the listening socket to the socket at this path
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

TYPE_CHECKING = False  # without the import of typing, which takes longer than all that is done here
if TYPE_CHECKING:
    from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION = 1
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVS, _DROP_BOUNDING = 38, 24
_AMBIENT, _CLEAR_AMBIENT = 47, 4
_CAPABILITY_VERSION = 0x20080522
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914
_INTERFACE_UP = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FS_RIGHTS_SINCE = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEV}
"""Rights by the ABI that added them; later rights of other kinds have no place here."""
_SCOPES_SINCE = 6
_SCOPES = (1 << 0) | (1 << 1)
"""Abstract sockets and signals."""
_READ = EXECUTE | READ_FILE | READ_DIR
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
"""Rights that a rule for something other than a directory may have."""
_BACKLOG = 128
_CONNECT_TIMEOUT = 10.0
"""Seconds for the program that waits for the listening socket to accept it."""


def find_landlock_abi() -> int:
    """Return the version of Landlock's interface in this kernel; 0 if it has none or none is active."""
    if os.name != "posix" or not hasattr(os, "O_PATH"):
        return 0
    version: int = ctypes.CDLL(None).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_GET_VERSION))
    return max(version, 0)


def apply_sandbox(request: dict[str, Any]) -> None:
    """Confine this process and all that it starts; there is no way back.

    Raises:
        OSError: the kernel cannot do what the request asks for.
    """
    if proxy := request.get("proxy"):
        _enter_network_namespace(int(proxy["port"]), str(proxy["socket"]))
    read, write = request.get("read"), request.get("write")
    has_rules = read is not None or write is not None
    if not has_rules and not request.get("scopes"):
        return
    abi = find_landlock_abi()
    if not abi:
        raise OSError(errno.ENOSYS, "Landlock is not active in this kernel")
    _restrict(abi, tuple(read or ()), tuple(write or ()), has_rules=has_rules, scopes=bool(request.get("scopes")))


def _restrict(abi: int, read: tuple[str, ...], write: tuple[str, ...], *, has_rules: bool, scopes: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    handled = sum(rights for since, rights in _FS_RIGHTS_SINCE.items() if since <= abi) if has_rules else 0
    scoped = _SCOPES if scopes and abi >= _SCOPES_SINCE else 0
    if not handled and not scoped:
        return
    # Older kernels know the attribute's first fields only, and refuse a longer one unless the rest is zero.
    attribute = struct.pack("=QQQ", handled, 0, scoped)
    ruleset = _check(libc.syscall(_CREATE_RULESET, attribute, ctypes.c_size_t(len(attribute)), 0))
    try:
        for path in read:
            _add_rule(libc, ruleset, path, handled & _READ)
        for path in write:
            _add_rule(libc, ruleset, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK))
        _check(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _check(libc.syscall(_RESTRICT_SELF, ruleset, 0))
        if has_rules and os.geteuid() == 0:
            _drop_capabilities(libc)
    finally:
        os.close(ruleset)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up all capabilities, also those that a program of root would get."""
    number = 0
    while libc.prctl(_DROP_BOUNDING, number, 0, 0, 0) == 0:
        number += 1
    libc.prctl(_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    _check(libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24)))


def _add_rule(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allow the rights below a path; one that does not exist needs none."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, descriptor)
        _check(libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _enter_network_namespace(port: int, address: str) -> None:
    """Enter a namespace whose only interface is its own loopback, and send a socket that listens there."""
    # Not on Windows, where this module is imported, too; the module socket takes longer to import than all this.
    import _socket
    import fcntl

    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    is_root = user == 0 and libc.unshare(_NEW_NETWORK) == 0
    if not is_root:
        _check(libc.unshare(_NEW_USER | _NEW_NETWORK))
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    control = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    receiver = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        flags = struct.unpack("16sH", fcntl.ioctl(control, _GET_FLAGS, struct.pack("16sH14x", b"lo", 0))[:18])[1]
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _INTERFACE_UP))
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        receiver.settimeout(_CONNECT_TIMEOUT)
        receiver.connect(address)
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listener.fileno()))
        receiver.sendmsg([b"."], [rights])
    finally:
        for each in (control, listener, receiver):
            each.close()


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
