"""The profile and the command line of macOS's Seatbelt for a sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from retinue.engines.sandbox.access import MACOS_PATHS, SYSTEM_PATHS, FileAccess

_DEVICES = (
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/fd", "/dev/dtracehelper",
)  # fmt: skip


def build_command(program: str, argv: Sequence[str], profile: str) -> list[str]:
    """Return the command that runs `argv` under the profile."""
    return [program, "-p", profile, *argv]


def build_profile(access: FileAccess, *, temporary: str, sockets: Iterable[str], proxy_port: int | None) -> str:
    """Return the profile: the last rule that matches wins. With a proxy, it is the only way to the network."""
    return "\n".join(_list_rules(access, temporary, sockets, proxy_port)) + "\n"


def _list_rules(access: FileAccess, temporary: str, sockets: Iterable[str], proxy_port: int | None) -> Iterator[str]:
    yield "(version 1)"
    yield "(deny default)"
    yield "(allow process-exec process-fork sysctl-read mach-lookup ipc-posix-sem ipc-posix-shm)"
    # Only processes of this sandbox: those outside are neither signalled nor inspected.
    yield "(allow signal (target same-sandbox))"
    yield "(allow process-info* (target same-sandbox))"
    yield "(allow file-read-metadata)"
    yield _rule("allow", "file-read*", (*SYSTEM_PATHS, *MACOS_PATHS, *access.read, *access.write, temporary))
    yield _rule("allow", "file-write*", (*access.write, temporary))
    yield _rule("allow", "file-read* file-write* file-ioctl", _DEVICES)
    if access.protected:
        yield _rule("deny", "file-write*", access.protected)
    if granted := [path for path in access.write if any(path.startswith(f"{each}/") for each in access.protected)]:
        yield _rule("allow", "file-write*", granted)
    # A folder that is replaced as a whole would lose the rules of what it contains.
    if access.pinned:
        yield "(deny file-write-unlink " + " ".join(f"(literal {_quote(path)})" for path in access.pinned) + ")"
    if access.hidden:
        yield _rule("deny", "file-read* file-write*", access.hidden)
    if proxy_port is None:
        yield "(allow network*)"
    else:
        yield f'(allow network-outbound (remote ip "localhost:{proxy_port}"))'
    for path in sockets:
        yield f"(allow network-outbound (literal {_quote(path)}))"


def _rule(action: str, operations: str, paths: Iterable[str]) -> str:
    return f"({action} {operations} " + " ".join(f"(subpath {_quote(path)})" for path in paths) + ")"


def _quote(path: str) -> str:
    """Return the path as a string of the profile, with nothing in it that could end the string."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
