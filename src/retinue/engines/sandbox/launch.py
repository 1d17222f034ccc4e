"""Start a program in the sandbox of its run: a longer command line, rules for its process, or both."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio.to_thread
from msgspec import Struct, structs

from retinue.engines.base import EngineError
from retinue.engines.process.command import ChildCommand
from retinue.engines.sandbox import bubblewrap, seatbelt
from retinue.engines.sandbox.access import (
    SYSTEM_PATHS,
    SYSTEM_SECRETS,
    FileAccess,
    SandboxAccessError,
    compute_access,
)
from retinue.engines.sandbox.mechanisms import SEATBELT_PATH, unavailable_failure
from retinue.engines.sandbox.proxy import OpenProxy, SandboxProxy, open_loopback_proxy, open_proxy
from retinue.model.sandbox import SandboxMechanism, SandboxPolicy, parse_host_patterns

OUTSIDE_VARIABLES = frozenset({
    "SSH_AUTH_SOCK", "SSH_AGENT_PID", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "TMUX", "STY", "GPG_AGENT_INFO",
    "WAYLAND_DISPLAY", "DISPLAY", "XAUTHORITY",
})  # fmt: skip
"""Variables that lead to programs of the user outside."""
TEMPORARY_VARIABLES = ("TMPDIR", "TMP", "TEMP")
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
READABLE_SYSTEM = (*SYSTEM_PATHS, "/proc", "/sys")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")


MAX_COPIED_FILES, MAX_COPIED_BYTES = 64, 1 << 20
BUBBLEWRAP_MECHANISMS = (SandboxMechanism.BUBBLEWRAP, SandboxMechanism.BUBBLEWRAP_LANDLOCK)
BUBBLEWRAP_COMPANIONS = 2
"""The first process of the process namespace, and the program itself."""


class SandboxNeeds(Struct, frozen=True, kw_only=True):
    """What a program itself needs in any sandbox."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    """Sockets outside that it connects to."""
    hosts: tuple[str, ...] = ()
    """Hosts of its provider, as patterns."""
    temporary: tuple[str, ...] = ()
    """Folders whose files are copied into its temporary folder, such as caches that it must be able to write."""
    cwd: str = ""
    """The directory of its run, if it starts in another."""
    environ: Mapping[str, str] | None = None
    """The variables of its run, if it has others: only those of the run say where installations are."""


class SandboxedCommand(Struct, frozen=True):
    """A command as it is started, and the proxy it has."""

    command: ChildCommand
    proxy: SandboxProxy | None = None


@asynccontextmanager
async def open_sandbox(
    command: ChildCommand, policy: SandboxPolicy, needs: SandboxNeeds | None = None
) -> AsyncIterator[SandboxedCommand]:
    """Provide the command that starts the program in the sandbox; its temporary folder is gone after the block.

    Raises:
        EngineError: the sandbox cannot be built (`unsupported`).
    """
    if not policy.is_on:
        yield SandboxedCommand(command)
        return
    needs = needs or SandboxNeeds()
    async with AsyncExitStack() as stack:
        folder = await anyio.to_thread.run_sync(_make_folder, needs.temporary)
        stack.push_async_callback(_remove_folder, folder)
        access = _compute_access(command, policy, needs)
        proxy = None
        if policy.is_strict:
            hosts = parse_host_patterns((*needs.hosts, *policy.hosts))
            is_shared = policy.report.mechanism is SandboxMechanism.SEATBELT
            opened = open_loopback_proxy(hosts) if is_shared else open_proxy(hosts, folder)
            proxy = await stack.enter_async_context(opened)
        confined = _confine(command, policy, access, needs, os.path.join(folder, "tmp"), proxy)
        yield SandboxedCommand(confined, proxy.proxy if proxy else None)


def _make_folder(copies: Iterable[str]) -> str:
    folder = os.path.realpath(tempfile.mkdtemp(prefix="retinue-box-"))
    temporary = os.path.join(folder, "tmp")
    os.mkdir(temporary, 0o700)
    for source in copies:
        _copy_files(source, os.path.join(temporary, os.path.basename(source)))
    return folder


def _copy_files(source: str, target: str) -> None:
    """Copy the files of a folder, up to a limit; a folder that cannot be read is left out."""
    with suppress(OSError), os.scandir(source) as found:
        os.mkdir(target, 0o700)
        for _, entry in zip(range(MAX_COPIED_FILES), found, strict=False):
            if entry.is_file(follow_symlinks=False) and entry.stat().st_size <= MAX_COPIED_BYTES:
                shutil.copyfile(entry.path, os.path.join(target, entry.name))


async def _remove_folder(folder: str) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(lambda: shutil.rmtree(folder, ignore_errors=True))


def _compute_access(command: ChildCommand, policy: SandboxPolicy, needs: SandboxNeeds) -> FileAccess:
    """Return the paths of the sandbox.

    Raises:
        EngineError: they cannot be enforced here.
    """
    try:
        access = compute_access(
            policy,
            needs.cwd or command.cwd,
            command.environ if needs.environ is None else needs.environ,
            read=needs.read,
            write=needs.write,
        )
    except SandboxAccessError as error:
        raise EngineError(unavailable_failure(policy.mode, str(error))) from error
    if access.hidden and policy.report.mechanism is SandboxMechanism.LANDLOCK:
        why = (
            f"{access.hidden[0]} lies inside a folder that the run may read, and Landlock alone cannot take it out. "
            "Nothing was started. Choose a working directory without it, or install bubblewrap"
        )
        raise EngineError(unavailable_failure(policy.mode, why))
    return access


def _confine(
    command: ChildCommand,
    policy: SandboxPolicy,
    access: FileAccess,
    needs: SandboxNeeds,
    temporary: str,
    proxy: OpenProxy | None,
) -> ChildCommand:
    cwd, argv = os.path.realpath(command.cwd), _resolve_program(command)
    request: dict[str, object] = {}
    companions = 0
    if proxy and proxy.socket:
        request["proxy"] = {"port": proxy.port, "socket": proxy.socket}
    match policy.report.mechanism:
        case SandboxMechanism.LANDLOCK:
            request |= {
                "read": [*_list_readable_system(), *access.read],
                "write": [*DEVICES, *access.write, temporary],
                "scopes": True,
            }
        case SandboxMechanism.SEATBELT:
            profile = seatbelt.build_profile(
                access, temporary=temporary, sockets=needs.sockets, proxy_port=proxy.port if proxy else None
            )
            argv = (*seatbelt.build_command(SEATBELT_PATH, argv, profile),)
        case mechanism if mechanism in BUBBLEWRAP_MECHANISMS:
            assert policy.bubblewrap
            request["scopes"] = mechanism is SandboxMechanism.BUBBLEWRAP_LANDLOCK
            argv = (
                *bubblewrap.build_command(
                    policy.bubblewrap, argv, cwd, access, temporary=temporary, sockets=needs.sockets
                ),
            )
            temporary, companions = bubblewrap.TEMPORARY_FOLDER, BUBBLEWRAP_COMPANIONS
        case mechanism:
            raise AssertionError(f"{mechanism} starts no process")
    environ = build_environment(command.environ, temporary, proxy_port=proxy.port if proxy else None)
    return structs.replace(
        command, argv=argv, cwd=cwd, environ=environ, sandbox=request or None, companions=companions
    )


def _list_readable_system() -> list[str]:
    """Return what can be read of the system: for root, all of /etc but the keys and passwords in it."""
    if os.geteuid() != 0:
        return [*READABLE_SYSTEM]
    with os.scandir("/etc") as found:
        entries = [entry.path for entry in found if entry.path not in SYSTEM_SECRETS]
    return [*(path for path in READABLE_SYSTEM if path != "/etc"), *entries]


def _resolve_program(command: ChildCommand) -> tuple[str, ...]:
    """Return the arguments with the program's own path: a link to it may not exist inside."""
    program = command.argv[0]
    found = shutil.which(program, path=command.environ.get("PATH")) if "/" not in program else program
    return (os.path.realpath(os.path.join(command.cwd, found)) if found else program, *command.argv[1:])


def build_environment(environ: Mapping[str, str], temporary: str, *, proxy_port: int | None) -> dict[str, str]:
    """Return the environment inside: no way to programs outside, but a temporary folder and a proxy of its own."""
    found = {name: value for name, value in environ.items() if name not in OUTSIDE_VARIABLES}
    found |= dict.fromkeys(TEMPORARY_VARIABLES, temporary)
    if proxy_port is not None:
        address = f"http://127.0.0.1:{proxy_port}"
        # Programs read one spelling or the other; those of Node read them only if asked to.
        for name in PROXY_VARIABLES:
            found[name] = found[name.lower()] = address
        found |= {"NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}
    return found
